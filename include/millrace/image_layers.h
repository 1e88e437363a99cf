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
  std::vector<int64_t> values;  // one, or one for each axis of space
};

// Options of Conv1D, Conv2D and Conv3D, as Keras 3's.
struct ConvOptions {
  Sizes strides = 1;              // places from one application of the kernel to the next
  std::string padding = "valid";  // or "same"; of Conv1D also "causal"
  Sizes dilation_rate = 1;        // places from one element of the kernel to the next
  int64_t groups = 1;             // of channels, each with filters of its own; divides both numbers
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
// Variables: kernel [sizes..., channels / groups, filters], bias [filters].
LayerPtr Conv1D(int64_t filters, const Sizes& kernel_size, const ConvOptions& options = {},
                Where where = Where::current());
// Convolution of images, [batch, rows, columns, channels].
LayerPtr Conv2D(int64_t filters, const Sizes& kernel_size, const ConvOptions& options = {},
                Where where = Where::current());
// Of volumes, [batch, depth, rows, columns, channels].
LayerPtr Conv3D(int64_t filters, const Sizes& kernel_size, const ConvOptions& options = {},
                Where where = Where::current());

// Options of DepthwiseConv2D, as Keras 3's.
struct DepthwiseConvOptions {
  Sizes strides = 1;                    // places from one application of the kernel to the next
  std::string padding = "valid";        // or "same"
  int64_t depth_multiplier = 1;         // results for each channel
  Sizes dilation_rate = 1;              // places from one element of the kernel to the next
  ActivationFunction activation{};      // of the result, bias included
  bool use_bias = true;                 // whether there is the variable bias
  Initializer depthwise_initializer{};  // GlorotUniform
  Initializer bias_initializer{};       // Zeros
  Regularizer depthwise_regularizer{},  // loss of the kernel
      bias_regularizer{},               // loss of the bias
      activity_regularizer{};           // loss of the result
  Constraint depthwise_constraint{},    // of the kernel after each update
      bias_constraint{};                // of the bias after each update
  std::string name{};  // prefix of variables and nodes; "": the kind's in snake_case
};
// Each channel by itself. Variables: kernel [height, width, channels, depth_multiplier], bias.
LayerPtr DepthwiseConv2D(const Sizes& kernel_size, const DepthwiseConvOptions& options = {},
                         Where where = Where::current());

// Options of Conv2DTranspose and Conv3DTranspose, as Keras 3's.
struct ConvTransposeOptions {
  Sizes strides = 1;                 // places from one application of the kernel to the next
  std::string padding = "valid";     // or "same"
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
// What a convolution's gradient makes of its input. Variables: kernel [sizes..., filters,
// channels], bias [filters].
LayerPtr Conv2DTranspose(int64_t filters, const Sizes& kernel_size,
                         const ConvTransposeOptions& options = {}, Where where = Where::current());
// Of volumes: the way back from what Conv3D gives.
LayerPtr Conv3DTranspose(int64_t filters, const Sizes& kernel_size,
                         const ConvTransposeOptions& options = {}, Where where = Where::current());

// Options of max and average pooling.
struct PoolingOptions {
  std::optional<Sizes> strides{};  // default: the pool's size
  std::string padding = "valid";   // or "same"
  std::string name{};              // prefix of variables and nodes; "": the kind's in snake_case
};
// The largest value of each stretch of steps, by channel.
LayerPtr MaxPooling1D(const Sizes& pool_size = 2, const PoolingOptions& options = {},
                      Where where = Where::current());
// The largest value of each block of an image, by channel.
LayerPtr MaxPooling2D(const Sizes& pool_size = 2, const PoolingOptions& options = {},
                      Where where = Where::current());
// Of volumes: the largest value of each block.
LayerPtr MaxPooling3D(const Sizes& pool_size = 2, const PoolingOptions& options = {},
                      Where where = Where::current());
// The mean of each stretch of steps, by channel.
LayerPtr AveragePooling1D(const Sizes& pool_size = 2, const PoolingOptions& options = {},
                          Where where = Where::current());
// The mean of each block of an image, by channel.
LayerPtr AveragePooling2D(const Sizes& pool_size = 2, const PoolingOptions& options = {},
                          Where where = Where::current());
// Of volumes: the mean of each block.
LayerPtr AveragePooling3D(const Sizes& pool_size = 2, const PoolingOptions& options = {},
                          Where where = Where::current());
// Options of pooling over all places.
struct GlobalPoolingOptions {
  bool keep_dims = false;  // axes of space stay, with size 1
  std::string name{};      // prefix of variables and nodes; "": the kind's in snake_case
};
// Over all places. The average of a sequence is that of the steps that count.
LayerPtr GlobalMaxPooling1D(const GlobalPoolingOptions& options = {},
                            Where where = Where::current());
// The largest value of each channel of an image.
LayerPtr GlobalMaxPooling2D(const GlobalPoolingOptions& options = {},
                            Where where = Where::current());
// Of volumes: the largest value of each channel.
LayerPtr GlobalMaxPooling3D(const GlobalPoolingOptions& options = {},
                            Where where = Where::current());
// The mean of each feature over the steps that the mask says count.
LayerPtr GlobalAveragePooling1D(const GlobalPoolingOptions& options = {},
                                Where where = Where::current());
// The mean of each channel of an image.
LayerPtr GlobalAveragePooling2D(const GlobalPoolingOptions& options = {},
                                Where where = Where::current());
// Of volumes: the mean of each channel.
LayerPtr GlobalAveragePooling3D(const GlobalPoolingOptions& options = {},
                                Where where = Where::current());

// Before and after each axis of space: {top, bottom, left, right}, or {height, width} for the same
// on both sides, or one number for all four.
LayerPtr ZeroPadding1D(const Sizes& padding = 1, std::string name = "",
                       Where where = Where::current());
// Zeros around images.
LayerPtr ZeroPadding2D(const Sizes& padding = 1, std::string name = "",
                       Where where = Where::current());
// Steps without those at the beginning and the end.
LayerPtr Cropping1D(const Sizes& cropping = 1, std::string name = "",
                    Where where = Where::current());
// Images without their borders.
LayerPtr Cropping2D(const Sizes& cropping = 1, std::string name = "",
                    Where where = Where::current());
// Each step `size` times, one behind the other.
LayerPtr UpSampling1D(int64_t size = 2, std::string name = "", Where where = Where::current());
// Each pixel becomes size[0] rows of size[1] pixels.
LayerPtr UpSampling2D(const Sizes& size = 2, std::string name = "", Where where = Where::current());

}  // namespace layers
}  // namespace millrace

#endif  // MILLRACE_IMAGE_LAYERS_H_
