// SPDX-License-Identifier: Apache-2.0
// Matrix products: what the ops accept, and the sizes that follow. For the kernels of all devices;
// pure.
#ifndef KERNELS_LINEAR_ALGEBRA_MATMUL_PLAN_H_
#define KERNELS_LINEAR_ALGEBRA_MATMUL_PLAN_H_

#include <cstdint>

#include "kernels/common/broadcast.h"
#include "millrace/shape.h"
#include "millrace/status.h"

namespace millrace {

// c[m, n] = op(a)[m, k] * op(b)[k, n].
struct ProductSizes {
  int64_t m = 0, n = 0, k = 0;
};
// MatMul. InvalidArgument for what does not go together, as below.
StatusOr<ProductSizes> PlanMatMul(const Shape& a, const Shape& b, bool transpose_a,
                                  bool transpose_b);

// BatchMatMul, and those of its versions that repeat matrices (`broadcasts`).
struct BatchProductSizes {
  ProductSizes each;
  BroadcastPlan batches;  // of the axes in front of the matrices'
  Shape out;
};
StatusOr<BatchProductSizes> PlanBatchMatMul(const Shape& x, const Shape& y, bool adj_x, bool adj_y,
                                            bool broadcasts);

}  // namespace millrace

#endif  // KERNELS_LINEAR_ALGEBRA_MATMUL_PLAN_H_
