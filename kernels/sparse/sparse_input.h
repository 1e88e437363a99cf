// SPDX-License-Identifier: Apache-2.0
// Sparse tensors as kernels get them: rows of indices, values, and the dense shape.
#ifndef KERNELS_SPARSE_SPARSE_INPUT_H_
#define KERNELS_SPARSE_SPARSE_INPUT_H_

#include <cstdint>

#include "kernels/common/kernel_util.h"
#include "kernels/kernel_context.h"
#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {

// Parts that fit each other; indices need not lie within the shape.
struct SparseInput {
  Tensor indices;  // int64, [count, rank]
  Tensor values;   // [count]
  Dims shape;      // of `rank` numbers, whose product may be larger than any tensor
  int64_t count = 0;
  int rank = 0;

  const int64_t* row(int64_t i) const { return indices.data<int64_t>() + i * rank; }
};

// Inputs `indices`, which may be int32, and `shape`, and `values` unless it is negative.
// InvalidArgument for parts that do not fit.
StatusOr<SparseInput> ReadSparse(const KernelContext& ctx, int indices, int values, int shape);
// The same; InvalidArgument also for indices that are not within the shape.
StatusOr<SparseInput> ReadSparseWithin(const KernelContext& ctx, int indices, int values,
                                       int shape);

}  // namespace millrace

#endif  // KERNELS_SPARSE_SPARSE_INPUT_H_
