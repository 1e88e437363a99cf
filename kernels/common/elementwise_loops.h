// SPDX-License-Identifier: Apache-2.0
// The loops under elementwise ops, made from functors for each element type, instruction set and
// way to broadcast.
//
// A unary functor has `static constexpr double kCost` and `template <T> static R Do(T)`, a
// binary one `Do(T, T)`; T is the compute type. A binary functor that refuses some second
// operands has `template <T> static bool Valid(T b)` and `Refusal()`, the error; one whose
// steps round to a 16-bit type in between has `template <T> static T DoSmall(T, T)`.
#ifndef KERNELS_COMMON_ELEMENTWISE_LOOPS_H_
#define KERNELS_COMMON_ELEMENTWISE_LOOPS_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/isa.h"
#include "kernels/common/small_floats.h"

// The next loop has no dependence between its iterations although out may be an input.
#if defined(__clang__)
#define MR_IVDEP _Pragma("clang loop vectorize(assume_safety)")
#else
#define MR_IVDEP _Pragma("GCC ivdep")
#endif

namespace millrace {

// out[i] = op(in[i]); `out` may be `in` when elements are of one size.
using UnaryLoopFn = void (*)(const void* in, void* out, int64_t n);

// out[i] = op(a[i * a_stride], b[i * b_stride]); strides are 0 or 1; `out` may be an operand
// of stride 1. False if an operand is not valid for the op; outputs are then undefined.
using BinaryLoopFn = bool (*)(const void* a, int64_t a_stride, const void* b, int64_t b_stride,
                              void* out, int64_t n);

template <typename Op, typename T>
struct UnaryLoop {
  static MR_ALWAYS_INLINE void Run(const void* in_ptr, void* out_ptr, int64_t n) {
    using C = ComputeType<T>;
    using R = decltype(Op::Do(std::declval<C>()));
    using Out = std::conditional_t<std::is_same_v<R, C>, T, R>;
    const T* in = static_cast<const T*>(in_ptr);
    Out* out = static_cast<Out*>(out_ptr);
    MR_IVDEP
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<Out>(Op::Do(static_cast<C>(in[i])));
  }
};

template <typename Op, typename T>
constexpr bool ChecksOperand() {
  return requires(ComputeType<T> b) { Op::Valid(b); };
}

template <typename Op, typename T>
auto ApplyBinary(const T& a, const T& b) {
  using C = ComputeType<T>;
  if constexpr (kIsSmallFloat<T> && requires { Op::DoSmall(a, b); }) {
    return Op::DoSmall(a, b);
  } else {
    return Op::Do(static_cast<C>(a), static_cast<C>(b));
  }
}

// Types that matter for speed get loops for each instruction set and each way to broadcast.
template <typename T>
inline constexpr bool kIsFastType = std::is_same_v<T, float> || std::is_same_v<T, double> ||
                                    std::is_same_v<T, int32_t> || std::is_same_v<T, int64_t>;

template <typename Op, typename T>
struct BinaryLoop {
  static MR_ALWAYS_INLINE bool Run(const void* a_ptr, int64_t a_stride, const void* b_ptr,
                                   int64_t b_stride, void* out_ptr, int64_t n) {
    using C = ComputeType<T>;
    using R = decltype(Op::Do(std::declval<C>(), std::declval<C>()));
    using Out = std::conditional_t<std::is_same_v<R, C>, T, R>;
    const T* a = static_cast<const T*>(a_ptr);
    const T* b = static_cast<const T*>(b_ptr);
    Out* out = static_cast<Out*>(out_ptr);
    if constexpr (ChecksOperand<Op, T>()) {
      const int64_t count = b_stride == 0 ? (n > 0 ? 1 : 0) : n;
      for (int64_t i = 0; i < count; ++i) {
        if (!Op::Valid(static_cast<C>(b[i]))) return false;
      }
    }
    if constexpr (kIsFastType<T>) {
      if (a_stride == 1 && b_stride == 1) {
        MR_IVDEP
        for (int64_t i = 0; i < n; ++i) out[i] = static_cast<Out>(Op::Do(a[i], b[i]));
        return true;
      }
      if (a_stride == 0 && b_stride == 1) {
        const T x = *a;
        MR_IVDEP
        for (int64_t i = 0; i < n; ++i) out[i] = static_cast<Out>(Op::Do(x, b[i]));
        return true;
      }
      if (a_stride == 1 && b_stride == 0) {
        const T y = *b;
        MR_IVDEP
        for (int64_t i = 0; i < n; ++i) out[i] = static_cast<Out>(Op::Do(a[i], y));
        return true;
      }
    }
    for (int64_t i = 0; i < n; ++i) {
      out[i] = static_cast<Out>(ApplyBinary<Op, T>(a[i * a_stride], b[i * b_stride]));
    }
    return true;
  }
};

template <typename Loop, typename T>
auto LoopFor() {
  if constexpr (kIsFastType<T>) {
    return BestVersion<Loop>();
  } else {
    return &IsaVersions<Loop>::Base;
  }
}

// Loops of 16-bit floats: a block is widened, goes through the loop of floats, and is rounded.
template <typename Op, typename T>
struct SmallUnaryLoop {
  static void Run(const void* in_ptr, void* out_ptr, int64_t n) {
    using R = decltype(Op::Do(std::declval<float>()));
    using Out = std::conditional_t<std::is_same_v<R, float>, T, R>;
    static const UnaryLoopFn loop = BestVersion<UnaryLoop<Op, float>>();
    const T* in = static_cast<const T*>(in_ptr);
    Out* out = static_cast<Out*>(out_ptr);
    float block[small_floats::kBlock];
    for (int64_t i = 0; i < n; i += small_floats::kBlock) {
      const int64_t count = std::min(small_floats::kBlock, n - i);
      small_floats::Widen(in + i, block, count);
      if constexpr (std::is_same_v<R, float>) {
        loop(block, block, count);
        small_floats::Narrow(block, out + i, count);
      } else {
        loop(block, out + i, count);
      }
    }
  }
};

template <typename Op, typename T>
struct SmallBinaryLoop {
  static bool Run(const void* a_ptr, int64_t a_stride, const void* b_ptr, int64_t b_stride,
                  void* out_ptr, int64_t n) {
    using R = decltype(Op::Do(std::declval<float>(), std::declval<float>()));
    using Out = std::conditional_t<std::is_same_v<R, float>, T, R>;
    static const BinaryLoopFn loop = BestVersion<BinaryLoop<Op, float>>();
    const T *a = static_cast<const T*>(a_ptr), *b = static_cast<const T*>(b_ptr);
    Out* out = static_cast<Out*>(out_ptr);
    float x[small_floats::kBlock], y[small_floats::kBlock];
    for (int64_t i = 0; i < n; i += small_floats::kBlock) {
      const int64_t count = std::min(small_floats::kBlock, n - i);
      // What is repeated was widened with the first block.
      if (i == 0 || a_stride != 0) small_floats::Widen(a + i * a_stride, x, a_stride ? count : 1);
      if (i == 0 || b_stride != 0) small_floats::Widen(b + i * b_stride, y, b_stride ? count : 1);
      if constexpr (std::is_same_v<R, float>) {
        // Not over an operand that the next block takes again.
        float z[small_floats::kBlock];
        if (!loop(x, a_stride, y, b_stride, z, count)) return false;
        small_floats::Narrow(z, out + i, count);
      } else {
        if (!loop(x, a_stride, y, b_stride, out + i, count)) return false;
      }
    }
    return true;
  }
};

template <typename Op, typename T>
UnaryLoopFn UnaryLoopFor() {
  if constexpr (kIsSmallFloat<T>) {
    return &SmallUnaryLoop<Op, T>::Run;
  } else {
    return LoopFor<UnaryLoop<Op, T>, T>();
  }
}
template <typename Op, typename T>
BinaryLoopFn BinaryLoopFor() {
  // An op whose steps round in between has no float that stands for them.
  if constexpr (kIsSmallFloat<T> && !requires(T x) { Op::DoSmall(x, x); }) {
    return &SmallBinaryLoop<Op, T>::Run;
  } else {
    return LoopFor<BinaryLoop<Op, T>, T>();
  }
}

}  // namespace millrace

#endif  // KERNELS_COMMON_ELEMENTWISE_LOOPS_H_
