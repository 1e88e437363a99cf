// SPDX-License-Identifier: Apache-2.0
// Sizes of convolutions and matrix products, for our own loops and for vendors' libraries.
#ifndef KERNELS_GPU_PRODUCTS_H_
#define KERNELS_GPU_PRODUCTS_H_

#include <string_view>

#include "kernels/gpu/body.h"
#include "kernels/nn/conv_plan.h"
#include "millrace/shape.h"

namespace millrace::gpu {

struct ConvGeometryParams {
  int64_t batch = 0, channels = 0, outputs = 0, groups = 1;
  WindowParams rows, cols;
  bool channels_first = false;
  Shape output_shape;  // in the node's order
};

WindowParams ToParams(const WindowAxis& axis);
ImageStrides StridesOf(int64_t height, int64_t width, int64_t channels, bool channels_first);

ConvKind ConvKindOf(std::string_view op);
// `images` in the node's order. InvalidArgument for what does not go together.
StatusOr<ConvGeometryParams> PlanConvolution(const WindowAttrs& attrs, bool depthwise,
                                             const Shape& images, const Shape& filter);
// From the operands of the op: (images, filter), (sizes, filter, gradient) or (images, sizes,
// gradient), with the output's shape already known.
StatusOr<ConvGeometryParams> PlanConvolution(const WindowAttrs& attrs, bool depthwise,
                                             ConvKind kind, const StreamCall& call);

// c[m, n] = op(a)[m, k] * op(b)[k, n], `count` of them; all matrices are row-major.
struct ProductParams {
  int64_t m = 0, n = 0, k = 0, count = 1;
  bool transpose_a = false, transpose_b = false;
  IndexMap<2> batches;  // offsets of a and b, in elements
};
// The attributes of MatMul, _FusedMatMul, BatchMatMul and BatchMatMulV2.
struct ProductAttrs {
  explicit ProductAttrs(KernelConstruction& c);

  bool transpose_a, transpose_b, batches, broadcasts;
};
// InvalidArgument for operands that do not go together, Internal for another output.
StatusOr<ProductParams> PlanProduct(const ProductAttrs& attrs, const Tensor& a, const Tensor& b,
                                    const Tensor& out);

// InvalidArgument unless `bias` has one element per column of the last axis.
Status CheckBias(const Tensor& bias, const Tensor& out);
// In place: one bias per column of the last axis; the op `activation`, none for "".
Status AddBiasAndActivate(const Loops& loops, Queue queue, const Tensor& bias,
                          std::string_view activation, const Tensor& out);
Status Activate(const Loops& loops, Queue queue, std::string_view activation, const Tensor& out);

}  // namespace millrace::gpu

#endif  // KERNELS_GPU_PRODUCTS_H_
