// SPDX-License-Identifier: Apache-2.0
// What a StridedSlice takes from a tensor, worked out from its operands and masks.
#ifndef KERNELS_COMMON_STRIDED_SLICE_SPEC_H_
#define KERNELS_COMMON_STRIDED_SLICE_SPEC_H_

#include <cstdint>
#include <span>

#include "millrace/shape.h"
#include "millrace/status.h"
#include "ops/attr_map.h"

namespace millrace {

struct StridedSliceMasks {
  int64_t begin = 0, end = 0, ellipsis = 0, new_axis = 0, shrink_axis = 0;

  // From the attributes begin_mask and so on.
  static StridedSliceMasks FromAttrs(const AttrMap& attrs);
};

struct StridedSliceSpec {
  // Per axis of the input: the first element, the step (never 0), how many are taken.
  Dims begin, step, count;
  // `count` with new axes put in and shrunk ones left out.
  Shape out;
};

// InvalidArgument for a zero stride, more than one ellipsis, too many indices, or an index of
// a shrunk axis out of bounds.
StatusOr<StridedSliceSpec> MakeStridedSliceSpec(const Shape& in, std::span<const int64_t> begin,
                                                std::span<const int64_t> end,
                                                std::span<const int64_t> strides,
                                                const StridedSliceMasks& masks);

}  // namespace millrace

#endif  // KERNELS_COMMON_STRIDED_SLICE_SPEC_H_
