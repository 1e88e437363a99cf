// SPDX-License-Identifier: Apache-2.0
#include "base/errors.h"
#include "base/status_macros.h"
#include "ops/shape_fns.h"

namespace millrace {
namespace {

// Where batch, rows, columns and channels are in a four-dimensional layout.
struct Layout {
  int batch = 0, rows = 1, columns = 2, channels = 3;
};

StatusOr<Layout> LayoutOf(const InferenceContext& c) {
  const std::string format = c.attrs().GetOr<std::string>("data_format", "NHWC");
  if (format == "NHWC") return Layout{};
  if (format == "NCHW") return Layout{0, 2, 3, 1};
  return errors::Unimplemented("data_format '", format, "'");
}

// One window axis: how many places the window has over `size` elements.
StatusOr<int64_t> WindowPlaces(int64_t size, int64_t window, int64_t stride,
                               std::string_view padding, int64_t before, int64_t after) {
  if (stride <= 0) return errors::InvalidArgument("Stride must be > 0, but got ", stride);
  if (size < 0) return -1;
  if (padding == "SAME") return (size + stride - 1) / stride;
  if (window < 0) return -1;
  const int64_t places = (size + before + after - window + stride) / stride;
  if (size + before + after - window + stride < 0) {
    return errors::InvalidArgument("Computed output size would be negative: a window of ", window,
                                   " does not fit into ", size + before + after, " elements");
  }
  return places;
}

// Sizes along rows and columns of what a window op makes of `input`.
Status PlaceWindows(InferenceContext& c, const PartialShape& input, const Layout& layout,
                    int64_t window_rows, int64_t window_columns, PartialShape* out) {
  MR_ASSIGN_OR_RETURN(const auto strides, c.attr<std::vector<int64_t>>("strides"));
  MR_ASSIGN_OR_RETURN(const auto padding, c.attr<std::string>("padding"));
  const auto pads = c.attrs().GetOr<std::vector<int64_t>>("explicit_paddings", {});
  if (strides.size() != 4) {
    return errors::InvalidArgument("strides must have 4 elements, but has ", strides.size());
  }
  if (padding == "EXPLICIT" && pads.size() != 8) {
    return errors::InvalidArgument("explicit_paddings must have 8 elements, but has ", pads.size());
  }
  for (const auto& [axis, window] :
       {std::pair(layout.rows, window_rows), std::pair(layout.columns, window_columns)}) {
    const bool explicit_pads = padding == "EXPLICIT";
    MR_ASSIGN_OR_RETURN(
        const int64_t places,
        WindowPlaces(input.dim(axis), window, strides[axis], padding,
                     explicit_pads ? pads[2 * axis] : 0, explicit_pads ? pads[2 * axis + 1] : 0));
    out->SetDim(axis, places);
  }
  return OkStatus();
}

}  // namespace

Status BiasAddShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape value, c.WithRankAtLeast(0, 2));
  MR_ASSIGN_OR_RETURN(const PartialShape bias, c.WithRank(1, 1));
  if (value.has_rank()) {
    const bool channels_first = c.attrs().GetOr<std::string>("data_format", "NHWC") == "NCHW";
    const int axis = channels_first ? 1 : value.rank() - 1;
    MR_ASSIGN_OR_RETURN(const int64_t channels, MergeDim(value.dim(axis), bias.dim(0)));
    value.SetDim(axis, channels);
  }
  c.set_output(0, std::move(value));
  return OkStatus();
}

Status BiasAddGradShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape value, c.WithRankAtLeast(0, 2));
  int64_t channels = -1;
  if (value.has_rank()) {
    const bool channels_first = c.attrs().GetOr<std::string>("data_format", "NHWC") == "NCHW";
    channels = value.dim(channels_first ? 1 : value.rank() - 1);
  }
  c.set_output(0, PartialShape({channels}));
  return OkStatus();
}

