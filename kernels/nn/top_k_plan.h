// SPDX-License-Identifier: Apache-2.0
// The largest of rows: what the ops accept, and the sizes that follow. For the
// kernels of all devices; pure.
#ifndef KERNELS_NN_TOP_K_PLAN_H_
#define KERNELS_NN_TOP_K_PLAN_H_

#include <cstdint>

#include "millrace/dtype.h"
#include "millrace/shape.h"
#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {

// TopKV2: the `k` largest of each of `rows` of `columns` elements; no rows without elements.
struct TopKPlan {
  Shape out;
  int64_t rows = 0, columns = 0, k = 0;
};
// `k` lies on the host; places are told in `index_type`. InvalidArgument for what does not go
// together, as below.
StatusOr<TopKPlan> PlanTopK(const Shape& input, const Tensor& k, DataType index_type);
// InTopK and InTopKV2: a target for each row of predictions.
Status CheckInTopK(const Shape& predictions, const Shape& targets);

}  // namespace millrace

#endif  // KERNELS_NN_TOP_K_PLAN_H_
