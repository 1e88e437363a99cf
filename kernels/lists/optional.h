// SPDX-License-Identifier: Apache-2.0
// A value that may be missing: what TensorFlow's branches of functions hand to their gradients.
#ifndef KERNELS_LISTS_OPTIONAL_H_
#define KERNELS_LISTS_OPTIONAL_H_

#include <vector>

#include "kernels/common/variant.h"

namespace millrace {

// The content of a variant; constant once made.
struct Optional : public RefCounted {
  bool has_value = false;
  std::vector<Tensor> components;  // if it has one
  int depth = 0;                   // of optionals within it
};

// An optional of these values, as a scalar variant. ResourceExhausted if optionals lie within
// optionals deeper than a stack can follow.
StatusOr<Tensor> OptionalOf(std::vector<Tensor> components);

}  // namespace millrace

#endif  // KERNELS_LISTS_OPTIONAL_H_