Status SoftmaxShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape shape, c.WithRankAtLeast(0, 1));
  c.set_output(0, std::move(shape));
  return OkStatus();
}

Status SoftmaxCrossEntropyShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape both, BroadcastShapes(c.input(0), c.input(1)));
  if (both.has_rank() && both.rank() != 2) {
    return errors::InvalidArgument("Shape must be rank 2 but is rank ", both.rank(), " for logits ",
                                   c.input(0).DebugString(), " and labels ",
                                   c.input(1).DebugString());
  }
  const PartialShape matrix = both.has_rank() ? both : UnknownDims(2);
  c.set_output(0, PartialShape({matrix.dim(0)}));
  c.set_output(1, matrix);
  return OkStatus();
}

Status SparseSoftmaxCrossEntropyShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape logits, c.WithRank(0, 2));
  MR_ASSIGN_OR_RETURN(const PartialShape labels, c.WithRank(1, 1));
  MR_ASSIGN_OR_RETURN(const int64_t batch, MergeDim(logits.dim(0), labels.dim(0)));
  logits.SetDim(0, batch);
  c.set_output(0, PartialShape({batch}));
  c.set_output(1, std::move(logits));
  return OkStatus();
}

Status Conv2DShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape input, c.WithRank(0, 4));
  MR_ASSIGN_OR_RETURN(const PartialShape filter, c.WithRank(1, 4));
  MR_ASSIGN_OR_RETURN(const Layout layout, LayoutOf(c));
  MR_ASSIGN_OR_RETURN(const auto dilations, c.attr<std::vector<int64_t>>("dilations"));
  if (dilations.size() != 4) {
    return errors::InvalidArgument("dilations must have 4 elements, but has ", dilations.size());
  }
  const int64_t depth = input.dim(layout.channels), filter_depth = filter.dim(2);
  // More input channels than the filter has mean groups of channels.
  if (depth >= 0 && filter_depth > 0 && depth % filter_depth != 0) {
    return errors::InvalidArgument("Depth of input (", depth,
                                   ") is not a multiple of input depth of filter (", filter_depth,
                                   ")");
  }
  const auto dilated = [&](int axis, int64_t size) {
    return size < 0 ? size : (size - 1) * dilations[axis] + 1;
  };
  PartialShape out = UnknownDims(4);
  out.SetDim(layout.batch, input.dim(layout.batch));
  out.SetDim(layout.channels, filter.dim(3));
  MR_RETURN_IF_ERROR(PlaceWindows(c, input, layout, dilated(layout.rows, filter.dim(0)),
                                  dilated(layout.columns, filter.dim(1)), &out));
  c.set_output(0, std::move(out));
  return OkStatus();
}

Status PoolShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape input, c.WithRank(0, 4));
  MR_ASSIGN_OR_RETURN(const Layout layout, LayoutOf(c));
  MR_ASSIGN_OR_RETURN(const auto window, c.attr<std::vector<int64_t>>("ksize"));
  if (window.size() != 4) {
    return errors::InvalidArgument("ksize must have 4 elements, but has ", window.size());
  }
  PartialShape out = input;
  MR_RETURN_IF_ERROR(
      PlaceWindows(c, input, layout, window[layout.rows], window[layout.columns], &out));
  const int64_t depth = window[layout.channels];  // over channels, windows stand side by side
  if (depth > 1 && input.dim(layout.channels) >= 0) {
    out.SetDim(layout.channels, input.dim(layout.channels) / depth);
  }
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, out);
  return OkStatus();
}

