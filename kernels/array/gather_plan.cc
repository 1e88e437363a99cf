// SPDX-License-Identifier: Apache-2.0
#include "kernels/array/gather_plan.h"

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/kernel_util.h"

namespace millrace {

StatusOr<GatherPlan> PlanGather(const Shape& params, const Shape& indices, int64_t axis,
                                int64_t batch_dims) {
  if (params.rank() == 0) {
    return errors::InvalidArgument("params must be at least 1 dimensional");
  }
  MR_ASSIGN_OR_RETURN(const int along, NormalizeAxis(axis, params.rank(), "Expected axis"));
  const int64_t batch = batch_dims < 0 ? batch_dims + indices.rank() : batch_dims;
  if (batch < 0 || batch > indices.rank() || batch > along) {
    return errors::InvalidArgument("batch_dims (", batch_dims, ") must be at most rank(indices) (",
                                   indices.rank(), ") and axis (", along, ")");
  }
  // params[:axis] + indices[batch:] + params[axis+1:].
  GatherPlan plan;
  Shape shape;
  for (int i = 0; i < along; ++i) {
    if (i < batch && params.dim(i) != indices.dim(i)) {
      return errors::InvalidArgument("params.shape[", i, "]: ", params.dim(i),
                                     " should be equal to indices.shape[", i,
                                     "]: ", indices.dim(i));
    }
    (i < batch ? plan.batches : plan.outer) *= params.dim(i);
    shape.AddDim(params.dim(i));
  }
  for (int i = static_cast<int>(batch); i < indices.rank(); ++i) {
    plan.per_batch *= indices.dim(i);
    shape.AddDim(indices.dim(i));
  }
  for (int i = along + 1; i < params.rank(); ++i) {
    plan.inner *= params.dim(i);
    shape.AddDim(params.dim(i));
  }
  plan.limit = params.dim(along);
  // A product of two shapes may be too large for one.
  MR_ASSIGN_OR_RETURN(plan.out, MakeShape(shape.dims()));
  return plan;
}

StatusOr<GatherPlan> PlanResourceGather(const Shape& params, const Shape& indices,
                                        int64_t batch_dims) {
  if (batch_dims < 0 || params.rank() <= batch_dims || indices.rank() < batch_dims) {
    return errors::InvalidArgument("params must be at least ", batch_dims + 1,
                                   "-dimensional, got shape ", params.DebugString());
  }
  for (int i = 0; i < batch_dims; ++i) {
    if (params.dim(i) == indices.dim(i)) continue;
    return errors::InvalidArgument("batch dimensions differ: ", params.DebugString(), " vs. ",
                                   indices.DebugString());
  }
  return PlanGather(params, indices, batch_dims, batch_dims);
}

StatusOr<int> SliceDepth(const Shape& indices, int rank) {
  if (indices.rank() < 1) return errors::InvalidArgument("indices must be at least a vector");
  const int64_t depth = indices.dim(indices.rank() - 1);
  if (depth <= rank) return static_cast<int>(depth);
  return errors::InvalidArgument(
      "index innermost dimension length must be <= params rank; saw: ", depth, " vs. ", rank);
}

StatusOr<GatherNdPlan> PlanGatherNd(const Shape& params, const Shape& indices) {
  if (params.rank() < 1) return errors::InvalidArgument("params must be at least a vector");
  GatherNdPlan plan;
  MR_ASSIGN_OR_RETURN(plan.depth, SliceDepth(indices, params.rank()));
  const Shape places(indices.dims().first(indices.rank() - 1));
  Shape shape = places;
  for (int i = plan.depth; i < params.rank(); ++i) {
    shape.AddDim(params.dim(i));
    plan.inner *= params.dim(i);
  }
  MR_ASSIGN_OR_RETURN(plan.out, MakeShape(shape.dims()));
  plan.count = places.num_elements();
  if (params.num_elements() == 0 && plan.count > 0) {
    return errors::InvalidArgument("Requested more than 0 entries, but params is empty.  ",
                                   "Params shape: ", params.DebugString());
  }
  return plan;
}

}  // namespace millrace
