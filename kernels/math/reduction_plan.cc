// SPDX-License-Identifier: Apache-2.0
#include "kernels/math/reduction_plan.h"

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/kernel_util.h"

namespace millrace {
namespace {

AxisLines LinesAlong(const Shape& in, int axis) {
  AxisLines lines;
  lines.axis = axis;
  for (int i = 0; i < in.rank(); ++i) {
    (i < axis ? lines.outer : i == axis ? lines.size : lines.inner) *= in.dim(i);
  }
  return lines;
}

}  // namespace

StatusOr<ReducedAxes> ReadReducedAxes(int rank, const Tensor& axes) {
  // Axes in rows count one after the other, as in TensorFlow.
  MR_ASSIGN_OR_RETURN(const Tensor flat, axes.Reshaped(Shape({axes.num_elements()})));
  MR_ASSIGN_OR_RETURN(const Dims given, IntVector(flat, "reduction_indices"));
  ReducedAxes reduced(rank, false);
  for (const int64_t axis : given) {
    if (axis < -rank || axis >= rank) {
      return errors::InvalidArgument("Invalid reduction dimension (", axis, " for input with ",
                                     rank, " dimension(s)");
    }
    const int64_t i = axis < 0 ? axis + rank : axis;
    if (reduced[i]) {
      return errors::InvalidArgument(
          "Invalid reduction arguments: Axes contains duplicate dimension: ", axis);
    }
    reduced[i] = true;
  }
  return reduced;
}

StatusOr<ReductionPlan> PlanReduction(const Shape& in, const Tensor& axes, bool keep_dims) {
  MR_ASSIGN_OR_RETURN(const ReducedAxes reduced, ReadReducedAxes(in.rank(), axes));
  ReductionPlan plan;
  for (int i = 0; i < in.rank(); ++i) {
    const int64_t size = in.dim(i);
    if (!reduced[i]) {
      plan.out.AddDim(size);
    } else {
      plan.reduced_elements *= size;
      if (keep_dims) plan.out.AddDim(1);
    }
    if (size == 1) continue;
    if (!plan.axes.empty() && plan.axes.back().reduced == reduced[i]) {
      plan.axes.back().size *= size;
    } else {
      plan.axes.push_back({size, reduced[i]});
    }
  }
  return plan;
}

StatusOr<AxisLines> PlanArg(const Shape& in, const Tensor& dimension) {
  MR_ASSIGN_OR_RETURN(const int64_t given, IntScalar(dimension, "dim"));
  if (in.rank() == 0) return errors::InvalidArgument("input must have at least one dimension");
  MR_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(given, in.rank(), "Expected dimension"));
  if (in.dim(axis) == 0) {
    return errors::InvalidArgument("Reduction axis ", given, " is empty in shape ",
                                   in.DebugString());
  }
  return LinesAlong(in, axis);
}

StatusOr<AxisLines> PlanScan(const Shape& in, const Tensor& axis) {
  MR_ASSIGN_OR_RETURN(const int64_t given, IntScalar(axis, "axis"));
  MR_ASSIGN_OR_RETURN(const int along, NormalizeAxis(given, in.rank(), "Expected scan axis"));
  return LinesAlong(in, along);
}

}  // namespace millrace