Status DepthwiseConv2DShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape input, c.WithRank(0, 4));
  MR_ASSIGN_OR_RETURN(const PartialShape filter, c.WithRank(1, 4));
  MR_ASSIGN_OR_RETURN(const Layout layout, LayoutOf(c));
  MR_ASSIGN_OR_RETURN(const auto dilations, c.attr<std::vector<int64_t>>("dilations"));
  if (dilations.size() != 4) {
    return errors::InvalidArgument("dilations must have 4 elements, but has ", dilations.size());
  }
  MR_ASSIGN_OR_RETURN(const int64_t depth, MergeDim(input.dim(layout.channels), filter.dim(2)));
  const auto dilated = [&](int axis, int64_t size) {
    return size < 0 ? size : (size - 1) * dilations[axis] + 1;
  };
  PartialShape out = UnknownDims(4);
  out.SetDim(layout.batch, input.dim(layout.batch));
  if (depth >= 0 && filter.dim(3) >= 0) out.SetDim(layout.channels, depth * filter.dim(3));
  MR_RETURN_IF_ERROR(PlaceWindows(c, input, layout, dilated(layout.rows, filter.dim(0)),
                                  dilated(layout.columns, filter.dim(1)), &out));
  c.set_output(0, std::move(out));
  return OkStatus();
}

namespace {

// The channels of `shape`, a batch of images or volumes.
int64_t ChannelsOf(const InferenceContext& c, const PartialShape& shape) {
  if (!shape.has_rank()) return -1;
  const std::string format = c.attrs().GetOr<std::string>("data_format", "NHWC");
  return shape.dim(format.size() > 1 && format[1] == 'C' ? 1 : shape.rank() - 1);
}

}  // namespace

Status FusedBatchNormShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape x, c.WithRankAtLeast(0, 4));
  int64_t channels = ChannelsOf(c, x);
  for (int i = 1; i <= 2; ++i) {
    MR_ASSIGN_OR_RETURN(const PartialShape vector, c.WithRank(i, 1));
    MR_ASSIGN_OR_RETURN(channels, MergeDim(channels, vector.dim(0)));
  }
  c.set_output(0, x);
  for (int i = 1; i < 5; ++i) c.set_output(i, PartialShape({channels}));
  return OkStatus();
}

Status FusedBatchNormGradShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape x, c.WithRankAtLeast(1, 4));
  MR_ASSIGN_OR_RETURN(const PartialShape scale, c.WithRank(2, 1));
  MR_ASSIGN_OR_RETURN(const int64_t channels, MergeDim(ChannelsOf(c, x), scale.dim(0)));
  c.set_output(0, x);
  for (int i = 1; i < 3; ++i) c.set_output(i, PartialShape({channels}));
  for (int i = 3; i < 5; ++i) c.set_output(i, PartialShape({0}));
  return OkStatus();
}

Status ResizeShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape images, c.WithRank(0, 4));
  MR_RETURN_IF_ERROR(c.WithRank(1, 1).status());
  Dims size;
  const bool known = ConstantInts(c, 1, &size) && size.size() == 2;
  for (int i = 0; i < 2; ++i) images.SetDim(1 + i, known ? size[i] : -1);
  c.set_output(0, std::move(images));
  return OkStatus();
}

Status InTopKShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape predictions, c.WithRank(0, 2));
  MR_ASSIGN_OR_RETURN(const PartialShape targets, c.WithRank(1, 1));
  MR_ASSIGN_OR_RETURN(const int64_t batch, MergeDim(predictions.dim(0), targets.dim(0)));
  c.set_output(0, PartialShape({batch}));
  return OkStatus();
}

Status TopKShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape shape, c.WithRankAtLeast(0, 1));
  MR_RETURN_IF_ERROR(c.WithRank(1, 0).status());
  if (shape.has_rank()) {
    int64_t k;
    const bool known = c.ConstantInt(1, &k);
    const int last = shape.rank() - 1;
    if (known && k < 0) return errors::InvalidArgument("Need k >= 0, got ", k);
    if (known && shape.dim(last) >= 0 && shape.dim(last) < k) {
      return errors::InvalidArgument("input must have last dimension >= k = ", k, " but is ",
                                     shape.dim(last));
    }
    shape.SetDim(last, known ? k : -1);
  }
  c.set_output(0, shape);
  c.set_output(1, std::move(shape));
  return OkStatus();
}

}  // namespace millrace
