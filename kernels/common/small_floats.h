// SPDX-License-Identifier: Apache-2.0
// 16-bit floats, many at a time: what a loop of floats is put between, since one conversion per
// element would cost more than the loop. The same bits as the conversions of float16.h, but that a
// signalling NaN may become a quiet one. All calls are pure but for what they write.
#ifndef KERNELS_COMMON_SMALL_FLOATS_H_
#define KERNELS_COMMON_SMALL_FLOATS_H_

#include <cstdint>

#include "millrace/float16.h"

namespace millrace::small_floats {

// Elements that are converted at once: their floats stay in the first-level cache.
inline constexpr int64_t kBlock = 512;

void Widen(const Half* in, float* out, int64_t n);
void Widen(const BFloat16* in, float* out, int64_t n);
void Narrow(const float* in, Half* out, int64_t n);
void Narrow(const float* in, BFloat16* out, int64_t n);

// out[i] = a[i] + b[i], rounded once; `out` may be an operand.
void Add(const Half* a, const Half* b, Half* out, int64_t n);
void Add(const BFloat16* a, const BFloat16* b, BFloat16* out, int64_t n);

}  // namespace millrace::small_floats

#endif  // KERNELS_COMMON_SMALL_FLOATS_H_
