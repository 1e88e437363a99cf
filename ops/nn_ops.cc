// Layers of neural networks and their gradients.
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

constexpr OpSpec kOps[] = {
    {"AvgPool", "value: T", "output: T",
     "ksize: list(int) >= 4; strides: list(int) >= 4; padding: {'SAME', 'VALID'}; data_format: "
     "{'NHWC', 'NCHW'} = 'NHWC'; T: floats",
     PoolShape},
    {"AvgPoolGrad", "orig_input_shape: int32, grad: T", "output: T",
     "ksize: list(int) >= 4; strides: list(int) >= 4; padding: {'SAME', 'VALID'}; data_format: "
     "{'NHWC', 'NCHW'} = 'NHWC'; T: floats",
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
    {"MaxPoolGrad", "orig_input: T, orig_output: T, grad: T", "output: T",
     "ksize: list(int) >= 4; strides: list(int) >= 4; padding: {'SAME', 'VALID', 'EXPLICIT'}; "
     "explicit_paddings: list(int) = []; data_format: {'NHWC', 'NCHW'} = 'NHWC'; T: reals = float",
     UnchangedShape},
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
