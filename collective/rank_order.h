// SPDX-License-Identifier: Apache-2.0
// The order in which the members of a reduction are added up: rings' depends on where in the tensor
// an element lies, rank order does not.
#ifndef COLLECTIVE_RANK_ORDER_H_
#define COLLECTIVE_RANK_ORDER_H_

#include <limits>

#include "collective/collective_executor.h"

namespace millrace {

// CollectiveParams::max_subdivs_per_device of reductions in rank order, which have no rings to
// choose: nodes with the attribute `_in_rank_order`. TensorFlow's do not have it, and get the bits
// that its servers compute.
inline constexpr int kNoRings = std::numeric_limits<int>::min();

inline bool IsInRankOrder(const CollectiveParams& params) {
  return params.kind == CollectiveKind::kReduce && params.max_subdivs_per_device == kNoRings;
}

}  // namespace millrace

#endif  // COLLECTIVE_RANK_ORDER_H_
