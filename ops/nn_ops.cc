// SPDX-License-Identifier: Apache-2.0
// Layers of neural networks and their gradients.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "ops/all_ops.h"
#include "ops/op_def_builder.h"
#include "ops/shape_fns.h"

namespace millrace {
namespace {

// Of the images that were resized.
Status ResizeGradShape(InferenceContext& c) {
  c.set_output(0, c.input(1));
  return OkStatus();
}
Status ResizeNearestGradShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape grads, c.WithRank(0, 4));
  Dims size;
  if (!ConstantInts(c, 1, &size) || size.size() != 2) size = {-1, -1};
  if (grads.has_rank()) {
    c.set_output(0, PartialShape({grads.dim(0), size[0], size[1], grads.dim(3)}));
  } else {
    c.set_output(0, PartialShape({-1, size[0], size[1], -1}));
  }
  return OkStatus();
}

bool ChannelsFirst(const InferenceContext& c) {
  const std::string format = c.attrs().GetOr<std::string>("data_format", "");
  return format.size() > 1 && format[1] == 'C';
}

// What kernels take of sizes, strides and dilations, so that products of two fit.
constexpr int64_t kMostOfWindow = INT32_MAX;

// How many places a window has over `size` elements; -1 if that is not known.
StatusOr<int64_t> WindowPlaces(int64_t size, int64_t window, int64_t stride,
                               std::string_view padding) {
  if (stride <= 0 || stride > kMostOfWindow) {
    return errors::InvalidArgument("Stride must be > 0, but got ", stride, ", or is too large");
  }
  if (size < 0 || window < 0 || size > kMostOfWindow) return -1;
  const int64_t reach = padding == "SAME" ? size + stride - 1 : size - window + stride;
  if (reach >= 0) return reach / stride;
  return errors::InvalidArgument("Computed output size would be negative: a window of ", window,
                                 " does not fit into ", size, " elements");
}

Status SecondInputShape(InferenceContext& c) {
  c.set_output(0, c.input(1));
  return OkStatus();
}

// With its windows in inputs, which are constants as a rule.
Status PoolV2Shape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape input, c.WithRank(0, 4));
  Dims ksize, strides;
  const bool known = ConstantInts(c, 1, &ksize) && ConstantInts(c, 2, &strides);
  c.set_output(0, UnknownDims(4));
  if (!known || ksize.size() != 4 || strides.size() != 4) return OkStatus();
  MR_ASSIGN_OR_RETURN(const auto padding, c.attr<std::string>("padding"));
  PartialShape out = UnknownDims(4);
  for (int i = 0; i < 4; ++i) {
    MR_ASSIGN_OR_RETURN(const int64_t places,
                        WindowPlaces(input.dim(i), ksize[i], strides[i], padding));
    out.SetDim(i, places);
  }
  c.set_output(0, std::move(out));
  return OkStatus();
}

