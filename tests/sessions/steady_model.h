// SPDX-License-Identifier: Apache-2.0
// A model in a session, trained step by step on one batch: what a warm step takes is counted.
#ifndef TESTS_SESSIONS_STEADY_MODEL_H_
#define TESTS_SESSIONS_STEADY_MODEL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "millrace/core.h"
#include "tests/sessions/malloc_count.h"

namespace millrace::testing {

// Widths of a perceptron of 784 inputs with two hidden layers, or of a net of two convolutions of
// 5 x 5 with pooling and two dense layers; both end in 10 classes.
struct ModelSize {
  bool convolutional = false;
  int64_t batch = 0;
  int64_t first = 0, second = 0;  // units of the hidden layers, or channels
  int64_t dense = 0;              // units after the convolutions
};

// Not thread-safe. A step feeds images and labels and fetches the loss.
class SteadyModel {
 public:
  static StatusOr<std::unique_ptr<SteadyModel>> Make(const ModelSize& size,
                                                     const SessionOptions& options);
  Status Run(int steps);
  // Calls of malloc in so many steps.
  StatusOr<MallocCount> CountMallocs(int steps);
  // Pages that the process touches for the first time in so many steps, in the best of `rounds`
  // of them: code that runs for the first time, as when the processor was taken away while a lock
  // was held, is such a page. What touches new memory in every step does so in every round.
  StatusOr<int64_t> CountFaults(int steps, int rounds);
  float loss() const { return results_[0].scalar<float>(); }

 private:
  SteadyModel() = default;

  Graph graph_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<Callable> step_;
  std::vector<Tensor> values_, results_;
};

}  // namespace millrace::testing

#endif  // TESTS_SESSIONS_STEADY_MODEL_H_
