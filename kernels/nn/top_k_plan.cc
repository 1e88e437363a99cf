// SPDX-License-Identifier: Apache-2.0
#include "kernels/nn/top_k_plan.h"

#include <limits>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/dtype_dispatch.h"

namespace millrace {
namespace {

// From an input of int32, int64 or int16.
StatusOr<int64_t> ReadK(const Tensor& k) {
  if (k.rank() != 0) {
    return errors::InvalidArgument("k must be scalar, got shape ", k.shape().DebugString());
  }
  int64_t value = -1;
  DispatchType(TypeList<int16_t, int32_t, int64_t>(), k.dtype(),
               [&]<typename T>() { value = k.scalar<T>(); });
  if (value < 0) return errors::InvalidArgument("Need k >= 0, got ", value);
  return value;
}

}  // namespace

StatusOr<TopKPlan> PlanTopK(const Shape& input, const Tensor& k, DataType index_type) {
  TopKPlan plan;
  MR_ASSIGN_OR_RETURN(plan.k, ReadK(k));
  if (input.rank() < 1) return errors::InvalidArgument("input must be >= 1-D, got a scalar");
  plan.columns = input.dim(input.rank() - 1);
  if (index_type == kInt16 && plan.columns > std::numeric_limits<int16_t>::max()) {
    return errors::InvalidArgument(
        "Second dimension of flattened input must be <= ", std::numeric_limits<int16_t>::max(),
        ", got ", plan.columns, ": positions of type int16 end there");
  }
  if (plan.columns < plan.k) {
    return errors::InvalidArgument("input must have at least k columns. Had ", plan.columns,
                                   ", needed ", plan.k);
  }
  plan.out = input;
  plan.out.SetDim(plan.out.rank() - 1, plan.k);
  plan.rows = plan.columns == 0 ? 0 : input.num_elements() / plan.columns;
  return plan;
}

Status CheckInTopK(const Shape& predictions, const Shape& targets) {
  if (predictions.rank() == 2 && targets.rank() == 1 && predictions.dim(0) == targets.dim(0)) {
    return OkStatus();
  }
  return errors::InvalidArgument("predictions must be 2-dimensional and targets a vector of ",
                                 "as many rows, got ", predictions.DebugString(), " and ",
                                 targets.DebugString());
}

}  // namespace millrace
