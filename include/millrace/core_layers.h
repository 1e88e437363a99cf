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
using LayerList = std::vector<std::shared_ptr<Layer>>;
using initializers::Initializer;
using initializers::Seed;
using Where = std::source_location;

// ---- Models of layers ---------------------------------------------------------------

// One after the other. Those without a name are named when this is made: "dense", "dense_1".
LayerPtr Sequential(LayerList layers, std::string name = "", Where where = Where::current());
// A function over a pass that may use `layers`, which this owns and names as Sequential does, in
// any way: branches, several inputs, a layer twice.
using PassFunction = std::function<Output(Pass& pass, std::span<const Output> inputs)>;
LayerPtr Functional(LayerList layers, PassFunction function, std::string name = "",
                    Where where = Where::current());
// The same with several outputs, of which each has a name: that of its losses and metrics
// (CompileOptions::losses). The function returns as many; in another model the layer makes the
// first.
using OutputsFunction =
    std::function<std::vector<Output>(Pass& pass, std::span<const Output> inputs)>;
LayerPtr Functional(LayerList layers, std::vector<std::string> outputs, OutputsFunction function,
                    std::string name = "", Where where = Where::current());
// The same without layers.
LayerPtr Lambda(PassFunction function, std::string name = "", Where where = Where::current());

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
  ActivationFunction activation{};
  bool use_bias = true;
  Initializer kernel_initializer{};  // GlorotUniform
  Initializer bias_initializer{};    // Zeros
  Regularizer kernel_regularizer{}, bias_regularizer{}, activity_regularizer{};
  Constraint kernel_constraint{}, bias_constraint{};
  std::string name{};
};
// [..., features] to [..., units]. Variables: kernel [features, units], bias [units].
LayerPtr Dense(int64_t units, const DenseOptions& options = {}, Where where = Where::current());

struct EmbeddingOptions {
  Initializer embeddings_initializer{};  // RandomUniform
  Regularizer embeddings_regularizer{}, activity_regularizer{};
  Constraint embeddings_constraint{};
  bool mask_zero = false;  // number 0 stands for a step that does not count
  std::string name{};
};
// Numbers below input_dim, of any shape, to rows of a table: a last axis of output_dim more. Its
// gradient is the rows that were taken (millrace/sparse_gradients.h). Variable: embeddings.
LayerPtr Embedding(int64_t input_dim, int64_t output_dim, const EmbeddingOptions& options = {},
                   Where where = Where::current());

// Steps all of whose features are mask_value do not count, and become zeros.
LayerPtr Masking(double mask_value = 0, std::string name = "", Where where = Where::current());
LayerPtr Activation(ActivationFunction activation, std::string name = "",
                    Where where = Where::current());
LayerPtr Identity(std::string name = "", Where where = Where::current());

struct ReluOptions {
  std::optional<double> max_value{};
  double negative_slope = 0, threshold = 0;
  std::string name{};
};
LayerPtr Relu(const ReluOptions& options = {}, Where where = Where::current());
LayerPtr LeakyRelu(double negative_slope = 0.3, std::string name = "",
                   Where where = Where::current());
LayerPtr Elu(double alpha = 1, std::string name = "", Where where = Where::current());
LayerPtr Softmax(int axis = -1, std::string name = "", Where where = Where::current());
struct PreluOptions {
  Initializer alpha_initializer{};  // Zeros
  Regularizer alpha_regularizer{};
  Constraint alpha_constraint{};
  std::vector<int> shared_axes{};  // counted from 1, the first after the batch
  std::string name{};
};
// A slope for each element of a sample: alpha.
LayerPtr Prelu(const PreluOptions& options = {}, Where where = Where::current());

// ---- Regularization: nothing where a pass does not train ----------------------------

struct DropoutOptions {
  // Sizes of what is drawn, broadcast to the input's; -1: the input's. Empty: as the input.
  std::vector<int64_t> noise_shape{};
  Seed seed{};
  std::string name{};
};
// Sets a share `rate` of all elements to zero and makes up for it in the others.
LayerPtr Dropout(double rate, const DropoutOptions& options = {}, Where where = Where::current());
struct NoiseOptions {
  Seed seed{};
  std::string name{};
};
// Whole features of a sequence, channels of an image.
LayerPtr SpatialDropout1D(double rate, const NoiseOptions& options = {},
                          Where where = Where::current());
LayerPtr SpatialDropout2D(double rate, const NoiseOptions& options = {},
                          Where where = Where::current());
LayerPtr GaussianNoise(double stddev, const NoiseOptions& options = {},
                       Where where = Where::current());
LayerPtr GaussianDropout(double rate, const NoiseOptions& options = {},
                         Where where = Where::current());
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
LayerPtr Subtract(std::string name = "", Where where = Where::current());
LayerPtr Multiply(std::string name = "", Where where = Where::current());
LayerPtr Average(std::string name = "", Where where = Where::current());
LayerPtr Maximum(std::string name = "", Where where = Where::current());
LayerPtr Minimum(std::string name = "", Where where = Where::current());
LayerPtr Concatenate(int axis = -1, std::string name = "", Where where = Where::current());
struct DotOptions {
  bool normalize = false;
  std::string name{};
};
// Sums of products of two inputs over an axis of each.
LayerPtr Dot(std::array<int, 2> axes, const DotOptions& options = {},
             Where where = Where::current());

}  // namespace layers
}  // namespace millrace

#endif  // MILLRACE_CORE_LAYERS_H_
