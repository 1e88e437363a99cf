// SPDX-License-Identifier: Apache-2.0
#include "kernels/sparse/sparse_input.h"

#include <algorithm>

#include "base/errors.h"
#include "base/status_macros.h"
#include "tensor/allocator.h"

namespace millrace {

StatusOr<SparseInput> ReadSparse(const KernelContext& ctx, int indices, int values, int shape) {
  SparseInput sparse;
  sparse.indices = ctx.input(indices);
  if (sparse.indices.rank() != 2) {
    return errors::InvalidArgument("Input indices should be a matrix but received shape ",
                                   sparse.indices.shape().DebugString());
  }
  if (sparse.indices.dtype() == kInt32) {
    MR_ASSIGN_OR_RETURN(Tensor wide,
                        Tensor::Allocate(HostAllocator(), kInt64, sparse.indices.shape()));
    std::copy_n(sparse.indices.data<int32_t>(), wide.num_elements(), wide.data<int64_t>());
    sparse.indices = wide;
  }
  MR_ASSIGN_OR_RETURN(sparse.shape, IntVector(ctx.input(shape), "dense_shape", true));
  sparse.count = sparse.indices.dim(0);
  const int64_t rank = sparse.indices.dim(1);  // of any size where there are no rows
  sparse.rank = static_cast<int>(rank);
  if (static_cast<int64_t>(sparse.shape.size()) != rank || rank > INT32_MAX) {
    return errors::InvalidArgument("Input shape should have ", rank,
                                   " elements, as indices have columns, got ", sparse.shape.size());
  }
  if (values < 0) return sparse;
  sparse.values = ctx.input(values);
  if (sparse.values.rank() != 1 || sparse.values.dim(0) != sparse.count) {
    return errors::InvalidArgument("Input values should be a vector of ", sparse.count,
                                   " elements, as indices have rows, got shape ",
                                   sparse.values.shape().DebugString());
  }
  return sparse;
}

StatusOr<SparseInput> ReadSparseWithin(const KernelContext& ctx, int indices, int values,
                                       int shape) {
  MR_ASSIGN_OR_RETURN(SparseInput sparse, ReadSparse(ctx, indices, values, shape));
  for (const int64_t size : sparse.shape) {
    if (size < 0) return errors::InvalidArgument("shape must not be negative, got ", size);
  }
  for (int64_t i = 0; i < sparse.count; ++i) {
    for (int k = 0; k < sparse.rank; ++k) {
      if (sparse.row(i)[k] >= 0 && sparse.row(i)[k] < sparse.shape[k]) continue;
      return errors::InvalidArgument("indices[", i, ",", k, "] = ", sparse.row(i)[k],
                                     " is out of bounds: need 0 <= index < ", sparse.shape[k]);
    }
  }
  return sparse;
}

}  // namespace millrace
