// SPDX-License-Identifier: Apache-2.0
// Reductions along axes: what the ops accept, and the sizes that follow. For the kernels of all
// devices; pure.
#ifndef KERNELS_MATH_REDUCTION_PLAN_H_
#define KERNELS_MATH_REDUCTION_PLAN_H_

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "millrace/shape.h"
#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {

// Whether an axis is reduced, for each axis of the input.
using ReducedAxes = absl::InlinedVector<bool, 8>;
// From `axes`, which lies on the host. InvalidArgument for an axis that is none or is there twice.
StatusOr<ReducedAxes> ReadReducedAxes(int rank, const Tensor& axes);

// How a reduction reads its input and what shape comes out.
struct ReductionPlan {
  struct Axis {
    int64_t size;
    bool reduced;
  };
  absl::InlinedVector<Axis, 4> axes;  // alternating, without axes of size 1
  Shape out;
  int64_t reduced_elements = 1;  // inputs per output
};
// Likewise.
StatusOr<ReductionPlan> PlanReduction(const Shape& in, const Tensor& axes, bool keep_dims);

// Around one axis: [outer, size, inner].
struct AxisLines {
  int axis = 0;
  int64_t outer = 1, size = 1, inner = 1;
};
// ArgMax and ArgMin: InvalidArgument for an axis that is none, or empty.
StatusOr<AxisLines> PlanArg(const Shape& in, const Tensor& dimension);
// Cumsum and Cumprod: InvalidArgument for an axis that is none.
StatusOr<AxisLines> PlanScan(const Shape& in, const Tensor& axis);

}  // namespace millrace

#endif  // KERNELS_MATH_REDUCTION_PLAN_H_
