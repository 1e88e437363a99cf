// SPDX-License-Identifier: Apache-2.0
#include "kernels/nn/bias_plan.h"

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace millrace {
namespace {

Status CheckBiases(const Shape& bias, int64_t channels, std::string_view who, const Shape* value) {
  if (bias.rank() != 1) {
    return errors::InvalidArgument(who, "Biases must be 1D: ", bias.DebugString());
  }
  if (bias.dim(0) == channels) return OkStatus();
  return errors::InvalidArgument(
      who, "Must provide as many biases as the channels dimension of the input tensor: ",
      bias.DebugString(), " vs. ", channels,
      value == nullptr ? "" : StrCat(" in ", value->DebugString()));
}

}  // namespace

ChannelView ViewAround(const Shape& shape, int axis) {
  ChannelView view;
  view.channels = shape.dim(axis);
  for (int i = 0; i < axis; ++i) view.outer *= shape.dim(i);
  for (int i = axis + 1; i < shape.rank(); ++i) view.inner *= shape.dim(i);
  return view;
}

StatusOr<ChannelView> ViewChannels(const Shape& shape, bool channels_first) {
  if (shape.rank() < 2) {
    return errors::InvalidArgument("Input tensor must be at least 2D: ", shape.DebugString());
  }
  return ViewAround(shape, channels_first ? 1 : shape.rank() - 1);
}

StatusOr<ChannelView> PlanBiasAdd(const Shape& value, const Shape& bias, bool channels_first) {
  MR_ASSIGN_OR_RETURN(const ChannelView view, ViewChannels(value, channels_first));
  MR_RETURN_IF_ERROR(CheckBiases(bias, view.channels, "", &value));
  return view;
}

Status CheckColumnBiases(const Shape& bias, int64_t columns, std::string_view who) {
  return CheckBiases(bias, columns, who, nullptr);
}

}  // namespace millrace
