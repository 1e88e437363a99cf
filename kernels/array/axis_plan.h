// SPDX-License-Identifier: Apache-2.0
// Axes that TensorFlow takes from more than scalars. For the kernels of all devices; pure.
#ifndef KERNELS_ARRAY_AXIS_PLAN_H_
#define KERNELS_ARRAY_AXIS_PLAN_H_

#include <cstdint>
#include <string_view>

#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {

// Of ExpandDims and SplitV: the only element of `axis`, whatever its rank. InvalidArgument, naming
// `what`, if there are more or none.
StatusOr<int64_t> OnlyInt(const Tensor& axis, std::string_view what);
// Of concatenations: a scalar, or a vector of one.
StatusOr<int64_t> ConcatAxis(const Tensor& axis);

}  // namespace millrace

#endif  // KERNELS_ARRAY_AXIS_PLAN_H_
