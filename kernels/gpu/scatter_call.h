// SPDX-License-Identifier: Apache-2.0
// Gathers and scatters of rows, for tensors and for variables.
#ifndef KERNELS_GPU_SCATTER_CALL_H_
#define KERNELS_GPU_SCATTER_CALL_H_

#include <cstdint>
#include <string_view>

#include "kernels/array/gather_plan.h"
#include "kernels/gpu/body.h"

namespace millrace::gpu {

// out = params[..., indices, ...] as planned; rows out of range become zeros.
Status GatherRows(const Loops& loops, Queue queue, const Tensor& params, const Tensor& indices,
                  const GatherPlan& plan, const Tensor& out);

// Applies updates to the rows of `out` that rows of `depth` indices name, with the call's scratch,
// which must be as large as Loops::scatter_scratch_bytes says. Rows out of range are left out.
Status ScatterRows(const StreamCall& call, const Loops& loops, Queue queue, ScatterOp op,
                   const Tensor& indices, int depth, const Tensor& updates, const Tensor& out);

// The scratch where rows are named by the last axis of `indices`, as ScatterNd's are.
int64_t ScatterNdScratchBytes(const Loops& loops, const Tensor& indices, const Tensor& updates);

// "TensorScatterMax", "ResourceScatterNdSub": the op's name ends in what it does; else kSet.
ScatterOp ScatterOpOf(std::string_view op);

}  // namespace millrace::gpu

#endif  // KERNELS_GPU_SCATTER_CALL_H_
