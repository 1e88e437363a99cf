// SPDX-License-Identifier: Apache-2.0
#include "kernels/nn/conv_plan.h"

#include <string_view>

#include "base/errors.h"
#include "base/status_macros.h"

namespace millrace {
namespace {

// Of images with their channels last.
// A depthwise filter [rows, columns, channels, outputs per channel] is one for as many groups
// as there are channels: its elements lie just so.
StatusOr<ConvGeometry> GeometryOf(const WindowAttrs& attrs, bool depthwise, const Shape& input,
                                  const Shape& filter) {
  if (input.rank() != 4) {
    return errors::InvalidArgument("input must be 4-dimensional: ", input.DebugString());
  }
  if (filter.rank() != 4) {
    return errors::InvalidArgument("filter must be 4-dimensional: ", filter.DebugString());
  }
  if (attrs.stride(3) != 1) {
    constexpr std::string_view kText = "strides over channels are not supported";
    return depthwise ? errors::InvalidArgument(kText) : errors::Unimplemented(kText);
  }
  ConvGeometry g;
  g.batch = input.dim(0);
  g.channels = input.dim(3);
  if (depthwise) {
    if (filter.dim(2) != g.channels) {
      return errors::InvalidArgument("input and filter must have the same depth: ", g.channels,
                                     " vs ", filter.dim(2));
    }
    g.groups = g.channels;
    g.out_channels = g.channels * filter.dim(3);
    MR_ASSIGN_OR_RETURN(g.rows, attrs.Axis(1, input.dim(1), filter.dim(0)));
    MR_ASSIGN_OR_RETURN(g.cols, attrs.Axis(2, input.dim(2), filter.dim(1)));
    return g;
  }
  g.out_channels = filter.dim(3);
  if (filter.dim(2) <= 0 || g.channels % filter.dim(2) != 0) {
    return errors::InvalidArgument("input depth must be evenly divisible by filter depth: ",
                                   g.channels, " vs ", filter.dim(2));
  }
  g.groups = g.channels / filter.dim(2);
  if (g.groups < 1 || g.out_channels % g.groups != 0) {
    return errors::InvalidArgument("output depth ", g.out_channels,
                                   " must be evenly divisible by the number of groups ", g.groups);
  }
  MR_ASSIGN_OR_RETURN(g.rows, attrs.Axis(1, input.dim(1), filter.dim(0)));
  MR_ASSIGN_OR_RETURN(g.cols, attrs.Axis(2, input.dim(2), filter.dim(1)));
  return g;
}

}  // namespace

StatusOr<ConvSizes> PlanConv(const WindowAttrs& attrs, bool depthwise, const Shape& images,
                             const Shape& filter) {
  const bool first = attrs.channels_first();
  ConvSizes sizes;
  MR_ASSIGN_OR_RETURN(
      sizes.geometry,
      GeometryOf(attrs, depthwise, first && images.rank() == 4 ? WithChannelsLast(images) : images,
                 filter));
  const Shape last = sizes.geometry.OutputShape();
  sizes.outputs = first ? WithChannelsFirst(last) : last;
  return sizes;
}

Status CheckConvGradient(const Shape& outputs, const Shape& gradient) {
  if (gradient == outputs) return OkStatus();
  return errors::InvalidArgument("out_backprop must have the shape of the output ",
                                 outputs.DebugString(), ", got ", gradient.DebugString());
}

}  // namespace millrace
