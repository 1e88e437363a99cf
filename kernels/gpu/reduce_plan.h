// SPDX-License-Identifier: Apache-2.0
// How a reduction is spread over threads.
#ifndef KERNELS_GPU_REDUCE_PLAN_H_
#define KERNELS_GPU_REDUCE_PLAN_H_

#include <cstdint>
#include <vector>

#include "kernels/gpu/loops/loops.h"
#include "millrace/shape.h"

namespace millrace::gpu {

// Sets `kept`, `reduced` and `by_column` for an input of that shape. False for too many axes.
bool PlanReduction(const Shape& in, const std::vector<bool>& reduced, ReduceParams* p);

// Partial results per output, by sizes alone, so that results repeat. At least 1.
int64_t PlanChunks(bool by_column, int64_t outputs, int64_t count);

// Pieces of each of `lines` lines of `size` elements `inner` apart that are scanned, by sizes
// alone. At least 1.
int64_t PlanScanChunks(int64_t lines, int64_t size, int64_t inner);

}  // namespace millrace::gpu

#endif  // KERNELS_GPU_REDUCE_PLAN_H_
