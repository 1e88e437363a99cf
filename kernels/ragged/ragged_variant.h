// SPDX-License-Identifier: Apache-2.0
// Rows of different lengths as one value: what maps over them and loops hand on.
#ifndef KERNELS_RAGGED_RAGGED_VARIANT_H_
#define KERNELS_RAGGED_RAGGED_VARIANT_H_

#include <vector>

#include "kernels/common/variant.h"

namespace millrace {

// The content of a variant; constant once made.
struct RaggedVariant : public RefCounted {
  std::vector<Tensor> splits;  // vectors, outermost first
  Tensor values;
};

}  // namespace millrace

#endif  // KERNELS_RAGGED_RAGGED_VARIANT_H_
