// SPDX-License-Identifier: Apache-2.0
// Which elements meet when two or three shapes are broadcast against each other (NumPy's
// rules), worked out once as a short list of axes with strides.
#ifndef KERNELS_COMMON_BROADCAST_H_
#define KERNELS_COMMON_BROADCAST_H_

#include <array>
#include <cstdint>
#include <span>

#include "absl/container/inlined_vector.h"
#include "millrace/shape.h"
#include "millrace/status.h"

namespace millrace {

// The broadcast of two shapes. Neighbouring axes of one kind are joined, so that equal shapes
// and a scalar operand become one axis, a row against a matrix two.
struct BroadcastPlan {
  struct Dim {
    int64_t size;
    int64_t a_stride, b_stride;  // in elements; 0 where that side is repeated
  };
  Shape out;
  // Row-major over the output, outermost first; never empty. Strides of the last axis are 0 or 1.
  absl::InlinedVector<Dim, 4> dims;

  int64_t inner_size() const { return dims.back().size; }
  // Calls f(a_offset, b_offset, out_offset, n) for the runs along the last axis that cover
  // outputs [begin, end); stops early when f returns false. Returns what the last f returned.
  template <typename F>
  bool ForEachRun(int64_t begin, int64_t end, F&& f) const;
};

// InvalidArgument "Incompatible shapes: [2,3] vs. [4]" if the shapes do not broadcast.
StatusOr<BroadcastPlan> MakeBroadcastPlan(const Shape& a, const Shape& b);
// The broadcast shape alone.
StatusOr<Shape> BroadcastShapes(const Shape& a, const Shape& b);

template <typename F>
bool BroadcastPlan::ForEachRun(int64_t begin, int64_t end, F&& f) const {
  const Dim& inner = dims.back();
  const int outer_rank = static_cast<int>(dims.size()) - 1;
  if (outer_rank == 0) {
    return begin >= end || f(begin * inner.a_stride, begin * inner.b_stride, begin, end - begin);
  }
  int64_t a = 0, b = 0, flat = begin / inner.size, in_row = begin % inner.size;
  absl::InlinedVector<int64_t, 4> index(outer_rank);
  for (int k = outer_rank - 1; k >= 0; --k) {
    index[k] = flat % dims[k].size;
    flat /= dims[k].size;
    a += index[k] * dims[k].a_stride;
    b += index[k] * dims[k].b_stride;
  }
  while (begin < end) {
    const int64_t n = inner.size - in_row < end - begin ? inner.size - in_row : end - begin;
    if (!f(a + in_row * inner.a_stride, b + in_row * inner.b_stride, begin, n)) return false;
    begin += n;
    in_row = 0;
    for (int k = outer_rank - 1; k >= 0; --k) {
      a += dims[k].a_stride;
      b += dims[k].b_stride;
      if (++index[k] < dims[k].size) break;
      a -= dims[k].a_stride * dims[k].size;
      b -= dims[k].b_stride * dims[k].size;
      index[k] = 0;
    }
  }
  return true;
}

}  // namespace millrace

#endif  // KERNELS_COMMON_BROADCAST_H_
