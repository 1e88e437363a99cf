// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/nesting.h"

#include <algorithm>

#include "base/errors.h"
#include "kernels/common/variant.h"

namespace millrace {

int NestingWithin(const Tensor& tensor) {
  if (tensor.dtype() != kVariant) return 0;
  int nesting = 0;
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    const RefCounted* const object = tensor.data<Variant>()[i].get();
    if (object == nullptr) continue;
    const auto* const holder = dynamic_cast<const HoldsObjects*>(object);
    nesting = std::max(nesting, holder != nullptr ? holder->nesting() : 1);
  }
  return nesting;
}

Status CheckNesting(const Tensor& tensor) {
  if (NestingWithin(tensor) < kMostNested) return OkStatus();
  return errors::ResourceExhausted("variants within variants (lists, optionals, data sets), more ",
                                   "than ", kMostNested, " deep");
}

}  // namespace millrace
