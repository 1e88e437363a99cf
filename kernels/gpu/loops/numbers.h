// SPDX-License-Identifier: Apache-2.0
// What loops over elements are made of, for the host's compiler and for nvcc: which functions
// run where, element types and what they are computed in.
//
// Everything in this folder named *_loops.h is compiled twice: by g++ with the HostLauncher, so
// that tests check every index and every formula on any machine, and by nvcc with the
// CudaLauncher of kernels/cuda. It includes nothing that nvcc could trip over.
#ifndef KERNELS_GPU_LOOPS_NUMBERS_H_
#define KERNELS_GPU_LOOPS_NUMBERS_H_

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/common/host_device.h"
#include "millrace/dtype.h"

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace millrace::gpu {

// 16 bytes that are only moved.
struct Bytes16 {
  uint64_t lo, hi;
};

template <typename T>
struct ComputeTypeT {
  using type = T;
};
template <>
struct ComputeTypeT<Half> {
  using type = float;
};
template <>
struct ComputeTypeT<BFloat16> {
  using type = float;
};
// What arithmetic on T is done in: 16-bit floats go through float.
template <typename T>
using ComputeType = typename ComputeTypeT<T>::type;

template <typename T>
inline constexpr bool kIsSmallFloat = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;

// An element as a number.
template <typename T>
MR_HD ComputeType<T> Widen(T value) {
  if constexpr (std::is_same_v<T, Half>) {
#if defined(__CUDA_ARCH__)
    return __half2float(__ushort_as_half(value.bits));
#else
    return static_cast<float>(value);
#endif
  } else if constexpr (std::is_same_v<T, BFloat16>) {
#if defined(__CUDA_ARCH__)
    return __uint_as_float(static_cast<uint32_t>(value.bits) << 16);
#else
    return static_cast<float>(value);
#endif
  } else {
    return value;
  }
}

// A number as an element, rounded to nearest even.
template <typename T>
MR_HD T Narrow(ComputeType<T> value) {
  if constexpr (std::is_same_v<T, Half>) {
#if defined(__CUDA_ARCH__)
    Half h;
    h.bits = __half_as_ushort(__float2half_rn(value));
    return h;
#else
    return Half(value);
#endif
  } else if constexpr (std::is_same_v<T, BFloat16>) {
#if defined(__CUDA_ARCH__)
    BFloat16 b;
    b.bits = __bfloat16_as_ushort(__float2bfloat16_rn(value));
    return b;
#else
    return BFloat16(value);
#endif
  } else {
    return value;
  }
}

// What an operation left behind: null, or why it could not be started, a text that lives on.
using Outcome = const char*;
inline constexpr Outcome kNoLoop = "there is no loop for this element type";

// What a member of a team gets of a scan of all members' values, in the order of their ranks.
template <typename T>
struct Scanned {
  T before;  // those of lower ranks together
  T all;
};

template <typename... Ts>
struct Types {};
using Floats = Types<float, double, Half, BFloat16>;
using FloatsAndInt64 = Types<float, double, Half, BFloat16, int64_t>;

// Calls f.template operator()<T>() for the T of the list that `type` is.
template <typename... Ts, typename F>
Outcome Dispatch(Types<Ts...>, DataType type, F&& f) {
  Outcome outcome = kNoLoop;
  (void)((type == DataTypeOf<Ts>() ? (outcome = f.template operator()<Ts>(), true) : false) || ...);
  return outcome;
}

// The same for a type that moves as elements of `size` bytes do.
template <typename F>
Outcome DispatchSize(int size, F&& f) {
  switch (size) {
    case 1:
      return f.template operator()<uint8_t>();
    case 2:
      return f.template operator()<uint16_t>();
    case 4:
      return f.template operator()<uint32_t>();
    case 8:
      return f.template operator()<uint64_t>();
    case 16:
      return f.template operator()<Bytes16>();
    default:
      return kNoLoop;
  }
}

}  // namespace millrace::gpu

#endif  // KERNELS_GPU_LOOPS_NUMBERS_H_
