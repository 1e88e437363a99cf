// SPDX-License-Identifier: Apache-2.0
// Rows that are put where indices say: what the ops accept, and the sizes that follow. For the
// kernels of all devices; pure.
#ifndef KERNELS_ARRAY_SCATTER_PLAN_H_
#define KERNELS_ARRAY_SCATTER_PLAN_H_

#include <cstdint>

#include "millrace/shape.h"
#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {

// `count` slices of `inner` elements, named by `depth` indices each.
struct SlicesPlan {
  int depth = 0;
  int64_t count = 0, inner = 1;
};
// ScatterNd, into zeros of the shape `out`. InvalidArgument for operands that do not go together,
// as of all functions here.
StatusOr<SlicesPlan> PlanScatterNd(const Shape& out, const Shape& indices, const Shape& updates);
// TensorScatterUpdate and its kin, into a copy of a tensor of the shape `tensor`.
StatusOr<SlicesPlan> PlanTensorScatter(const Shape& tensor, const Shape& indices,
                                       const Shape& updates);

// The shape of one row of `data`, behind the axes of `indices`.
Shape RowShape(const Shape& data, const Shape& indices);
// DynamicPartition.
Status CheckPartitions(const Shape& data, const Shape& partitions);
// Operands `i` of DynamicStitch: their shapes against those of the first, and that no index is
// negative. The indices lie on the host.
Status CheckStitched(int i, const Tensor& indices, const Shape& data, const Shape& first_indices,
                     const Shape& first_data);

}  // namespace millrace

#endif  // KERNELS_ARRAY_SCATTER_PLAN_H_
