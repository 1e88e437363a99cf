// SPDX-License-Identifier: Apache-2.0
// What CheckNumerics and CheckNumericsV2 say of what they found.
#ifndef KERNELS_COMMON_NUMERICS_ERROR_H_
#define KERNELS_COMMON_NUMERICS_ERROR_H_

#include <string_view>

#include "millrace/status.h"

namespace millrace {

struct FoundNumbers {
  bool nan = false, below = false, above = false;  // NaN, -Inf, +Inf

  bool any() const { return nan || below || above; }
};

// OK where nothing was found; else InvalidArgument with the node's message, in TensorFlow's words.
// `tells_signs` as V2 does.
Status NumericsError(const FoundNumbers& found, std::string_view message, bool tells_signs);

}  // namespace millrace

#endif  // KERNELS_COMMON_NUMERICS_ERROR_H_