// Images that are padded as if by a mirror, and before that, with an input `size`, resized; then a
// convolution.
Status FusedConvShape(InferenceContext& c) {
  const bool resizes = c.num_inputs() == 4;
  const int paddings = resizes ? 2 : 1;
  MR_ASSIGN_OR_RETURN(PartialShape images, c.WithRank(0, 4));
  if (resizes) {
    MR_ASSIGN_OR_RETURN(const PartialShape size, c.WithRank(1, 1));
    MR_RETURN_IF_ERROR(MergeDim(size.dim(0), 2).status());
    Dims sizes;
    if (!ConstantInts(c, 1, &sizes) || sizes.size() != 2) sizes = {-1, -1};
    for (int i = 0; i < 2; ++i) images.SetDim(1 + i, std::max<int64_t>(sizes[i], -1));
  }
  MR_ASSIGN_OR_RETURN(const PartialShape matrix, c.WithRank(paddings, 2));
  MR_RETURN_IF_ERROR(MergeDim(matrix.dim(0), 4).status());
  MR_RETURN_IF_ERROR(MergeDim(matrix.dim(1), 2).status());
  Dims amounts;
  if (!ConstantInts(c, paddings, &amounts) || amounts.size() != 8) amounts.clear();
  for (int i = 0; i < 4; ++i) {
    if (amounts.empty() || images.dim(i) < 0) {
      images.SetDim(i, -1);
    } else if (amounts[2 * i] < 0 || amounts[2 * i + 1] < 0) {
      return errors::InvalidArgument("paddings must be non-negative: ", amounts[2 * i], " ",
                                     amounts[2 * i + 1]);
    } else {
      images.SetDim(i, std::min<int64_t>(images.dim(i), INT64_MAX - 2 * int64_t{INT32_MAX}) +
                           amounts[2 * i] + amounts[2 * i + 1]);
    }
  }
  MR_ASSIGN_OR_RETURN(const PartialShape filter, c.WithRank(c.num_inputs() - 1, 4));
  MR_RETURN_IF_ERROR(MergeDim(images.dim(3), filter.dim(2)).status());
  MR_ASSIGN_OR_RETURN(const auto strides, c.attr<std::vector<int64_t>>("strides"));
  MR_ASSIGN_OR_RETURN(const auto padding, c.attr<std::string>("padding"));
  if (strides.size() != 4) {
    return errors::InvalidArgument(
        "Operation requires the stride attribute to contain 4 values, but got: ", strides.size());
  }
  PartialShape out = UnknownDims(4);
  out.SetDim(0, images.dim(0));
  out.SetDim(3, filter.dim(3));
  for (int i = 1; i <= 2; ++i) {
    MR_ASSIGN_OR_RETURN(const int64_t places,
                        WindowPlaces(images.dim(i), filter.dim(i - 1), strides[i], padding));
    out.SetDim(i, places);
  }
  c.set_output(0, std::move(out));
  return OkStatus();
}

// Windows of `sizes` (-1 where that is not known), along all five axes of `input`.
Status PlaceOverVolumes(InferenceContext& c, PartialShape input, const Dims& sizes,
                        int64_t channels) {
  MR_ASSIGN_OR_RETURN(const auto strides, c.attr<std::vector<int64_t>>("strides"));
  MR_ASSIGN_OR_RETURN(const auto padding, c.attr<std::string>("padding"));
  const bool first = ChannelsFirst(c);
  if (strides.size() != 5) {
    return errors::InvalidArgument("strides must have 5 elements, but has ", strides.size());
  }
  for (int i = 0; i < 3; ++i) {
    const int axis = first ? 2 + i : 1 + i;
    MR_ASSIGN_OR_RETURN(const int64_t places,
                        WindowPlaces(input.dim(axis), sizes[i], strides[axis], padding));
    input.SetDim(axis, places);
  }
  input.SetDim(first ? 1 : 4, channels);
  c.set_output(0, std::move(input));
  return OkStatus();
}

Status Pool3DShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape input, c.WithRank(0, 5));
  MR_ASSIGN_OR_RETURN(const auto ksize, c.attr<std::vector<int64_t>>("ksize"));
  if (ksize.size() != 5) {
    return errors::InvalidArgument("ksize must have 5 elements, but has ", ksize.size());
  }
  const int at = ChannelsFirst(c) ? 2 : 1;
  const int64_t channels = input.dim(ChannelsFirst(c) ? 1 : 4);
  return PlaceOverVolumes(c, std::move(input), {ksize[at], ksize[at + 1], ksize[at + 2]}, channels);
}

Status Conv3DShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape input, c.WithRank(0, 5));
  MR_ASSIGN_OR_RETURN(const PartialShape filter, c.WithRank(1, 5));
  MR_ASSIGN_OR_RETURN(const auto dilations, c.attr<std::vector<int64_t>>("dilations"));
  const bool first = ChannelsFirst(c);
  if (dilations.size() != 5) {
    return errors::InvalidArgument("dilations must have 5 elements, but has ", dilations.size());
  }
  MR_RETURN_IF_ERROR(MergeDim(input.dim(first ? 1 : 4), filter.dim(3)).status());
  Dims sizes;
  for (int i = 0; i < 3; ++i) {
    const int64_t size = filter.dim(i), dilation = dilations[first ? 2 + i : 1 + i];
    if (dilation < 1 || dilation > kMostOfWindow) {
      return errors::InvalidArgument("Dilated rates should be larger than 0, got ", dilation,
                                     ", or is too large");
    }
    const bool known = size >= 0 && size <= kMostOfWindow;
    sizes.push_back(known ? std::max<int64_t>(0, (size - 1) * dilation + 1) : -1);
  }
  return PlaceOverVolumes(c, std::move(input), sizes, filter.dim(4));
}

