// SPDX-License-Identifier: Apache-2.0
// Notices that the process is to end (millrace/preemption.h), as a run of Fit heeds them.
#ifndef MODEL_NOTICES_H_
#define MODEL_NOTICES_H_

namespace millrace::model {

// What a run (millrace/training_run.h) that knows it is as well. Apart from that, whose header
// every program with a model reads.
class KnowsNotices {
 public:
  virtual ~KnowsNotices() = default;

  // The signal of the notice after which the run ends with the step that was made last; 0: there is
  // none. Of several workers it is the same after the same step, whoever was told: what one was
  // told has come to all with that step's gradients.
  virtual int notice() const = 0;
};

}  // namespace millrace::model

#endif  // MODEL_NOTICES_H_
