// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/strided_slice_spec.h"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "base/errors.h"

namespace millrace {
namespace {

bool HasBit(int64_t mask, int i) { return i < 63 && ((mask >> i) & 1) != 0; }

// One index of the slice against an axis of `size`, as Python would: out-of-range ends are
// pulled in.
void SliceAxis(int64_t size, int64_t begin, int64_t end, int64_t step, bool open_begin,
               bool open_end, StridedSliceSpec* spec) {
  const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
  auto canonical = [&](int64_t x, bool open, int64_t if_open) {
    if (open) return if_open;
    return std::clamp(x < 0 ? x + size : x, low, high);
  };
  const int64_t b = canonical(begin, open_begin, step > 0 ? low : high);
  const int64_t e = canonical(end, open_end, step > 0 ? high : low);
  const int64_t span = e - b;
  int64_t count = 0;
  if (span != 0 && (span < 0) == (step < 0)) count = span / step + (span % step != 0 ? 1 : 0);
  spec->begin.push_back(b);
  spec->step.push_back(step);
  spec->count.push_back(count);
}

}  // namespace

StridedSliceMasks StridedSliceMasks::FromAttrs(const AttrMap& attrs) {
  StridedSliceMasks m;
  m.begin = attrs.GetOr<int64_t>("begin_mask", 0);
  m.end = attrs.GetOr<int64_t>("end_mask", 0);
  m.ellipsis = attrs.GetOr<int64_t>("ellipsis_mask", 0);
  m.new_axis = attrs.GetOr<int64_t>("new_axis_mask", 0);
  m.shrink_axis = attrs.GetOr<int64_t>("shrink_axis_mask", 0);
  return m;
}

StatusOr<StridedSliceSpec> MakeStridedSliceSpec(const Shape& in, std::span<const int64_t> begin,
                                                std::span<const int64_t> end,
                                                std::span<const int64_t> strides,
                                                const StridedSliceMasks& masks) {
  const int n = static_cast<int>(begin.size());
  if (end.size() != begin.size() || strides.size() != begin.size() || n > 32) {
    return errors::InvalidArgument(
        "Expected begin, end, and strides to be 1D equal size tensors of at most 32 elements, "
        "but got ",
        begin.size(), ", ", end.size(), " and ", strides.size());
  }
  // Bits beyond the indices count, too.
  if (std::popcount(static_cast<uint64_t>(masks.ellipsis)) > 1) {
    return errors::InvalidArgument("Multiple ellipses in slice spec not allowed");
  }
  int ellipsis = -1, consumed = 0;
  for (int i = 0; i < n; ++i) {
    if (HasBit(masks.ellipsis, i)) {
      ellipsis = i;
    } else if (!HasBit(masks.new_axis, i)) {
      ++consumed;
    }
  }
  if (consumed > in.rank()) {
    return errors::InvalidArgument("Index out of range using input dim ", in.rank(),
                                   "; input has only ", in.rank(), " dims");
  }
  StridedSliceSpec spec;
  Dims out;
  int axis = 0;
  auto take_whole = [&](int count) {
    for (int k = 0; k < count; ++k, ++axis) {
      spec.begin.push_back(0);
      spec.step.push_back(1);
      spec.count.push_back(in.dim(axis));
      out.push_back(in.dim(axis));
    }
  };
  for (int i = 0; i < n; ++i) {
    if (i == ellipsis) {
      take_whole(in.rank() - consumed);
      continue;
    }
    if (HasBit(masks.new_axis, i)) {
      out.push_back(1);
      continue;
    }
    const int64_t size = in.dim(axis), step = strides[i];
    if (step == 0) return errors::InvalidArgument("strides[", i, "] must be non-zero");
    if (HasBit(masks.shrink_axis, i)) {
      if (step < 0) {
        return errors::InvalidArgument("only stride 1 allowed on non-range indexing.");
      }
      // A mask that opens the beginning says nothing about a single element.
      const int64_t at = begin[i] < 0 ? begin[i] + size : begin[i];
      if (at < 0 || at >= size) {
        return errors::InvalidArgument("slice index ", begin[i], " of dimension ", axis,
                                       " out of bounds.");
      }
      spec.begin.push_back(at);
      spec.step.push_back(1);
      spec.count.push_back(1);
    } else {
      SliceAxis(size, begin[i], end[i], step, HasBit(masks.begin, i), HasBit(masks.end, i), &spec);
      out.push_back(spec.count.back());
    }
    ++axis;
  }
  take_whole(in.rank() - axis);
  spec.out = Shape(std::span<const int64_t>(out.data(), out.size()));
  return spec;
}

}  // namespace millrace
