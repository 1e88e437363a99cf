// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/numerics_error.h"

#include "base/errors.h"

namespace millrace {

Status NumericsError(const FoundNumbers& found, std::string_view message, bool tells_signs) {
  const auto& [nan, below, above] = found;
  const bool inf = below || above;
  if (tells_signs && inf) {
    const char* signs = below && above ? (nan ? "-Inf, +Inf" : "-Inf and +Inf")
                        : below        ? "-Inf"
                                       : "+Inf";
    const char* more = !nan ? "" : below && above ? ", and NaN" : " and NaN";
    return errors::InvalidArgument(message, " : Tensor had ", signs, more, " values");
  }
  if (nan || inf) {
    return errors::InvalidArgument(message, " : Tensor had ",
                                   nan && inf ? "Inf and NaN" : (nan ? "NaN" : "Inf"), " values");
  }
  return OkStatus();
}

}  // namespace millrace
