// SPDX-License-Identifier: Apache-2.0
// Layers of every kind of model: how they are put together, dense ones, dropout, shapes, merges. As
// millrace/layers.h says.
#ifndef MILLRACE_CORE_LAYERS_H_
#define MILLRACE_CORE_LAYERS_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include "millrace/initializers.h"
#include "millrace/layer.h"
#include "millrace/layer_parts.h"

namespace millrace {
namespace layers {

// Layers are made for one owner, and may be shared: a layer that stands twice in a model has its
// weights once.
using LayerPtr = std::unique_ptr<Layer>;
using LayerList = std::vector<std::shared_ptr<Layer>>;  // layers that a model shares in
using initializers::Initializer;
using initializers::Seed;
using Where = std::source_location;  // line of the caller, which errors name

// ---- Models of layers ---------------------------------------------------------------

// One after the other. Those without a name are named when this is made: "dense", "dense_1".
LayerPtr Sequential(LayerList layers, std::string name = "", Where where = Where::current());
// A function over a pass that may use `layers`, which this owns and names as Sequential does, in
// any way: branches, several inputs, a layer twice.
using PassFunction = std::function<Output(Pass& pass, std::span<const Output> inputs)>;
// Model of one output that `function` makes of its inputs.
LayerPtr Functional(LayerList layers, PassFunction function, std::string name = "",
                    Where where = Where::current());
// The same with several outputs, of which each has a name: that of its losses and metrics
// (CompileOptions::losses). The function returns as many; in another model the layer makes the
// first.
using OutputsFunction =
    std::function<std::vector<Output>(Pass& pass, std::span<const Output> inputs)>;
// Model of several outputs, named by `outputs` in the function's order.
LayerPtr Functional(LayerList layers, std::vector<std::string> outputs, OutputsFunction function,
                    std::string name = "", Where where = Where::current());
// The same without layers.
LayerPtr Lambda(PassFunction function, std::string name = "", Where where = Where::current());

// Form of the table that Summary prints.
struct SummaryOptions {
  int width = 88;               // of the table, in columns
  bool expand_nested = false;   // layers of layers too
  bool show_trainable = false;  // a column for it
};
// A table of layers, shapes and numbers of parameters as Keras prints it; a layer that was not
// called yet has none.
std::string Summary(const Layer& model, const SummaryOptions& options = {});

// ---- Core ---------------------------------------------------------------------------

struct DenseOptions {
  ActivationFunction activation{};   // of the result, bias included
  bool use_bias = true;              // whether there is the variable bias
  Initializer kernel_initializer{};  // GlorotUniform
  Initializer bias_initializer{};    // Zeros
  Regularizer kernel_regularizer{},  // loss of the kernel
      bias_regularizer{},            // loss of the bias
      activity_regularizer{};        // loss of the result
  Constraint kernel_constraint{},    // of the kernel after each update
      bias_constraint{};             // of the bias after each update
  std::string name{};                // prefix of variables and nodes; "": the kind's in snake_case
};
// [..., features] to [..., units]. Variables: kernel [features, units], bias [units].
LayerPtr Dense(int64_t units, const DenseOptions& options = {}, Where where = Where::current());

// Options of Embedding, as Keras 3's.
struct EmbeddingOptions {
  Initializer embeddings_initializer{};  // RandomUniform
  Regularizer embeddings_regularizer{},  // loss of the whole table
      activity_regularizer{};            // loss of the result
  Constraint embeddings_constraint{};    // of the table after each update
  bool mask_zero = false;                // number 0 stands for a step that does not count
  // Row i of the table is not that of number i but HashedRows' (millrace/partitioners.h), whether
  // the table is cut or not: numbers that come often, such as the first of a vocabulary, lie in all
  // parts alike. Files have the table as it lies.
  bool by_hash = false;
  std::string name{};  // prefix of variables and nodes; "": the kind's in snake_case
};
// Numbers below input_dim, of any shape, to rows of a table: a last axis of output_dim more. Of
// numbers of more than 32 bits, uint32 and double no bit is lost: what is no row is an error of the
// step. Its gradient is the rows that were taken (millrace/sparse_gradients.h). Variable:
// embeddings, which StrategyOptions::variable_partitioner cuts.
LayerPtr Embedding(int64_t input_dim, int64_t output_dim, const EmbeddingOptions& options = {},
                   Where where = Where::current());

// Steps all of whose features are mask_value do not count, and become zeros.
LayerPtr Masking(double mask_value = 0, std::string name = "", Where where = Where::current());
// A function of each input by itself, without variables.
LayerPtr Activation(ActivationFunction activation, std::string name = "",
                    Where where = Where::current());
// The input as it is.
LayerPtr Identity(std::string name = "", Where where = Where::current());

// Parameters of Relu, as Keras 3's.
struct ReluOptions {
  std::optional<double> max_value{};  // results are cut off here; empty: never
  double negative_slope = 0,          // factor below the threshold, of the distance to it
      threshold = 0;                  // inputs above it stay as they are
  std::string name{};                 // prefix of variables and nodes; "": the kind's in snake_case
};
// Values above the threshold, cut off at max_value.
LayerPtr Relu(const ReluOptions& options = {}, Where where = Where::current());
// Values below zero times `negative_slope`.
LayerPtr LeakyRelu(double negative_slope = 0.3, std::string name = "",
                   Where where = Where::current());
// alpha (exp(x) - 1) below zero, x elsewhere.
LayerPtr Elu(double alpha = 1, std::string name = "", Where where = Where::current());
// Shares of 1 along an axis; a negative one counts from the end.
LayerPtr Softmax(int axis = -1, std::string name = "", Where where = Where::current());
// Options of the slopes of Prelu.
struct PreluOptions {
  Initializer alpha_initializer{};  // Zeros
  Regularizer alpha_regularizer{};  // loss of the slopes
  Constraint alpha_constraint{};    // of the slopes after each update
  std::vector<int> shared_axes{};   // counted from 1, the first after the batch
  std::string name{};               // prefix of variables and nodes; "": the kind's in snake_case
};
// A slope for each element of a sample: alpha.
LayerPtr Prelu(const PreluOptions& options = {}, Where where = Where::current());

// ---- Regularization: nothing where a pass does not train ----------------------------

struct DropoutOptions {
  // Sizes of what is drawn, broadcast to the input's; -1: the input's. Empty: as the input.
  std::vector<int64_t> noise_shape{};
  Seed seed{};         // of what is drawn; not set: see Initializer
  std::string name{};  // prefix of variables and nodes; "": the kind's in snake_case
};
// Sets a share `rate` of all elements to zero and makes up for it in the others.
LayerPtr Dropout(double rate, const DropoutOptions& options = {}, Where where = Where::current());
// Options of SpatialDropout and Gaussian layers.
struct NoiseOptions {
  Seed seed{};         // of what is drawn; not set: see Initializer
  std::string name{};  // prefix of variables and nodes; "": the kind's in snake_case
};
// Whole features of a sequence, channels of an image.
LayerPtr SpatialDropout1D(double rate, const NoiseOptions& options = {},
                          Where where = Where::current());
// Whole channels of images are zero with probability `rate`, the others scaled up.
LayerPtr SpatialDropout2D(double rate, const NoiseOptions& options = {},
                          Where where = Where::current());
// Normal noise of mean 0 and this deviation is added.
LayerPtr GaussianNoise(double stddev, const NoiseOptions& options = {},
                       Where where = Where::current());
// Factors of mean 1 and deviation sqrt(rate / (1 - rate)) are drawn for each element.
LayerPtr GaussianDropout(double rate, const NoiseOptions& options = {},
                         Where where = Where::current());
// The input as it is, with a loss of l1 sum |x| + l2 sum x^2 over the batch's size.
LayerPtr ActivityRegularization(double l1, double l2, std::string name = "",
                                Where where = Where::current());

// ---- Shapes -------------------------------------------------------------------------

LayerPtr Flatten(std::string name = "", Where where = Where::current());
// Without the batch's axis; one size may be -1.
LayerPtr Reshape(std::vector<int64_t> target_shape, std::string name = "",
                 Where where = Where::current());
// Axes counted from 1, the first after the batch.
LayerPtr Permute(std::vector<int> dims, std::string name = "", Where where = Where::current());
// [batch, features] to [batch, n, features].
LayerPtr RepeatVector(int64_t n, std::string name = "", Where where = Where::current());

// ---- Merges of inputs of one shape, but for sizes of one, which are broadcast -------

LayerPtr Add(std::string name = "", Where where = Where::current());
// The first of two inputs less the second.
LayerPtr Subtract(std::string name = "", Where where = Where::current());
// The product of the inputs, element by element.
LayerPtr Multiply(std::string name = "", Where where = Where::current());
// The mean of the inputs, element by element.
LayerPtr Average(std::string name = "", Where where = Where::current());
// The largest of the inputs, element by element.
LayerPtr Maximum(std::string name = "", Where where = Where::current());
// The smallest of the inputs, element by element.
LayerPtr Minimum(std::string name = "", Where where = Where::current());
// The inputs one behind the other along an axis; -1: the last.
LayerPtr Concatenate(int axis = -1, std::string name = "", Where where = Where::current());
// Options of Dot.
struct DotOptions {
  bool normalize = false;  // inputs have length 1 along their axis first: the cosine
  std::string name{};      // prefix of variables and nodes; "": the kind's in snake_case
};
// Sums of products of two inputs over an axis of each.
LayerPtr Dot(std::array<int, 2> axes, const DotOptions& options = {},
             Where where = Where::current());

}  // namespace layers
}  // namespace millrace

#endif  // MILLRACE_CORE_LAYERS_H_
