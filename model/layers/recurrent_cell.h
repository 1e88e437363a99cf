// SPDX-License-Identifier: Apache-2.0
// What one step of a recurrent layer computes.
#ifndef MODEL_LAYERS_RECURRENT_CELL_H_
#define MODEL_LAYERS_RECURRENT_CELL_H_

#include <memory>
#include <string>
#include <vector>

#include "millrace/sequence_layers.h"

namespace millrace::layers {

// Of a kind of cell, for one call: its weights are those of the layer.
class RecurrentCell {
 public:
  struct Weights {
    Output kernel, recurrent, bias;  // bias: not valid without one
  };
  virtual ~RecurrentCell() = default;
  virtual const char* layer_kind() const = 0;
  virtual std::string prefix() const = 0;  // of the names of weights
  virtual int gates() const = 0;
  virtual int states() const { return 1; }
  virtual bool has_two_biases() const { return false; }
  virtual Initializer BiasInitializer() const = 0;
  // The states after a step, the output first. `x`: the step's input times the kernel, with the
  // bias of inputs, [batch, gates * units]. `h`: states[0] after dropout.
  virtual std::vector<Output> Step(const Scope& scope, const Weights& weights, const Output& x,
                                   const Output& h, const std::vector<Output>& states) const = 0;
};

std::unique_ptr<RecurrentCell> SimpleRnnCell(int64_t units, const RecurrentOptions& options);
std::unique_ptr<RecurrentCell> LstmCell(int64_t units, const RecurrentOptions& options);
std::unique_ptr<RecurrentCell> GruCell(int64_t units, const RecurrentOptions& options);

}  // namespace millrace::layers

#endif  // MODEL_LAYERS_RECURRENT_CELL_H_
