// SPDX-License-Identifier: Apache-2.0
// Convolutions of images: what the ops accept, and the sizes that follow. For the kernels of all
// devices; pure.
#ifndef KERNELS_NN_CONV_PLAN_H_
#define KERNELS_NN_CONV_PLAN_H_

#include <cstdint>

#include "kernels/nn/window_plan.h"
#include "millrace/shape.h"
#include "millrace/status.h"

namespace millrace {

// The three passes of a convolution; each takes two operands and makes the third.
enum class ConvPass {
  kForward,  // images, filter -> outputs
  kInput,    // filter, gradient of the outputs -> gradient of the images
  kFilter,   // images, gradient of the outputs -> gradient of the filter
};

// A convolution of NHWC images with an HWIO filter. With groups > 1 the channels fall into
// as many parts, which do not see each other.
struct ConvGeometry {
  int64_t batch = 0, channels = 0, out_channels = 0, groups = 1;
  WindowAxis rows, cols;

  int64_t group_channels() const { return channels / groups; }
  int64_t group_outputs() const { return out_channels / groups; }
  int64_t taps() const { return rows.size * cols.size * group_channels(); }
  int64_t image() const { return rows.input * cols.input * channels; }
  int64_t out_image() const { return rows.output * cols.output * out_channels; }
  int64_t filter() const { return taps() * out_channels; }
  Shape InputShape() const { return {batch, rows.input, cols.input, channels}; }
  Shape FilterShape() const { return {rows.size, cols.size, group_channels(), out_channels}; }
  Shape OutputShape() const { return {batch, rows.output, cols.output, out_channels}; }

  friend bool operator==(const ConvGeometry&, const ConvGeometry&) = default;
};

struct ConvSizes {
  ConvGeometry geometry;
  Shape outputs;  // in the order of the node's data format
};
// Conv2D, DepthwiseConv2dNative (`depthwise`) and their gradients, of whichever pass. `images` in
// the order of the node's data format. InvalidArgument for what does not go together.
StatusOr<ConvSizes> PlanConv(const WindowAttrs& attrs, bool depthwise, const Shape& images,
                             const Shape& filter);
// InvalidArgument unless the gradient has the shape of the outputs that were planned.
Status CheckConvGradient(const Shape& outputs, const Shape& gradient);

}  // namespace millrace

#endif  // KERNELS_NN_CONV_PLAN_H_
