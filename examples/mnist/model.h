// SPDX-License-Identifier: Apache-2.0
// The networks of mnist_replica.
#ifndef EXAMPLES_MNIST_MODEL_H_
#define EXAMPLES_MNIST_MODEL_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "millrace/digits.h"
#include "millrace/graph.h"
#include "millrace/session.h"
#include "millrace/variables.h"

namespace millrace::mnist {

struct Model {
  Output images;         // placeholder, float [?, 784]
  Output labels;         // placeholder, float [?, 10], one-hot
  Output cross_entropy;  // scalar: the sum over the batch, as TensorFlow's script has it
  Output correct;        // int64 scalar: how many of the batch are classified correctly
};

// One hidden layer of `hidden_units` ReLUs ("hid_w", "hid_b", "sm_w", "sm_b").
Model BuildMlp(const Scope& scope, int hidden_units);
// Two 5x5 convolutions (32 and 64 channels) with 2x2 max pooling, a dense layer of 512.
Model BuildCnn(const Scope& scope);

// One step of whatever session there is.
using StepFunction = std::function<StatusOr<std::vector<Tensor>>(std::span<const Feed> feeds,
                                                                 std::span<const Output> fetches)>;
struct Score {
  double cross_entropy = 0;  // the sum over all examples
  int64_t correct = 0;
};
// In slices that bound the memory of a step.
StatusOr<Score> ScoreOf(const Model& model, const Examples& examples, const StepFunction& run);

}  // namespace millrace::mnist

#endif  // EXAMPLES_MNIST_MODEL_H_