constexpr OpSpec kOps[] = {
    {"AvgPool", "value: T", "output: T",
     "ksize: list(int) >= 4; strides: list(int) >= 4; padding: {'SAME', 'VALID'}; data_format: "
     "{'NHWC', 'NCHW'} = 'NHWC'; T: floats",
     PoolShape},
    {"AvgPoolGrad", "orig_input_shape: int32, grad: T", "output: T",
     "ksize: list(int) >= 4; strides: list(int) >= 4; padding: {'SAME', 'VALID'}; data_format: "
     "{'NHWC', 'NCHW'} = 'NHWC'; T: floats",
     ShapeFromInput0},
    {"AvgPool3D", "input: T", "output: T",
     "ksize: list(int) >= 5; strides: list(int) >= 5; padding: {'SAME', 'VALID'}; data_format: "
     "{'NDHWC', 'NCDHW'} = 'NDHWC'; T: floats",
     Pool3DShape},
    {"AvgPool3DGrad", "orig_input_shape: int32, grad: T", "output: T",
     "ksize: list(int) >= 5; strides: list(int) >= 5; padding: {'SAME', 'VALID'}; data_format: "
     "{'NDHWC', 'NCDHW'} = 'NDHWC'; T: floats",
     ShapeFromInput0},
    {"BiasAdd", "value: T, bias: T", "output: T",
     "T: numbers; data_format: {'NHWC', 'NCHW'} = 'NHWC'", BiasAddShape},
    {"BiasAddGrad", "out_backprop: T", "output: T",
     "T: numbers; data_format: {'NHWC', 'NCHW'} = 'NHWC'", BiasAddGradShape},
    {"BiasAddV1", "value: T, bias: T", "output: T", "T: numbers", BiasAddShape},
    {"Conv2D", "input: T, filter: T", "output: T",
     "T: {half, bfloat16, float, double, int32}; strides: list(int); use_cudnn_on_gpu: bool = "
     "true; padding: {'SAME', 'VALID', 'EXPLICIT'}; explicit_paddings: list(int) = []; "
     "data_format: {'NHWC', 'NCHW'} = 'NHWC'; dilations: list(int) = [1, 1, 1, 1]",
     Conv2DShape},
    {"Conv2DBackpropFilter", "input: T, filter_sizes: int32, out_backprop: T", "output: T",
     "T: floats; strides: list(int); use_cudnn_on_gpu: bool = true; padding: {'SAME', 'VALID', "
     "'EXPLICIT'}; explicit_paddings: list(int) = []; data_format: {'NHWC', 'NCHW'} = 'NHWC'; "
     "dilations: list(int) = [1, 1, 1, 1]",
     ShapeFromInput1},
    {"Conv2DBackpropInput", "input_sizes: int32, filter: T, out_backprop: T", "output: T",
     "T: {half, bfloat16, float, double, int32}; strides: list(int); use_cudnn_on_gpu: bool = "
     "true; padding: {'SAME', 'VALID', 'EXPLICIT'}; explicit_paddings: list(int) = []; "
     "data_format: {'NHWC', 'NCHW'} = 'NHWC'; dilations: list(int) = [1, 1, 1, 1]",
     ShapeFromInput0},
    {"Conv3D", "input: T, filter: T", "output: T",
     "T: floats; strides: list(int) >= 5; padding: {'SAME', 'VALID'}; data_format: {'NDHWC', "
     "'NCDHW'} = 'NDHWC'; dilations: list(int) = [1, 1, 1, 1, 1]",
     Conv3DShape},
    {"Conv3DBackpropFilterV2", "input: T, filter_sizes: int32, out_backprop: T", "output: T",
     "T: floats; strides: list(int) >= 5; padding: {'SAME', 'VALID'}; data_format: {'NDHWC', "
     "'NCDHW'} = 'NDHWC'; dilations: list(int) = [1, 1, 1, 1, 1]",
     ShapeFromInput1},
    {"Conv3DBackpropInputV2", "input_sizes: Tshape, filter: T, out_backprop: T", "output: T",
     "T: floats; strides: list(int) >= 5; padding: {'SAME', 'VALID'}; data_format: {'NDHWC', "
     "'NCDHW'} = 'NDHWC'; dilations: list(int) = [1, 1, 1, 1, 1]; Tshape: {int32, int64} = int32",
     ShapeFromInput0},
    {"DepthwiseConv2dNative", "input: T, filter: T", "output: T",
     "T: floats; strides: list(int); padding: {'SAME', 'VALID', 'EXPLICIT'}; explicit_paddings: "
     "list(int) = []; data_format: {'NHWC', 'NCHW'} = 'NHWC'; dilations: list(int) = [1, 1, 1, 1]",
     DepthwiseConv2DShape},
    {"DepthwiseConv2dNativeBackpropFilter", "input: T, filter_sizes: int32, out_backprop: T",
     "output: T",
     "T: floats; strides: list(int); padding: {'SAME', 'VALID', 'EXPLICIT'}; explicit_paddings: "
     "list(int) = []; data_format: {'NHWC', 'NCHW'} = 'NHWC'; dilations: list(int) = [1, 1, 1, 1]",
     ShapeFromInput1},
    {"DepthwiseConv2dNativeBackpropInput", "input_sizes: int32, filter: T, out_backprop: T",
     "output: T",
     "T: floats; strides: list(int); padding: {'SAME', 'VALID', 'EXPLICIT'}; explicit_paddings: "
     "list(int) = []; data_format: {'NHWC', 'NCHW'} = 'NHWC'; dilations: list(int) = [1, 1, 1, 1]",
     ShapeFromInput0},
    {"Elu", "features: T", "activations: T", "T: floats", UnchangedShape},
    {"EluGrad", "gradients: T, outputs: T", "backprops: T", "T: floats", MergedInputs},
    {"FusedBatchNorm", "x: T, scale: T, offset: T, mean: T, variance: T",
     "y: T, batch_mean: T, batch_variance: T, reserve_space_1: T, reserve_space_2: T",
     "T: {float}; epsilon: float = 9.99999975e-05; exponential_avg_factor: float = 1; data_format: "
     "{'NHWC', 'NCHW'} = 'NHWC'; is_training: bool = true",
     FusedBatchNormShape},
    {"FusedBatchNormGrad", "y_backprop: T, x: T, scale: T, reserve_space_1: T, reserve_space_2: T",
     "x_backprop: T, scale_backprop: T, offset_backprop: T, reserve_space_3: T, reserve_space_4: T",
     "T: {float}; epsilon: float = 9.99999975e-05; data_format: {'NHWC', 'NCHW'} = 'NHWC'; "
     "is_training: bool = true",
     FusedBatchNormGradShape},
    {"FusedBatchNormGradV2",
     "y_backprop: T, x: T, scale: float, reserve_space_1: U, reserve_space_2: U",
     "x_backprop: T, scale_backprop: U, offset_backprop: U, reserve_space_3: U, reserve_space_4: U",
     "T: {half, bfloat16, float}; U: {float}; epsilon: float = 9.99999975e-05; data_format: "
     "{'NHWC', 'NCHW'} = 'NHWC'; is_training: bool = true",
     FusedBatchNormGradShape},
    {"FusedBatchNormGradV3",
     "y_backprop: T, x: T, scale: float, reserve_space_1: U, reserve_space_2: U, reserve_space_3: "
     "U",
     "x_backprop: T, scale_backprop: U, offset_backprop: U, reserve_space_4: U, reserve_space_5: U",
     "T: {half, bfloat16, float}; U: {float}; epsilon: float = 9.99999975e-05; data_format: "
     "{'NHWC', 'NCHW', 'NDHWC', 'NCDHW'} = 'NHWC'; is_training: bool = true",
     FusedBatchNormGradShape},
    {"FusedBatchNormV2", "x: T, scale: U, offset: U, mean: U, variance: U",
     "y: T, batch_mean: U, batch_variance: U, reserve_space_1: U, reserve_space_2: U",
     "T: {half, bfloat16, float}; U: {float}; epsilon: float = 9.99999975e-05; "
     "exponential_avg_factor: float = 1; data_format: {'NHWC', 'NCHW'} = 'NHWC'; is_training: bool "
     "= true",
     FusedBatchNormShape},
    {"FusedBatchNormV3", "x: T, scale: U, offset: U, mean: U, variance: U",
     "y: T, batch_mean: U, batch_variance: U, reserve_space_1: U, reserve_space_2: U, "
     "reserve_space_3: U",
     "T: {half, bfloat16, float}; U: {bfloat16, float}; epsilon: float = 9.99999975e-05; "
     "exponential_avg_factor: float = 1; data_format: {'NHWC', 'NCHW', 'NDHWC', 'NCDHW'} = 'NHWC'; "
     "is_training: bool = true",
     FusedBatchNormShape},
    {"FusedPadConv2D", "input: T, paddings: int32, filter: T", "output: T",
     "T: {half, bfloat16, float, double}; mode: {'REFLECT', 'SYMMETRIC'}; strides: list(int); "
     "padding: {'SAME', 'VALID'}",
     FusedConvShape},
    {"FusedResizeAndPadConv2D", "input: T, size: int32, paddings: int32, filter: T", "output: T",
     "T: {half, float, double}; resize_align_corners: bool = false; "
     "mode: {'REFLECT', 'SYMMETRIC'}; strides: list(int); padding: {'SAME', 'VALID'}",
     FusedConvShape},
    {"InTopK", "predictions: float, targets: T", "precision: bool",
     "k: int; T: {int32, int64} = int32", InTopKShape},
    {"InTopKV2", "predictions: float, targets: T, k: T", "precision: bool",
     "T: {int32, int64} = int32", InTopKShape},
    {"L2Loss", "t: T", "output: T", "T: floats", ScalarShape},
    {"LeakyRelu", "features: T", "activations: T", "alpha: float = 0.200000003; T: floats = float",
     UnchangedShape},
    {"LeakyReluGrad", "gradients: T, features: T", "backprops: T",
     "alpha: float = 0.200000003; T: floats = float", MergedInputs},
    {"LogSoftmax", "logits: T", "logsoftmax: T", "T: floats", SoftmaxShape},
    {"MaxPool", "input: T", "output: T",
     "T: {half, bfloat16, float, double, int32, int64, uint8, int16, int8, uint16, qint8} = float; "
     "ksize: list(int) >= 4; strides: list(int) >= 4; padding: {'SAME', 'VALID', 'EXPLICIT'}; "
     "explicit_paddings: list(int) = []; data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'",
     PoolShape},
    {"MaxPool3D", "input: T", "output: T",
     "ksize: list(int) >= 5; strides: list(int) >= 5; padding: {'SAME', 'VALID'}; data_format: "
     "{'NDHWC', 'NCDHW'} = 'NDHWC'; T: {half, bfloat16, float}",
     Pool3DShape},
    {"MaxPool3DGrad", "orig_input: TInput, orig_output: TInput, grad: T", "output: T",
     "ksize: list(int) >= 5; strides: list(int) >= 5; padding: {'SAME', 'VALID'}; data_format: "
     "{'NDHWC', 'NCDHW'} = 'NDHWC'; T: {half, bfloat16, float} = float; TInput: {half, bfloat16, "
     "float} = float",
     UnchangedShape},
    {"MaxPool3DGradGrad", "orig_input: T, orig_output: T, grad: T", "output: T",
     "ksize: list(int) >= 5; strides: list(int) >= 5; padding: {'SAME', 'VALID'}; data_format: "
     "{'NDHWC', 'NCDHW'} = 'NDHWC'; T: reals",
     SecondInputShape},
    {"MaxPoolGrad", "orig_input: T, orig_output: T, grad: T", "output: T",
     "ksize: list(int) >= 4; strides: list(int) >= 4; padding: {'SAME', 'VALID', 'EXPLICIT'}; "
     "explicit_paddings: list(int) = []; data_format: {'NHWC', 'NCHW'} = 'NHWC'; T: reals = float",
     UnchangedShape},
    {"MaxPoolGradGrad", "orig_input: T, orig_output: T, grad: T", "output: T",
     "ksize: list(int) >= 4; strides: list(int) >= 4; padding: {'SAME', 'VALID'}; data_format: "
     "{'NHWC', 'NCHW'} = 'NHWC'; T: reals",
     SecondInputShape},
    {"MaxPoolGradGradV2", "orig_input: T, orig_output: T, grad: T, ksize: int32, strides: int32",
     "output: T", "padding: {'SAME', 'VALID'}; data_format: {'NHWC', 'NCHW'} = 'NHWC'; T: reals",
     SecondInputShape},
    {"MaxPoolGradV2", "orig_input: T, orig_output: T, grad: T, ksize: int32, strides: int32",
     "output: T",
     "padding: {'SAME', 'VALID'}; data_format: {'NHWC', 'NCHW'} = 'NHWC'; T: reals = float",
     UnchangedShape},
    {"MaxPoolGradWithArgmax", "input: T, grad: T, argmax: Targmax", "output: T",
     "ksize: list(int) >= 4; strides: list(int) >= 4; padding: {'SAME', 'VALID'}; "
     "include_batch_in_index: bool = false; Targmax: {int32, int64}; T: reals",
     UnchangedShape},
    {"MaxPoolV2", "input: T, ksize: int32, strides: int32", "output: T",
     "T: {half, bfloat16, float, double, int32, int64, uint8, int16, int8, uint16, qint8} = float; "
     "padding: {'SAME', 'VALID'}; data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'",
     PoolV2Shape},
    {"MaxPoolWithArgmax", "input: T", "output: T, argmax: Targmax",
     "ksize: list(int) >= 4; strides: list(int) >= 4; Targmax: {int32, int64} = int64; padding: "
     "{'SAME', 'VALID'}; include_batch_in_index: bool = false; T: reals",
     PoolShape},
    {"Relu", "features: T", "activations: T",
     "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64, "
     "qint8}",
     UnchangedShape},
    {"Relu6", "features: T", "activations: T", "T: reals", UnchangedShape},
    {"Relu6Grad", "gradients: T, features: T", "backprops: T", "T: reals", MergedInputs},
    {"ReluGrad", "gradients: T, features: T", "backprops: T", "T: reals", MergedInputs},
    {"ResizeBilinear", "images: T, size: int32", "resized_images: float",
     "T: {int8, uint8, int16, uint16, int32, int64, bfloat16, half, float, double, bfloat16}; "
     "align_corners: bool = false; half_pixel_centers: bool = false",
     ResizeShape},
    {"ResizeBilinearGrad", "grads: float, original_image: T", "output: T",
     "T: {float, bfloat16, half, double}; align_corners: bool = false; half_pixel_centers: bool = "
     "false",
     ResizeGradShape},
    {"ResizeNearestNeighbor", "images: T, size: int32", "resized_images: T",
     "T: {int8, uint8, int16, uint16, int32, int64, half, float, double, bfloat16}; align_corners: "
     "bool = false; half_pixel_centers: bool = false",
     ResizeShape},
    {"ResizeNearestNeighborGrad", "grads: T, size: int32", "output: T",
     "T: {uint8, int8, int32, half, float, double, bfloat16}; align_corners: bool = false; "
     "half_pixel_centers: bool = false",
     ResizeNearestGradShape},
    {"Selu", "features: T", "activations: T", "T: floats", UnchangedShape},
    {"SeluGrad", "gradients: T, outputs: T", "backprops: T", "T: floats", MergedInputs},
    {"Softmax", "logits: T", "softmax: T", "T: floats", SoftmaxShape},
    {"SoftmaxCrossEntropyWithLogits", "features: T, labels: T", "loss: T, backprop: T", "T: floats",
     SoftmaxCrossEntropyShape},
    {"Softplus", "features: T", "activations: T", "T: floats", UnchangedShape},
    {"SoftplusGrad", "gradients: T, features: T", "backprops: T", "T: floats", MergedInputs},
    {"Softsign", "features: T", "activations: T", "T: floats", UnchangedShape},
    {"SoftsignGrad", "gradients: T, features: T", "backprops: T", "T: floats", MergedInputs},
    {"SparseSoftmaxCrossEntropyWithLogits", "features: T, labels: Tlabels", "loss: T, backprop: T",
     "T: floats; Tlabels: {int32, int64} = int64", SparseSoftmaxCrossEntropyShape},
    {"TopKV2", "input: T, k: Tk", "values: T, indices: index_type",
     "sorted: bool = true; T: reals; Tk: {int16, int32, int64} = int32; index_type: {int16, int32, "
     "int64} = int32",
     TopKShape},
};

}  // namespace

Status RegisterNnOps(OpRegistry& registry) { return RegisterOps(registry, kOps); }

}  // namespace millrace
