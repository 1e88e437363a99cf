// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/broadcast.h"

#include <algorithm>

#include "base/errors.h"
#include "base/status_macros.h"

namespace millrace {
namespace {

Status Incompatible(const Shape& a, const Shape& b) {
  return errors::InvalidArgument("Incompatible shapes: ", a.DebugString(), " vs. ",
                                 b.DebugString());
}

// Size of axis k counted from the innermost; 1 beyond the rank.
int64_t DimFromEnd(const Shape& s, int k) { return k < s.rank() ? s.dim(s.rank() - 1 - k) : 1; }

}  // namespace

StatusOr<Shape> BroadcastShapes(const Shape& a, const Shape& b) {
  const int rank = std::max(a.rank(), b.rank());
  Dims dims(rank);
  for (int k = 0; k < rank; ++k) {
    const int64_t da = DimFromEnd(a, k), db = DimFromEnd(b, k);
    if (da != db && da != 1 && db != 1) return Incompatible(a, b);
    dims[rank - 1 - k] = da == 1 ? db : da;
  }
  return MakeShape(std::span<const int64_t>(dims.data(), dims.size()));
}

StatusOr<BroadcastPlan> MakeBroadcastPlan(const Shape& a, const Shape& b) {
  BroadcastPlan plan;
  if (a == b) {
    plan.out = a;
    plan.dims.push_back({a.num_elements(), 1, 1});
    return plan;
  }
  MR_ASSIGN_OR_RETURN(plan.out, BroadcastShapes(a, b));
  if (plan.out.num_elements() == 0) {
    plan.dims.push_back({0, 1, 1});
    return plan;
  }
  // From the innermost axis outwards; joined while the pair of "repeated" flags stays the same.
  absl::InlinedVector<BroadcastPlan::Dim, 4> inside_out;
  int64_t a_step = 1, b_step = 1;
  for (int k = 0; k < plan.out.rank(); ++k) {
    const int64_t da = DimFromEnd(a, k), db = DimFromEnd(b, k), size = DimFromEnd(plan.out, k);
    if (size == 1) continue;
    const int64_t sa = da == 1 ? 0 : a_step, sb = db == 1 ? 0 : b_step;
    if (!inside_out.empty() && (inside_out.back().a_stride == 0) == (sa == 0) &&
        (inside_out.back().b_stride == 0) == (sb == 0)) {
      inside_out.back().size *= size;
    } else {
      inside_out.push_back({size, sa, sb});
    }
    a_step *= da;
    b_step *= db;
  }
  if (inside_out.empty()) inside_out.push_back({1, 1, 1});
  plan.dims.assign(inside_out.rbegin(), inside_out.rend());
  return plan;
}

}  // namespace millrace
