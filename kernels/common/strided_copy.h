// SPDX-License-Identifier: Apache-2.0
// Moves elements between two strided layouts: the one loop under slices, transposes,
// concatenations, padding, tiling and broadcasts.
#ifndef KERNELS_COMMON_STRIDED_COPY_H_
#define KERNELS_COMMON_STRIDED_COPY_H_

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "millrace/dtype.h"
#include "millrace/shape.h"

namespace millrace {

class KernelContext;

// One axis of the copy. Strides are in elements; 0 repeats, a negative one goes backwards.
struct CopyDim {
  int64_t size = 0;
  int64_t src_stride = 0;
  int64_t dst_stride = 0;
};
using CopyDims = absl::InlinedVector<CopyDim, 8>;

// For all index tuples i: dst[sum i_k * dst_stride_k] = src[sum i_k * src_stride_k]. `src` and
// `dst` point at the elements of index 0 and are of type `dtype`; they do not overlap, and no
// destination is written twice. Shared over the context's pool when large. False if elements
// of `dtype` cannot be moved.
bool CopyStrided(const KernelContext& ctx, DataType dtype, const void* src, void* dst,
                 CopyDims dims);

// Sets `n` elements at `dst` to the one at `value`. False as above.
bool FillWith(const KernelContext& ctx, DataType dtype, const void* value, void* dst, int64_t n);
// Sets all elements to zero, false, or empty. False as above.
bool FillZero(const KernelContext& ctx, DataType dtype, void* dst, int64_t n);

// Address of element `index`.
inline const void* ElementAt(const void* base, DataType dtype, int64_t index) {
  return static_cast<const char*>(base) + index * static_cast<int64_t>(DataTypeSize(dtype));
}
inline void* ElementAt(void* base, DataType dtype, int64_t index) {
  return static_cast<char*>(base) + index * static_cast<int64_t>(DataTypeSize(dtype));
}

// Strides of a dense row-major layout.
Dims RowMajorStrides(std::span<const int64_t> dims);

}  // namespace millrace

#endif  // KERNELS_COMMON_STRIDED_COPY_H_
