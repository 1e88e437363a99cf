// SPDX-License-Identifier: Apache-2.0
// A value that may be missing: what TensorFlow's branches of functions hand to their gradients.
#ifndef KERNELS_LISTS_OPTIONAL_H_
#define KERNELS_LISTS_OPTIONAL_H_

#include <vector>

#include "kernels/common/nesting.h"
#include "kernels/common/variant.h"

namespace millrace {

// The content of a variant; constant once made.
struct Optional : public RefCounted, public HoldsObjects {
  bool has_value = false;
  std::vector<Tensor> components;  // if it has one
  int within = 0;                  // the nesting of those

  int nesting() const override { return within + 1; }
};

// An optional of these values, as a scalar variant. ResourceExhausted if too many objects
// lie within each other.
StatusOr<Tensor> OptionalOf(std::vector<Tensor> components);

}  // namespace millrace

#endif  // KERNELS_LISTS_OPTIONAL_H_
