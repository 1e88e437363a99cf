// SPDX-License-Identifier: Apache-2.0
// Windows that slide over images: the geometry shared by convolutions and pools, on all devices.
#ifndef KERNELS_NN_WINDOW_PLAN_H_
#define KERNELS_NN_WINDOW_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/kernel.h"
#include "millrace/shape.h"
#include "millrace/status.h"

namespace millrace {

// One spatial axis: output o sees inputs o * stride - pad_before + t * dilation for t in
// [0, size), where they exist.
struct WindowAxis {
  int64_t input = 0, size = 0, stride = 1, dilation = 1;
  int64_t output = 0, pad_before = 0;

  friend bool operator==(const WindowAxis&, const WindowAxis&) = default;
};

// The attributes strides, dilations, padding, explicit_paddings and data_format of a node.
// Whatever the data format, axes are counted as in NHWC here: 1 is the height.
class WindowAttrs {
 public:
  // Records an error in `c` if an attribute is not valid.
  explicit WindowAttrs(KernelConstruction& c);

  // The same with other strides, in the order of the node's data format. InvalidArgument unless
  // there are 4 positive ones, Unimplemented for one over the batch.
  StatusOr<WindowAttrs> WithStrides(std::vector<int64_t> strides) const;

  // The axis `height` (1) or width (2) for an input of `input` and a window of `size`.
  // InvalidArgument if the output size would be negative.
  StatusOr<WindowAxis> Axis(int axis, int64_t input, int64_t size) const;
  int64_t stride(int axis) const { return strides_[axis]; }
  // True for NCHW.
  bool channels_first() const { return channels_first_; }

 private:
  std::vector<int64_t> strides_, dilations_, explicit_paddings_;
  std::string padding_;
  bool channels_first_ = false;
};

// `per_axis` values (1 or 2) for each of four axes, from the order NCHW to NHWC.
void ChannelsLast(std::vector<int64_t>* values, int per_axis = 1);
// The shape of the same images with their channels last, or first. `shape` has rank 4.
Shape WithChannelsLast(const Shape& shape);
Shape WithChannelsFirst(const Shape& shape);

}  // namespace millrace

#endif  // KERNELS_NN_WINDOW_PLAN_H_
