// SPDX-License-Identifier: Apache-2.0
// The training batches of one worker, by their number.
#ifndef EXAMPLES_MNIST_STEP_BATCHES_H_
#define EXAMPLES_MNIST_STEP_BATCHES_H_

#include <cstdint>
#include <vector>

#include "millrace/digits.h"

namespace millrace::mnist {

// Every pass over the examples is a permutation of its own, which follows from the seed and the
// number of the pass alone: a worker that goes on from a checkpoint asks for the batch of that
// step, whatever it, or the process before it, has asked for until then. Not thread-safe. The
// examples must outlive it.
class StepBatches {
 public:
  StepBatches(const Examples& examples, int batch_size, uint64_t seed);
  // The batch of the step `number`, from 0. Takes the time of a pass's permutation where it lies in
  // another pass than the one before.
  BatchSource::Batch At(int64_t number);

 private:
  void Permute(int64_t pass);

  const Examples& examples_;
  const int batch_size_;
  const uint64_t seed_;
  int64_t pass_ = -1;           // whose order that is
  std::vector<int32_t> order_;  // of the examples
};

}  // namespace millrace::mnist

#endif  // EXAMPLES_MNIST_STEP_BATCHES_H_
