// SPDX-License-Identifier: Apache-2.0
// Indices of gathers and scatters, as all of them read and name them.
#ifndef KERNELS_COMMON_SLICE_INDICES_H_
#define KERNELS_COMMON_SLICE_INDICES_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "millrace/shape.h"
#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {

// Number `i` of `indices`, which are of int16, uint16, int32 or int64.
inline int64_t IndexAt(const Tensor& indices, int64_t i) {
  switch (indices.dtype()) {
    case kInt16:
      return indices.data<int16_t>()[i];
    case kUint16:
      return indices.data<uint16_t>()[i];
    case kInt32:
      return indices.data<int32_t>()[i];
    default:
      return indices.data<int64_t>()[i];
  }
}

// "1,2" for element `flat` of `shape`: how messages name a place in the indices.
std::string IndexText(const Shape& shape, int64_t flat);

// InvalidArgument "indices[1,2] = VALUE is not in [0, LIMIT)" of element `flat` of `indices`; a
// scalar has no brackets, as in TensorFlow's text.
Status BadIndex(const Shape& indices, int64_t flat, int64_t value, int64_t limit);

// InvalidArgument "indices[ROW] = [I, J] does not index into WHAT SHAPE" of a row of `indices` that
// points nowhere; ROW counts in each of their leading axes. WHAT is "shape" for scatters, "param
// shape" for gathers.
Status BadSlice(const Tensor& indices, int64_t row, std::string_view what, const Shape& shape);

}  // namespace millrace

#endif  // KERNELS_COMMON_SLICE_INDICES_H_
