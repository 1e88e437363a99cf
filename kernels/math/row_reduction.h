// SPDX-License-Identifier: Apache-2.0
// How the reduction kernels make one value of a row: for kernels that have the row at hand already.
#ifndef KERNELS_MATH_ROW_REDUCTION_H_
#define KERNELS_MATH_ROW_REDUCTION_H_

#include <cstdint>
#include <string_view>

#include "millrace/dtype.h"

namespace millrace {

// Elements of a partial result when everything is reduced to one value.
inline constexpr int64_t kReductionBlock = int64_t{1} << 15;

// Values are of the rows' element type. The same bits as the kernel of the op gives.
struct RowReduction {
  // *out becomes the value of `n` elements.
  void (*reduce)(const void* in, int64_t n, void* out) = nullptr;
  // What is left to do to each of `rows` values when there is more than one row.
  void (*finish_rows)(void* values, int64_t rows) = nullptr;
  // Divides each of `rows` values by the elements in it; null unless the op is a mean.
  void (*divide)(void* values, int64_t rows, int64_t n) = nullptr;
};

// Of "Sum", "Mean", "Max" and "Min" for float and double; false for everything else.
bool FindRowReduction(std::string_view op, DataType type, RowReduction* found);

}  // namespace millrace

#endif  // KERNELS_MATH_ROW_REDUCTION_H_
