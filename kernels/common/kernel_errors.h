// SPDX-License-Identifier: Apache-2.0
// Errors of kernels that no client causes, in one place for all devices.
#ifndef KERNELS_COMMON_KERNEL_ERRORS_H_
#define KERNELS_COMMON_KERNEL_ERRORS_H_

#include <string_view>

#include "base/errors.h"
#include "millrace/dtype.h"
#include "millrace/status.h"

namespace millrace {

// Compute of a kernel that is asynchronous.
inline Status CompletesAsynchronously(std::string_view op) {
  return errors::Internal(op, " completes only asynchronously");
}
// A Merge that the executor should not have run.
inline Status NoLiveInput() { return errors::Internal("a merge ran without a live input"); }
// Unless the attribute `value` of a constant is of its attribute `dtype`.
inline Status CheckConstant(DataType value, DataType dtype) {
  if (value == BaseType(dtype)) return OkStatus();
  return errors::InvalidArgument("Type mismatch between value (", DataTypeName(value),
                                 ") and dtype (", DataTypeName(dtype), ")");
}
// Input 0 of the node is a value where the op takes a reference.
inline Status NeedsReference(std::string_view node) {
  return errors::InvalidArgument("input 0 of ", node, " must be a reference to a variable");
}

}  // namespace millrace

#endif  // KERNELS_COMMON_KERNEL_ERRORS_H_
