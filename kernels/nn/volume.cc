// SPDX-License-Identifier: Apache-2.0
#include "kernels/nn/volume.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "kernels/common/kernel_util.h"

namespace millrace {
namespace {

using Ints = std::vector<int64_t>;

// Of every size and stride: products of two fit.
constexpr int64_t kMost = INT32_MAX;

// The same elements seen as [batch, channels, anything, anything], or with the channels last, which
// the copies of window.h know. `shape` is canonical, and that of a tensor with elements.
Tensor AsImages(const Tensor& t, const Shape& shape, bool channels_first) {
  const int64_t inner = shape.dim(1) * shape.dim(2), columns = shape.dim(3);
  const Shape images = channels_first ? Shape{shape.dim(0), shape.dim(4), inner, columns}
                                      : Shape{shape.dim(0), inner, columns, shape.dim(4)};
  return Tensor(t.dtype(), images, RefPtr<Buffer>::Share(t.buffer()), t.raw_data());
}

}  // namespace

VolumeAttrs::VolumeAttrs(KernelConstruction& c)
    : same_(c.attr<std::string>("padding") == "SAME"),
      rank_(c.def().name().find("3D") == std::string::npos ? 4 : 5) {
  const std::string format =
      c.attrs().GetOr<std::string>("data_format", rank_ == 4 ? "NHWC" : "NDHWC");
  channels_first_ = format == "NCHW" || format == "NCDHW";
  if (!channels_first_ && format != "NHWC" && format != "NDHWC") {
    c.SetError(errors::Unimplemented(c.def().name(), " is not computed for data_format ", format));
  }
  for (const auto& [name, values] :
       {std::pair{"strides", &strides_}, {"dilations", &dilations_}, {"ksize", &ksize_}}) {
    const Status status = Read(name, c.attrs().GetOr<Ints>(name, Ints(rank_, 1)), values);
    if (!status.ok()) c.SetError(status);
  }
}

Status VolumeAttrs::ReadInputs(KernelContext& ctx) {
  for (const auto& [name, values, i] : {std::tuple{"ksize", &ksize_, ctx.num_inputs() - 2},
                                        {"strides", &strides_, ctx.num_inputs() - 1}}) {
    MR_ASSIGN_OR_RETURN(const Dims given, IntVector(ctx.input(i), name));
    MR_RETURN_IF_ERROR(Read(name, Ints(given.begin(), given.end()), values));
  }
  return OkStatus();
}

Shape VolumeAttrs::Canonical(const Shape& shape) const {
  const Ints sizes = Canonical(Ints(shape.dims().begin(), shape.dims().end()));
  return Shape(std::span<const int64_t>(sizes));
}

Shape VolumeAttrs::InFormat(Shape shape) const {
  if (rank_ == 4) shape.RemoveDim(1);
  if (!channels_first_) return shape;
  const int64_t channels = shape.dim(rank_ - 1);
  shape.RemoveDim(rank_ - 1);
  shape.InsertDim(1, channels);
  return shape;
}

StatusOr<std::array<WindowAxis, 3>> VolumeAttrs::Axes(const Shape& input,
                                                      const std::array<int64_t, 3>& sizes) const {
  std::array<WindowAxis, 3> axes;
  for (int i = 0; i < 3; ++i) {
    WindowAxis& a = axes[i];
    a = {input.dim(1 + i), sizes[i], strides_[1 + i], dilations_[1 + i]};
    if (a.input > kMost || a.size > kMost) {
      return errors::InvalidArgument("volumes and windows may have ", kMost,
                                     " elements along an axis at most, got ", a.input, " and ",
                                     a.size);
    }
    const int64_t effective = (a.size - 1) * a.dilation + 1;
    if (same_) {
      a.output = (a.input + a.stride - 1) / a.stride;
      a.pad_before = std::max<int64_t>(0, (a.output - 1) * a.stride + effective - a.input) / 2;
      continue;
    }
    // Cut towards zero: a window that is too large by less than a stride has no output.
    a.output = (a.input - effective + a.stride) / a.stride;
    if (a.output < 0) {
      return errors::InvalidArgument(
          "Computed output size would be negative: ", a.output, " [input_size: ", a.input,
          ", effective_filter_size: ", effective, ", stride: ", a.stride, "]");
    }
  }
  return axes;
}

StatusOr<Tensor> VolumeAttrs::Operand(KernelContext& ctx, const Tensor& t) const {
  if (!channels_first_ || t.num_elements() == 0) return t;
  return CopyChannelsLast(ctx, AsImages(t, Canonical(t.shape()), true));
}

Status VolumeAttrs::CopyToFormat(KernelContext& ctx, const Tensor& made, Tensor* out) const {
  return CopyChannelsFirst(ctx, AsImages(made, Canonical(out->shape()), false), out);
}

Ints VolumeAttrs::Canonical(Ints values) const {
  if (channels_first_) std::rotate(values.begin() + 1, values.begin() + 2, values.end());
  if (rank_ == 4) values.insert(values.begin() + 1, 1);
  return values;
}

// `to` stays one everywhere if the values are not valid.
Status VolumeAttrs::Read(const char* name, Ints values, Ints* to) const {
  *to = Ints(5, 1);
  if (static_cast<int>(values.size()) != rank_) {
    return errors::InvalidArgument("Sliding window ", name, " field must specify ", rank_,
                                   " dimensions, got ", values.size());
  }
  for (const int64_t value : values) {
    if (value >= 1 && value <= kMost) continue;
    return errors::InvalidArgument(to == &strides_ ? "Stride" : name, " must be > 0, but got ",
                                   value);
  }
  values = Canonical(std::move(values));
  if (values[0] != 1 || values[4] != 1) {
    const std::string text =
        StrCat("Windows are not yet supported on the ", values[0] != 1 ? "batch" : "depth",
               " dimension: its ", name, " must be 1");
    // TensorFlow's CPU refuses images with channels first before it looks at the window.
    const bool refused = rank_ == 4 && channels_first_;
    return refused ? errors::InvalidArgument(text) : errors::Unimplemented(text);
  }
  *to = std::move(values);
  return OkStatus();
}

}  // namespace millrace
