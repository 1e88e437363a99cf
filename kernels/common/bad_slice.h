// SPDX-License-Identifier: Apache-2.0
// Errors of gathers and scatters by full index, where a row of the indices points nowhere.
#ifndef KERNELS_COMMON_BAD_SLICE_H_
#define KERNELS_COMMON_BAD_SLICE_H_

#include <cstdint>
#include <string_view>

#include "millrace/shape.h"
#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {

// InvalidArgument "indices[ROW] = [I, J] does not index into WHAT SHAPE": ROW is the place of the
// row, counted from 0 in each of the leading axes of `indices` (int16, int32 or int64). WHAT is
// "shape" for scatters, "param shape" for gathers.
Status BadSlice(const Tensor& indices, int64_t row, std::string_view what, const Shape& shape);

}  // namespace millrace

#endif  // KERNELS_COMMON_BAD_SLICE_H_
