// SPDX-License-Identifier: Apache-2.0
// Dense matrix products on host memory: the arithmetic under MatMul, BatchMatMul and the
// convolutions.
#ifndef KERNELS_COMMON_GEMM_H_
#define KERNELS_COMMON_GEMM_H_

#include <cstdint>

#include "absl/functional/function_ref.h"

namespace millrace {

// Runs body(begin, end) over a partition of [0, n), perhaps on several threads; returns when
// all of it is done. `cost` is nanoseconds per unit.
using ParallelRunner =
    absl::FunctionRef<void(int64_t n, double cost, absl::FunctionRef<void(int64_t, int64_t)> body)>;

// A matrix as it lies: element (i, j) is data[i * row_stride + j * col_stride], so that a
// transposed operand is one with its strides exchanged.
template <typename T>
struct MatrixView {
  const T* data;
  int64_t row_stride;
  int64_t col_stride;
};

// Told of a part of c that is done, by the thread that made it: its first row and column, and how
// many of them.
using GemmEpilogue =
    absl::FunctionRef<void(int64_t row, int64_t rows, int64_t column, int64_t columns)>;

// c[m, n] = a[m, k] * b[k, n], or c += with `accumulate`; rows of c are contiguous and
// c_stride apart. c must not overlap a or b. The order of summation depends on the sizes
// alone, never on the number of threads. Takes no memory once a thread has seen its largest
// problem. T: float, double.
template <typename T>
void Gemm(int64_t m, int64_t n, int64_t k, MatrixView<T> a, MatrixView<T> b, T* c, int64_t c_stride,
          bool accumulate, ParallelRunner parallel, const GemmEpilogue* epilogue = nullptr);

extern template void Gemm<float>(int64_t, int64_t, int64_t, MatrixView<float>, MatrixView<float>,
                                 float*, int64_t, bool, ParallelRunner, const GemmEpilogue*);
extern template void Gemm<double>(int64_t, int64_t, int64_t, MatrixView<double>, MatrixView<double>,
                                  double*, int64_t, bool, ParallelRunner, const GemmEpilogue*);

}  // namespace millrace

#endif  // KERNELS_COMMON_GEMM_H_
