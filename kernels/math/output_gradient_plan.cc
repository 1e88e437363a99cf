// SPDX-License-Identifier: Apache-2.0
#include "kernels/math/output_gradient_plan.h"

#include "base/errors.h"

namespace millrace {

Status CheckSameCount(const Shape& y, const Shape& dy) {
  if (y.num_elements() == dy.num_elements()) return OkStatus();
  return errors::InvalidArgument(
      "The two arguments to a cwise op must have same number of elements, got ", y.num_elements(),
      " and ", dy.num_elements());
}

}  // namespace millrace
