// SPDX-License-Identifier: Apache-2.0
// Rows that are picked by index: what the ops accept, and the sizes that follow. For the kernels of
// all devices; pure.
#ifndef KERNELS_ARRAY_GATHER_PLAN_H_
#define KERNELS_ARRAY_GATHER_PLAN_H_

#include <cstdint>

#include "millrace/shape.h"
#include "millrace/status.h"

namespace millrace {

// Gather and GatherV2: params is [batches, outer, limit, inner], indices are [batches, per_batch],
// the output is [batches, outer, per_batch, inner].
struct GatherPlan {
  Shape out;
  int64_t batches = 1, outer = 1, per_batch = 1, limit = 0, inner = 1;
};
// InvalidArgument for operands that do not go together. `axis` and `batch_dims` as they were given:
// negative ones count from the end, of params and of the indices.
StatusOr<GatherPlan> PlanGather(const Shape& params, const Shape& indices, int64_t axis,
                                int64_t batch_dims);

// ResourceGather, along the axis behind the batch, which is not counted from the end.
StatusOr<GatherPlan> PlanResourceGather(const Shape& params, const Shape& indices,
                                        int64_t batch_dims);

// GatherNd: `count` slices of `inner` elements, named by `depth` indices each.
struct GatherNdPlan {
  Shape out;
  int depth = 0;
  int64_t count = 0, inner = 1;
};
// Likewise.
StatusOr<GatherNdPlan> PlanGatherNd(const Shape& params, const Shape& indices);

// The number of indices that name one slice of a tensor of `rank` axes: the last axis of `indices`.
// InvalidArgument if there is none, or if it is too large.
StatusOr<int> SliceDepth(const Shape& indices, int rank);

}  // namespace millrace

#endif  // KERNELS_ARRAY_GATHER_PLAN_H_
