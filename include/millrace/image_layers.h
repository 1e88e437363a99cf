// SPDX-License-Identifier: Apache-2.0
// Layers over images [batch, height, width, channels], sequences [batch, steps, channels] and
// volumes [batch, depth, height, width, channels]: convolutions, pooling, padding. As
// millrace/layers.h says.
#ifndef MILLRACE_IMAGE_LAYERS_H_
#define MILLRACE_IMAGE_LAYERS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "millrace/core_layers.h"

namespace millrace {
namespace layers {

// A size for each of the axes of space: one number stands for all of them.
struct Sizes {
  Sizes(int64_t all) : values{all} {}                                               // NOLINT
  Sizes(std::initializer_list<int64_t> each) : values(each.begin(), each.end()) {}  // NOLINT
  std::vector<int64_t> values;
};

struct ConvOptions {
  Sizes strides = 1;
  std::string padding = "valid";  // or "same"; of Conv1D also "causal"
  Sizes dilation_rate = 1;
  int64_t groups = 1;
  ActivationFunction activation{};
  bool use_bias = true;
  Initializer kernel_initializer{};  // GlorotUniform
  Initializer bias_initializer{};    // Zeros
  Regularizer kernel_regularizer{}, bias_regularizer{}, activity_regularizer{};
  Constraint kernel_constraint{}, bias_constraint{};
  std::string name{};
};
// Variables: kernel [sizes..., channels / groups, filters], bias [filters].
LayerPtr Conv1D(int64_t filters, const Sizes& kernel_size, const ConvOptions& options = {},
                Where where = Where::current());
LayerPtr Conv2D(int64_t filters, const Sizes& kernel_size, const ConvOptions& options = {},
                Where where = Where::current());
// Of volumes, [batch, depth, rows, columns, channels].
LayerPtr Conv3D(int64_t filters, const Sizes& kernel_size, const ConvOptions& options = {},
                Where where = Where::current());

struct DepthwiseConvOptions {
  Sizes strides = 1;
  std::string padding = "valid";  // or "same"
  int64_t depth_multiplier = 1;
  Sizes dilation_rate = 1;
  ActivationFunction activation{};
  bool use_bias = true;
  Initializer depthwise_initializer{};  // GlorotUniform
  Initializer bias_initializer{};       // Zeros
  Regularizer depthwise_regularizer{}, bias_regularizer{}, activity_regularizer{};
  Constraint depthwise_constraint{}, bias_constraint{};
  std::string name{};
};
// Each channel by itself. Variables: kernel [height, width, channels, depth_multiplier], bias.
LayerPtr DepthwiseConv2D(const Sizes& kernel_size, const DepthwiseConvOptions& options = {},
                         Where where = Where::current());

struct ConvTransposeOptions {
  Sizes strides = 1;
  std::string padding = "valid";  // or "same"
  ActivationFunction activation{};
  bool use_bias = true;
  Initializer kernel_initializer{};  // GlorotUniform
  Initializer bias_initializer{};    // Zeros
  Regularizer kernel_regularizer{}, bias_regularizer{}, activity_regularizer{};
  Constraint kernel_constraint{}, bias_constraint{};
  std::string name{};
};
// What a convolution's gradient makes of its input. Variables: kernel [sizes..., filters,
// channels], bias [filters].
LayerPtr Conv2DTranspose(int64_t filters, const Sizes& kernel_size,
                         const ConvTransposeOptions& options = {}, Where where = Where::current());
// Of volumes: the way back from what Conv3D gives.
LayerPtr Conv3DTranspose(int64_t filters, const Sizes& kernel_size,
                         const ConvTransposeOptions& options = {}, Where where = Where::current());

struct PoolingOptions {
  std::optional<Sizes> strides{};  // default: the pool's size
  std::string padding = "valid";   // or "same"
  std::string name{};
};
LayerPtr MaxPooling1D(const Sizes& pool_size = 2, const PoolingOptions& options = {},
                      Where where = Where::current());
LayerPtr MaxPooling2D(const Sizes& pool_size = 2, const PoolingOptions& options = {},
                      Where where = Where::current());
// Of volumes: the largest value of each block.
LayerPtr MaxPooling3D(const Sizes& pool_size = 2, const PoolingOptions& options = {},
                      Where where = Where::current());
LayerPtr AveragePooling1D(const Sizes& pool_size = 2, const PoolingOptions& options = {},
                          Where where = Where::current());
LayerPtr AveragePooling2D(const Sizes& pool_size = 2, const PoolingOptions& options = {},
                          Where where = Where::current());
// Of volumes: the mean of each block.
LayerPtr AveragePooling3D(const Sizes& pool_size = 2, const PoolingOptions& options = {},
                          Where where = Where::current());
struct GlobalPoolingOptions {
  bool keep_dims = false;
  std::string name{};
};
// Over all places. The average of a sequence is that of the steps that count.
LayerPtr GlobalMaxPooling1D(const GlobalPoolingOptions& options = {},
                            Where where = Where::current());
LayerPtr GlobalMaxPooling2D(const GlobalPoolingOptions& options = {},
                            Where where = Where::current());
// Of volumes: the largest value of each channel.
LayerPtr GlobalMaxPooling3D(const GlobalPoolingOptions& options = {},
                            Where where = Where::current());
LayerPtr GlobalAveragePooling1D(const GlobalPoolingOptions& options = {},
                                Where where = Where::current());
LayerPtr GlobalAveragePooling2D(const GlobalPoolingOptions& options = {},
                                Where where = Where::current());
// Of volumes: the mean of each channel.
LayerPtr GlobalAveragePooling3D(const GlobalPoolingOptions& options = {},
                                Where where = Where::current());

// Before and after each axis of space: {top, bottom, left, right}, or {height, width} for the same
// on both sides, or one number for all four.
LayerPtr ZeroPadding1D(const Sizes& padding = 1, std::string name = "",
                       Where where = Where::current());
LayerPtr ZeroPadding2D(const Sizes& padding = 1, std::string name = "",
                       Where where = Where::current());
LayerPtr Cropping1D(const Sizes& cropping = 1, std::string name = "",
                    Where where = Where::current());
LayerPtr Cropping2D(const Sizes& cropping = 1, std::string name = "",
                    Where where = Where::current());
LayerPtr UpSampling1D(int64_t size = 2, std::string name = "", Where where = Where::current());
// Each pixel becomes size[0] rows of size[1] pixels.
LayerPtr UpSampling2D(const Sizes& size = 2, std::string name = "", Where where = Where::current());

}  // namespace layers
}  // namespace millrace

#endif  // MILLRACE_IMAGE_LAYERS_H_
