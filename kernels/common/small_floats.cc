// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/small_floats.h"

#include <algorithm>
#include <bit>

#include "kernels/common/isa.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace millrace::small_floats {
namespace {

// The conversions of float16.h with choices instead of branches, so that loops vectorise.
MR_ALWAYS_INLINE float Wide(Half x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000u) << 16;
  const uint32_t magnitude = x.bits & 0x7fffu, shifted = magnitude << 13;
  const uint32_t normal = shifted + (112u << 23);    // another bias of the exponent
  const uint32_t infinite = shifted + (224u << 23);  // or NaN
  const uint32_t subnormal = std::bit_cast<uint32_t>(
      static_cast<float>(static_cast<int32_t>(magnitude)) * 5.9604644775390625e-8f);
  const uint32_t large = magnitude >= 0x7c00u ? infinite : normal;
  return std::bit_cast<float>((magnitude < 0x400u ? subnormal : large) | sign);
}
MR_ALWAYS_INLINE float Wide(BFloat16 x) {
  return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16);
}

MR_ALWAYS_INLINE void Round(float value, Half* out) {
  const uint32_t u = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (u >> 16) & 0x8000u, magnitude = u & 0x7fffffffu;
  const uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  // The sum rounds where the last bit of a subnormal lies.
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  const uint32_t rebased = magnitude - 0x38000000u;
  const uint32_t normal = (rebased + 0xfffu + ((rebased >> 13) & 1u)) >> 13;
  uint32_t bits = magnitude < 0x38800000u ? subnormal : normal;
  bits = magnitude >= 0x477ff000u ? 0x7c00u : bits;  // rounds to infinity
  bits = magnitude > 0x7f800000u ? nan : bits;
  out->bits = static_cast<uint16_t>(bits | sign);
}
MR_ALWAYS_INLINE void Round(float value, BFloat16* out) {
  const uint32_t u = std::bit_cast<uint32_t>(value);
  const uint32_t nan = (u >> 16) | 0x40u, rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  out->bits = static_cast<uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

template <typename T>
struct WidenLoop {
  static MR_ALWAYS_INLINE void Run(const T* __restrict in, float* __restrict out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = Wide(in[i]);
  }
};
template <typename T>
struct NarrowLoop {
  static MR_ALWAYS_INLINE void Run(const float* __restrict in, T* __restrict out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) Round(in[i], &out[i]);
  }
};
// --- Half by instructions ---------------------------------------------------------------------
// Which processor has them, and what takes their place where it does not.

using WidenFn = void (*)(const Half* in, float* out, int64_t n);
using NarrowFn = void (*)(const float* in, Half* out, int64_t n);
struct HalfLoops {
  WidenFn widen = BestVersion<WidenLoop<Half>>();
  NarrowFn narrow = BestVersion<NarrowLoop<Half>>();
};

#if defined(__x86_64__)
#define MR_TARGET_F16C __attribute__((target("avx,f16c")))
constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

MR_TARGET_AVX512 void Widen16(const Half* in, float* out, int64_t n) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + i));
    _mm512_storeu_ps(out + i, _mm512_maskz_cvtph_ps(0xffff, x));
  }
  for (; i < n; ++i) out[i] = Wide(in[i]);
}
MR_TARGET_AVX512 void Narrow16(const float* in, Half* out, int64_t n) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i),
                        _mm512_maskz_cvtps_ph(0xffff, _mm512_loadu_ps(in + i), kNearest));
  }
  for (; i < n; ++i) Round(in[i], &out[i]);
}
MR_TARGET_F16C void Widen8(const Half* in, float* out, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i));
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(x));
  }
  for (; i < n; ++i) out[i] = Wide(in[i]);
}
MR_TARGET_F16C void Narrow8(const float* in, Half* out, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(in + i), kNearest));
  }
  for (; i < n; ++i) Round(in[i], &out[i]);
}

HalfLoops FindHalfLoops() {
  if (BestIsa() == Isa::kAvx512) return {&Widen16, &Narrow16};
  if (BestIsa() == Isa::kAvx2 && __builtin_cpu_supports("f16c")) return {&Widen8, &Narrow8};
  return {};
}
#else
HalfLoops FindHalfLoops() { return {}; }
#endif

const HalfLoops& ForHalf() {
  static const HalfLoops loops = FindHalfLoops();
  return loops;
}

struct AddFloats {
  static MR_ALWAYS_INLINE void Run(float* a, const float* b, int64_t n) {
    for (int64_t i = 0; i < n; ++i) a[i] += b[i];
  }
};

template <typename T>
void AddBlocks(const T* a, const T* b, T* out, int64_t n) {
  static const auto add = BestVersion<AddFloats>();
  float x[kBlock], y[kBlock];
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t count = std::min(kBlock, n - i);
    Widen(a + i, x, count);
    Widen(b + i, y, count);
    add(x, y, count);
    Narrow(x, out + i, count);
  }
}

}  // namespace

void Widen(const Half* in, float* out, int64_t n) { ForHalf().widen(in, out, n); }
void Narrow(const float* in, Half* out, int64_t n) { ForHalf().narrow(in, out, n); }
void Widen(const BFloat16* in, float* out, int64_t n) {
  static const auto widen = BestVersion<WidenLoop<BFloat16>>();
  widen(in, out, n);
}
void Narrow(const float* in, BFloat16* out, int64_t n) {
  static const auto narrow = BestVersion<NarrowLoop<BFloat16>>();
  narrow(in, out, n);
}

void Add(const Half* a, const Half* b, Half* out, int64_t n) { AddBlocks(a, b, out, n); }
void Add(const BFloat16* a, const BFloat16* b, BFloat16* out, int64_t n) {
  AddBlocks(a, b, out, n);
}

}  // namespace millrace::small_floats
