// SPDX-License-Identifier: Apache-2.0
// Who watches what the eager contexts of a task run.
#ifndef EAGER_OBSERVER_H_
#define EAGER_OBSERVER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "millrace/status.h"
#include "proto/step_stats.pb.h"

namespace millrace {

// One run under way: an op, a function with all of its parts, or a part that another task asked
// for. Thread-safe: parts begin and end side by side.
class EagerStep {
 public:
  virtual ~EagerStep() = default;
  // A part begins at a task, as the client names it. Whether its nodes shall be recorded. PartEnds
  // follows.
  virtual bool PartBegins(const std::string& task) = 0;
  // `stats`: what was recorded, empty otherwise; taken.
  virtual void PartEnds(const std::string& task, pb::StepStats* stats) = 0;
  // Once, after all parts.
  virtual void Ends(const Status& status) = 0;
};

// Thread-safe; outlives the contexts and their runs.
class EagerObserver {
 public:
  virtual ~EagerObserver() = default;
  // `what`: the op or function. `step_id` is not 0, and is that of the values which the run
  // receives from other tasks, if there are any. `request_id`: EagerRequestId.
  virtual std::shared_ptr<EagerStep> Begin(uint64_t context, const std::string& what,
                                           int64_t step_id, int64_t request_id) = 0;
};

}  // namespace millrace

#endif  // EAGER_OBSERVER_H_
