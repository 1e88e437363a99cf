// SPDX-License-Identifier: Apache-2.0
#include "kernels/nn/pool_plan.h"

#include <limits>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/kernel_util.h"

namespace millrace {
namespace {

Status CheckWindow(const std::vector<int64_t>& ksize) {
  if (ksize.size() != 4) {
    return errors::InvalidArgument("Sliding window ksize field must specify 4 dimensions, got ",
                                   ksize.size());
  }
  for (const int64_t size : ksize) {
    if (size >= 1 && size <= std::numeric_limits<int32_t>::max()) continue;
    return errors::InvalidArgument("ksize must have 4 positive elements, got ", size);
  }
  if (ksize[0] == 1) return OkStatus();
  return errors::Unimplemented("Pooling is not yet supported on the batch dimension.");
}

StatusOr<std::vector<int64_t>> WindowInput(const Tensor& input) {
  MR_ASSIGN_OR_RETURN(const Dims values, IntVector(input, "ksize or strides"));
  return std::vector<int64_t>(values.begin(), values.end());
}

Status CheckDepthWindow(const WindowAttrs& attrs, const std::vector<int64_t>& ksize,
                        int64_t channels) {
  const int64_t depth = ksize[3];
  if (depth == 1) return OkStatus();
  if (ksize[1] != 1 || ksize[2] != 1) {
    return errors::Unimplemented("MaxPooling supports exactly one of pooling across depth or ",
                                 "pooling across width/height.");
  }
  if (channels % depth != 0) {
    return errors::Unimplemented("Depthwise max pooling requires the depth window to evenly ",
                                 "divide the input depth, ", depth, " not ", channels);
  }
  if (attrs.stride(3) != depth) {
    return errors::Unimplemented("Depthwise max pooling requires the depth window to equal ",
                                 "the depth stride, got ", depth, " and ", attrs.stride(3));
  }
  return OkStatus();
}

StatusOr<PoolGeometry> GeometryOf(const WindowAttrs& attrs, const std::vector<int64_t>& ksize,
                                  const Shape& images) {
  if (images.rank() != 4) {
    return errors::InvalidArgument("tensor_in must be 4-dimensional: ", images.DebugString());
  }
  const Shape last = attrs.channels_first() ? WithChannelsLast(images) : images;
  PoolGeometry g;
  g.batch = last.dim(0);
  g.channels = last.dim(3);
  g.depth_window = ksize[3];
  MR_RETURN_IF_ERROR(CheckDepthWindow(attrs, ksize, g.channels));
  if (g.depth_window > 1) {  // every pixel by itself, whatever the strides, as in TensorFlow
    g.rows = WindowAxis{.input = last.dim(1), .size = 1, .output = last.dim(1)};
    g.cols = WindowAxis{.input = last.dim(2), .size = 1, .output = last.dim(2)};
    return g;
  }
  MR_ASSIGN_OR_RETURN(g.rows, attrs.Axis(1, last.dim(1), ksize[1]));
  MR_ASSIGN_OR_RETURN(g.cols, attrs.Axis(2, last.dim(2), ksize[2]));
  return g;
}

}  // namespace

PoolAttrs::PoolAttrs(KernelConstruction& c)
    : window_(c), ksize_(c.attrs().GetOr<std::vector<int64_t>>("ksize", {1, 1, 1, 1})) {
  Status status = CheckWindow(ksize_);
  if (!status.ok()) {
    c.SetError(Refusal(std::move(status)));
    ksize_ = {1, 1, 1, 1};
  }
  if (channels_first()) ChannelsLast(&ksize_);
}

StatusOr<PoolGeometry> PoolAttrs::Plan(const Shape& images) const {
  StatusOr<PoolGeometry> geometry = GeometryOf(window_, ksize_, images);
  return geometry.ok() ? std::move(geometry) : Refusal(std::move(geometry).status());
}

StatusOr<PoolGeometry> PoolAttrs::Plan(const Shape& images, const Tensor& ksize,
                                       const Tensor& strides) const {
  MR_ASSIGN_OR_RETURN(std::vector<int64_t> sizes, WindowInput(ksize));
  MR_ASSIGN_OR_RETURN(std::vector<int64_t> steps, WindowInput(strides));
  MR_RETURN_IF_ERROR(Refusal(CheckWindow(sizes)));
  if (channels_first()) ChannelsLast(&sizes);
  MR_ASSIGN_OR_RETURN(const WindowAttrs window, window_.WithStrides(std::move(steps)));
  StatusOr<PoolGeometry> geometry = GeometryOf(window, sizes, images);
  return geometry.ok() ? std::move(geometry) : Refusal(std::move(geometry).status());
}

Status PoolAttrs::Refusal(Status status) const {
  if (!channels_first() || !errors::IsUnimplemented(status)) return status;
  return errors::InvalidArgument(status.message());
}

Shape PoolAttrs::OutputShape(const PoolGeometry& g) const {
  return channels_first() ? WithChannelsFirst(g.OutputShape()) : g.OutputShape();
}

Status CheckMaxPoolGrad(const Shape& pooled, const Shape& orig_output, const Shape& gradient) {
  if (gradient == pooled && orig_output == pooled) return OkStatus();
  return errors::InvalidArgument("orig_output and grad must have shape ", pooled.DebugString(),
                                 ", got ", orig_output.DebugString(), " and ",
                                 gradient.DebugString());
}

Status CheckAvgPoolGrad(const Shape& pooled, const Shape& gradient) {
  if (gradient == pooled) return OkStatus();
  return errors::InvalidArgument("grad must have shape ", pooled.DebugString(), ", got ",
                                 gradient.DebugString());
}

}  // namespace millrace
