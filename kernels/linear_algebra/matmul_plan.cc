// SPDX-License-Identifier: Apache-2.0
#include "kernels/linear_algebra/matmul_plan.h"

#include "base/errors.h"
#include "base/status_macros.h"

namespace millrace {
namespace {

// Of the last two axes.
StatusOr<ProductSizes> SizesOf(const Shape& a, const Shape& b, bool transpose_a, bool transpose_b) {
  const int64_t a_rows = a.dim(a.rank() - 2), a_columns = a.dim(a.rank() - 1);
  const int64_t b_rows = b.dim(b.rank() - 2), b_columns = b.dim(b.rank() - 1);
  const int64_t k = transpose_a ? a_rows : a_columns;
  if ((transpose_b ? b_columns : b_rows) != k) {
    return errors::InvalidArgument("Matrix size-incompatible: In[0]: ", a.DebugString(),
                                   ", In[1]: ", b.DebugString());
  }
  return ProductSizes{transpose_a ? a_columns : a_rows, transpose_b ? b_rows : b_columns, k};
}

}  // namespace

StatusOr<ProductSizes> PlanMatMul(const Shape& a, const Shape& b, bool transpose_a,
                                  bool transpose_b) {
  if (a.rank() != 2 || b.rank() != 2) {
    const bool first = a.rank() != 2;
    return errors::InvalidArgument("In[", first ? 0 : 1, "] is not a matrix. Instead it has shape ",
                                   (first ? a : b).DebugString());
  }
  return SizesOf(a, b, transpose_a, transpose_b);
}

StatusOr<BatchProductSizes> PlanBatchMatMul(const Shape& x, const Shape& y, bool adj_x, bool adj_y,
                                            bool broadcasts) {
  if (x.rank() < 2 || y.rank() < 2) {
    const bool first = x.rank() < 2;
    return errors::InvalidArgument("In[", first ? 0 : 1,
                                   "] ndims must be >= 2: ", (first ? x : y).rank());
  }
  const Shape x_batch(x.dims().first(x.rank() - 2)), y_batch(y.dims().first(y.rank() - 2));
  if (!broadcasts && !(x_batch == y_batch)) {
    return errors::InvalidArgument("In[0] and In[1] must have compatible batch dimensions: ",
                                   x.DebugString(), " vs. ", y.DebugString());
  }
  BatchProductSizes sizes;
  MR_ASSIGN_OR_RETURN(sizes.batches, MakeBroadcastPlan(x_batch, y_batch));
  MR_ASSIGN_OR_RETURN(sizes.each, SizesOf(x, y, adj_x, adj_y));
  sizes.out = sizes.batches.out;
  sizes.out.AddDim(sizes.each.m);
  sizes.out.AddDim(sizes.each.n);
  return sizes;
}

}  // namespace millrace
