// SPDX-License-Identifier: Apache-2.0
#include "kernels/nn/window_plan.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"

namespace millrace {

namespace {
// Of every size, stride and padding, as TensorFlow has it: products of two fit, and libraries take
// them as int.
constexpr int64_t kMost = INT32_MAX;

// With the classes that TensorFlow's kernels on CPUs have for it.
Status NotOverTheBatch(const std::string& op, bool channels_first) {
  if (op.find("Pool") != std::string::npos) {
    constexpr std::string_view kText = "Pooling is not yet supported on the batch dimension.";
    return channels_first ? errors::InvalidArgument(kText) : errors::Unimplemented(kText);
  }
  constexpr std::string_view kText =
      "Current implementation does not yet support strides and dilations in the batch dimension.";
  const bool depthwise = op.starts_with("DepthwiseConv2d");
  return depthwise ? errors::InvalidArgument(kText) : errors::Unimplemented(kText);
}
}  // namespace

WindowAttrs::WindowAttrs(KernelConstruction& c)
    : strides_(c.attrs().GetOr<std::vector<int64_t>>("strides", {1, 1, 1, 1})),
      dilations_(c.attrs().GetOr<std::vector<int64_t>>("dilations", {1, 1, 1, 1})),
      explicit_paddings_(c.attrs().GetOr<std::vector<int64_t>>("explicit_paddings", {})),
      padding_(c.attr<std::string>("padding")) {
  const std::string format = c.attrs().GetOr<std::string>("data_format", "NHWC");
  if (format != "NHWC" && format != "NCHW") {
    c.SetError(errors::Unimplemented(c.def().name(), " is not computed for data_format ", format));
  }
  if (dilations_.empty()) dilations_ = {1, 1, 1, 1};
  if (strides_.size() != 4 || dilations_.size() != 4) {
    c.SetError(errors::InvalidArgument("strides and dilations must have 4 elements"));
    strides_ = dilations_ = {1, 1, 1, 1};
  }
  for (int i = 0; i < 4; ++i) {
    if (strides_[i] < 1 || strides_[i] > kMost || dilations_[i] < 1 || dilations_[i] > kMost) {
      c.SetError(errors::InvalidArgument("strides and dilations must be positive, and at most ",
                                         kMost, ", got ", strides_[i], " and ", dilations_[i]));
      strides_[i] = dilations_[i] = 1;
    }
  }
  channels_first_ = format == "NCHW";
  if (channels_first_) {
    ChannelsLast(&strides_);
    ChannelsLast(&dilations_);
    if (explicit_paddings_.size() == 8) ChannelsLast(&explicit_paddings_, 2);
  }
  for (const int64_t padding : explicit_paddings_) {
    if (padding >= 0 && padding <= kMost) continue;
    c.SetError(errors::InvalidArgument("All elements of explicit_paddings must be in [0, ", kMost,
                                       "], got ", padding));
  }
  if (strides_[0] != 1 || dilations_[0] != 1) {
    c.SetError(NotOverTheBatch(c.def().name(), channels_first_));
  }
  if (padding_ == "EXPLICIT" && explicit_paddings_.size() != 8) {
    c.SetError(errors::InvalidArgument("explicit_paddings must have 8 elements, got ",
                                       explicit_paddings_.size()));
    explicit_paddings_.assign(8, 0);
  }
  for (const int i : {0, 1, 6, 7}) {
    if (padding_ == "EXPLICIT" && explicit_paddings_[i] != 0) {
      c.SetError(errors::InvalidArgument("Nonzero explicit padding in the batch or depth ",
                                         "dimensions is not supported"));
    }
  }
}

StatusOr<WindowAttrs> WindowAttrs::WithStrides(std::vector<int64_t> strides) const {
  if (strides.size() != 4) {
    return errors::InvalidArgument("Sliding window stride field must specify 4 dimensions, got ",
                                   strides.size());
  }
  for (const int64_t stride : strides) {
    if (stride < 1) return errors::InvalidArgument("Stride must be > 0, but got ", stride);
    if (stride > kMost) {
      return errors::InvalidArgument("Stride must be ", kMost, " at most, but got ", stride);
    }
  }
  if (strides[0] != 1) {
    return errors::Unimplemented("Pooling is not yet supported on the batch dimension.");
  }
  WindowAttrs other = *this;
  other.strides_ = std::move(strides);
  if (channels_first_) ChannelsLast(&other.strides_);
  return other;
}

StatusOr<WindowAxis> WindowAttrs::Axis(int axis, int64_t input, int64_t size) const {
  if (input > kMost || size > kMost) {
    return errors::InvalidArgument("images and windows may have ", kMost,
                                   " rows and columns at most, got ", input, " and ", size);
  }
  WindowAxis a{input, size, strides_[axis], dilations_[axis]};
  const int64_t effective = (size - 1) * a.dilation + 1;
  if (padding_ == "SAME") {
    a.output = (input + a.stride - 1) / a.stride;
    a.pad_before = std::max<int64_t>(0, (a.output - 1) * a.stride + effective - input) / 2;
    return a;
  }
  int64_t padded = input;
  if (padding_ == "EXPLICIT") {
    a.pad_before = explicit_paddings_[2 * axis];
    padded += a.pad_before + explicit_paddings_[2 * axis + 1];
  }
  // Cut towards zero: a window that is too large by less than a stride has no output.
  a.output = (padded - effective + a.stride) / a.stride;
  if (a.output < 0) {
    return errors::InvalidArgument("Computed output size would be negative: input size ", input,
                                   ", effective filter size ", effective, ", stride ", a.stride);
  }
  if (a.output > kMost) {
    return errors::InvalidArgument("Computed output size would be too large: ", a.output);
  }
  return a;
}

void ChannelsLast(std::vector<int64_t>* values, int per_axis) {
  std::rotate(values->begin() + per_axis, values->begin() + 2 * per_axis, values->end());
}
Shape WithChannelsLast(const Shape& s) { return {s.dim(0), s.dim(2), s.dim(3), s.dim(1)}; }
Shape WithChannelsFirst(const Shape& s) { return {s.dim(0), s.dim(3), s.dim(1), s.dim(2)}; }

}  // namespace millrace
