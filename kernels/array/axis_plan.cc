// SPDX-License-Identifier: Apache-2.0
#include "kernels/array/axis_plan.h"

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/kernel_util.h"

namespace millrace {

StatusOr<int64_t> OnlyInt(const Tensor& axis, std::string_view what) {
  if (axis.num_elements() != 1) {
    return errors::InvalidArgument(what, " must have one element, got shape ",
                                   axis.shape().DebugString());
  }
  MR_ASSIGN_OR_RETURN(const Tensor scalar, axis.Reshaped(Shape()));
  return IntScalar(scalar, what);
}

StatusOr<int64_t> ConcatAxis(const Tensor& axis) {
  return axis.rank() > 1 ? IntScalar(axis, "axis") : OnlyInt(axis, "axis");
}

}  // namespace millrace
