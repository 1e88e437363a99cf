// SPDX-License-Identifier: Apache-2.0
// What Unique, UniqueWithCounts and UniqueV2 without an axis accept. For the kernels of all
// devices.
#ifndef KERNELS_ARRAY_UNIQUE_PLAN_H_
#define KERNELS_ARRAY_UNIQUE_PLAN_H_

#include "base/errors.h"
#include "millrace/shape.h"
#include "millrace/status.h"

namespace millrace {

// InvalidArgument unless `in` is a vector. Pure.
inline Status CheckUnique(const Shape& in) {
  if (in.rank() == 1) return OkStatus();
  return errors::InvalidArgument("unique expects a 1D vector.");
}

}  // namespace millrace

#endif  // KERNELS_ARRAY_UNIQUE_PLAN_H_
