// SPDX-License-Identifier: Apache-2.0
// Ops that put elements in another place: what they accept, and which elements go where. For the
// kernels of all devices; pure.
#ifndef KERNELS_ARRAY_LAYOUT_PLAN_H_
#define KERNELS_ARRAY_LAYOUT_PLAN_H_

#include <cstdint>

#include "kernels/common/strided_copy.h"
#include "kernels/common/strided_slice_spec.h"
#include "millrace/shape.h"
#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {

// Element src_offset + sum i_k * src_stride_k of the input goes to dst_offset + sum i_k *
// dst_stride_k of the output.
struct LayoutPlan {
  Shape out;
  CopyDims dims;
  int64_t src_offset = 0, dst_offset = 0;  // in elements
  // Nothing moves: the input's elements, in their order, are the output.
  bool same = false;
};

// All of them InvalidArgument for operands that do not go together. The operands that are tensors
// are read on the host, and checked.
StatusOr<LayoutPlan> PlanTranspose(const Shape& in, const Tensor& perm);
StatusOr<LayoutPlan> PlanTile(const Shape& in, const Tensor& multiples);
StatusOr<LayoutPlan> PlanBroadcastTo(const Shape& in, const Tensor& shape);
StatusOr<LayoutPlan> PlanReverse(const Shape& in, const Tensor& axes);
// What is around the input is left to whoever fills it.
StatusOr<LayoutPlan> PlanPad(const Shape& in, const Tensor& paddings);
// What PadV2 fills with is one element.
Status CheckPadValue(const Shape& value);
StatusOr<LayoutPlan> PlanSlice(const Shape& in, const Tensor& begin, const Tensor& size);

// The operands that say what StridedSlice and its gradient take of a tensor.
struct StridedSliceOperands {
  const Tensor &begin, &end, &strides;
};
StatusOr<LayoutPlan> PlanStridedSlice(const Shape& in, const StridedSliceOperands& operands,
                                      const StridedSliceMasks& masks);
// From `gradient`, of the slice, into zeros of the shape `whole`.
StatusOr<LayoutPlan> PlanStridedSliceGrad(const Shape& whole, const StridedSliceOperands& operands,
                                          const StridedSliceMasks& masks, const Shape& gradient);

// Of MirrorPad, and of its gradient, which adds up again what was copied.
struct MirrorPlan {
  Dims inner;   // sizes without the padding
  Dims before;  // how much of it lies before them
  Shape out;
};
// `skip`: 1 if the outermost elements are not repeated (mode REFLECT), else 0.
StatusOr<MirrorPlan> PlanMirrorPad(const Shape& in, const Tensor& paddings, int skip);
StatusOr<MirrorPlan> PlanMirrorPadGrad(const Shape& gradient, const Tensor& paddings, int skip);

}  // namespace millrace

#endif  // KERNELS_ARRAY_LAYOUT_PLAN_H_
