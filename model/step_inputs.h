// SPDX-License-Identifier: Apache-2.0
// What a step is made of, and what it is fed with.
#ifndef MODEL_STEP_INPUTS_H_
#define MODEL_STEP_INPUTS_H_

#include <vector>

#include "millrace/graph.h"
#include "millrace/model.h"
#include "millrace/tensor.h"

namespace millrace::model {

enum class Kind { kTrain, kTest, kPredict };

// What a step is fed with. `sample_weight` may be not initialised.
struct Batch {
  std::vector<Tensor> x;
  std::vector<Tensor> y;  // of each output; empty: none
  Tensor sample_weight;
};

// Where the nodes of a function get their samples: placeholders, or a data set's next ones.
struct StepInputs {
  std::vector<Output> x;
  std::vector<Output> y;  // of each output; empty: none
  Output sample_weight;   // not valid: none
  // Of data that come in parts: those of this process' replicas, instead of the above, and how many
  // samples the global batch has, a float scalar.
  std::vector<StepInputs> parts{};
  Output rows{};
};

const char* NameOf(Kind kind);
// Floats of other sizes as floats; all else as it is.
Output InFloats(const Scope& scope, const Output& x);
// How many samples a batch has, a float scalar.
Output CountSamples(const Scope& scope, const Output& x);
// Empty for one that has no value.
std::vector<Tensor> LabelsOf(const Samples& y);
// The values that a function of this kind is fed with, in order.
std::vector<Tensor> FeedsOf(Kind kind, const Batch& batch);

}  // namespace millrace::model

#endif  // MODEL_STEP_INPUTS_H_
