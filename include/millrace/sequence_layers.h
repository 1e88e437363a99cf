// SPDX-License-Identifier: Apache-2.0
// Layers over sequences [batch, steps, features]: recurrent ones, attention, positions. As
// millrace/layers.h says.
//
// Steps that a mask says do not count leave states as they are and repeat the output before them.
#ifndef MILLRACE_SEQUENCE_LAYERS_H_
#define MILLRACE_SEQUENCE_LAYERS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "millrace/core_layers.h"

namespace millrace {
namespace layers {

// A layer that goes over the steps one after the other. Further inputs are initial states
// [batch, units]: one, of LSTM two (its output and its cell's). Steps of a known number up to
// `kUnrolled` become nodes of their own, more of them or an unknown number a loop.
class RecurrentLayer : public Layer {
 public:
  static constexpr int64_t kUnrolled = 16;  // steps

  // The states after the last step of the last call.
  const std::vector<Output>& final_states() const { return final_states_; }
  // Makes the states of a stateful layer zero. Not valid if it has none.
  Operation ResetStates(const Scope& scope, Where where = Where::current()) const;
  // Another one of the same options that goes over the steps the other way round.
  virtual std::unique_ptr<RecurrentLayer> Reversed() const = 0;
  virtual bool returns_sequences() const = 0;            // RecurrentOptions::return_sequences
  virtual void set_zero_output_for_mask(bool zero) = 0;  // RecurrentOptions::zero_output_for_mask

 protected:
  using Layer::Layer;
  std::vector<Output> final_states_;  // of final_states()
  std::vector<Variable> kept_;        // states of a stateful layer between batches
};
using RecurrentPtr = std::unique_ptr<RecurrentLayer>;  // for Bidirectional, or any model

// Options of SimpleRnn, Lstm and Gru, as Keras 3's.
struct RecurrentOptions {
  ActivationFunction activation = "tanh";               // of the output, and of LSTM's candidate
  ActivationFunction recurrent_activation = "sigmoid";  // of gates
  bool use_bias = true;                                 // whether there is the variable bias
  Initializer kernel_initializer{};                     // GlorotUniform
  Initializer recurrent_initializer{};                  // Orthogonal
  Initializer bias_initializer{};                       // Zeros
  bool unit_forget_bias = true;                         // of LSTM: ones for the forget gate
  bool reset_after = true;             // of GRU: after the product with the recurrent kernel
  Regularizer kernel_regularizer{},    // loss of the kernel of inputs
      recurrent_regularizer{},         // loss of the kernel of states
      bias_regularizer{};              // loss of the bias
  Regularizer activity_regularizer{};  // loss of the result
  Constraint kernel_constraint{},      // of the kernel of inputs after each update
      recurrent_constraint{},          // of the kernel of states after each update
      bias_constraint{};               // of the bias after each update
  // Shares of what goes in, and of the state between steps, that are zero in training: drawn once
  // for all steps (and all gates).
  double dropout = 0,                 // of what goes in
      recurrent_dropout = 0;          // of the state
  Seed seed{};                        // of dropout
  bool return_sequences = false;      // [batch, steps, units], not the last step alone
  bool go_backwards = false;          // from the last step, whose output then comes first
  bool stateful = false;              // begins where the batch before ended; its size must be known
  bool unroll = false;                // however many steps
  bool zero_output_for_mask = false;  // where a step does not count
  std::string name{};                 // prefix of variables and nodes; "": the kind's in snake_case
};
// Variables are those of a cell: "lstm_cell/kernel", recurrent_kernel, bias.
RecurrentPtr SimpleRnn(int64_t units, const RecurrentOptions& options = {},
                       Where where = Where::current());
// Long short-term memory: states are the output and the cell, each [batch, units].
RecurrentPtr Lstm(int64_t units, const RecurrentOptions& options = {},
                  Where where = Where::current());
// Gated recurrent unit: one state, [batch, units].
RecurrentPtr Gru(int64_t units, const RecurrentOptions& options = {},
                 Where where = Where::current());

enum class MergeMode { kConcatenate, kSum, kMultiply, kAverage };  // how two directions become one
// Options of Bidirectional, as Keras 3's.
struct BidirectionalOptions {
  MergeMode merge_mode =
      MergeMode::kConcatenate;  // of both outputs; kConcatenate: 2 units features
  std::string name{};           // prefix of variables and nodes; "": the kind's in snake_case
};
// A layer and its reverse over the same steps. Their names are "forward_" and "backward_" and that
// of the layer. In sequences that they return, steps that do not count are zero.
LayerPtr Bidirectional(RecurrentPtr layer, const BidirectionalOptions& options = {},
                       Where where = Where::current());

// The layer of each step by itself, with the same weights.
LayerPtr TimeDistributed(std::shared_ptr<Layer> layer, std::string name = "",
                         Where where = Where::current());

// Options of MultiHeadAttention, as Keras 3's.
struct MultiHeadAttentionOptions {
  int64_t value_dim = 0;             // 0: key_dim
  int64_t output_dim = 0;            // 0: the features of the query
  double dropout = 0;                // of attention scores
  bool use_bias = true;              // whether there is the variable bias
  bool causal = false;               // a step sees itself and those before it
  Initializer kernel_initializer{};  // GlorotUniform
  Initializer bias_initializer{};    // Zeros
  Regularizer kernel_regularizer{},  // loss of each kernel
      bias_regularizer{},            // loss of each bias
      activity_regularizer{};        // loss of the result
  Constraint kernel_constraint{},    // of each kernel after each update
      bias_constraint{};             // of each bias after each update
  Seed seed{};                       // of dropout
  std::string name{};                // prefix of variables and nodes; "": the kind's in snake_case
};
// Inputs: query, value and (default: value) key. Of one input, that attends to itself. Steps whose
// mask says so are not attended to; a step of the query that is masked attends to all of them alike
// (with dropout: to none). Variables: query/kernel, query/bias, key/, value/,
// attention_output/.
LayerPtr MultiHeadAttention(int64_t num_heads, int64_t key_dim,
                            const MultiHeadAttentionOptions& options = {},
                            Where where = Where::current());

// Options of PositionEmbedding.
struct PositionEmbeddingOptions {
  Initializer initializer{};  // GlorotUniform
  std::string name{};         // prefix of variables and nodes; "": the kind's in snake_case
};
// A vector for each step, broadcast over the batch, as keras_hub's: add it to the sequence.
// Variable: embeddings [sequence_length, features].
LayerPtr PositionEmbedding(int64_t sequence_length, const PositionEmbeddingOptions& options = {},
                           Where where = Where::current());
// Sines and cosines of the step, of wavelengths up to max_wavelength.
LayerPtr SinePositionEncoding(double max_wavelength = 10000, std::string name = "",
                              Where where = Where::current());

}  // namespace layers
}  // namespace millrace

#endif  // MILLRACE_SEQUENCE_LAYERS_H_
