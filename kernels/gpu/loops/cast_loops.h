// SPDX-License-Identifier: Apache-2.0
// Conversions between element types.
#ifndef KERNELS_GPU_LOOPS_CAST_LOOPS_H_
#define KERNELS_GPU_LOOPS_CAST_LOOPS_H_

#include "kernels/gpu/loops/loops.h"

namespace millrace::gpu {

// Out of range is undefined in C++. NaN and values beyond 64 bits become the lowest 64-bit
// integer, as the processor has it; what is left is cut to the width of To.
template <typename To, typename From>
MR_HD To FloatToInt(From x) {
  constexpr From kLimit = static_cast<From>(9223372036854775808.0);
  constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
  if constexpr (std::is_same_v<To, uint64_t>) {
    if (x >= kLimit && x < 2 * kLimit) {
      return static_cast<uint64_t>(static_cast<int64_t>(x - kLimit)) + (uint64_t{1} << 63);
    }
  }
  if constexpr (std::is_same_v<To, int32_t>) {
    const bool fits =
        x > From(-2147483904.0) && x < From(2147483648.0) && static_cast<double>(x) > -2147483649.0;
    return fits ? static_cast<int32_t>(x) : std::numeric_limits<int32_t>::min();
  } else {
    const bool fits = x >= -kLimit && x < kLimit;
    return static_cast<To>(fits ? static_cast<int64_t>(x) : kLowest);
  }
}

template <typename To, typename From>
MR_HD To Convert(From value) {
  const auto x = Widen(value);
  using X = std::remove_const_t<decltype(x)>;
  using M = ComputeType<To>;
  if constexpr (std::is_same_v<To, bool>) {
    return x != X(0);
  } else if constexpr (std::is_floating_point_v<X> && std::is_integral_v<M>) {
    return FloatToInt<To>(x);
  } else {
    return Narrow<To>(static_cast<M>(x));
  }
}

template <typename From, typename To>
struct CastEach {
  const From* in;
  To* out;
  MR_HD void operator()(int64_t i) const { out[i] = Convert<To>(in[i]); }
};

// Drops the low half of the float instead of rounding.
struct TruncateEach {
  const float* in;
  BFloat16* out;
  MR_HD void operator()(int64_t i) const {
    uint32_t bits;
    std::memcpy(&bits, &in[i], sizeof(bits));
    out[i].bits = static_cast<uint16_t>((bits >> 16) | (in[i] != in[i] ? 0x40u : 0u));
  }
};

using Castable = Types<float, double, Half, BFloat16, bool, int8_t, int16_t, int32_t, int64_t,
                       uint8_t, uint16_t, uint32_t, uint64_t>;

template <typename Launcher, typename From>
Outcome CastFrom(Queue queue, const CastParams& p) {
  return Dispatch(Castable(), p.to, [&]<typename To>() {
    return Launcher(queue).ForEach(
        p.n, CastEach<From, To>{static_cast<const From*>(p.in), static_cast<To*>(p.out)});
  });
}

template <typename Launcher>
Outcome RunCast(Queue queue, const CastParams& p) {
  if (p.truncate && p.from == DataType::kFloat && p.to == DataType::kBfloat16) {
    return Launcher(queue).ForEach(
        p.n, TruncateEach{static_cast<const float*>(p.in), static_cast<BFloat16*>(p.out)});
  }
  return Dispatch(Castable(), p.from,
                  [&]<typename From>() { return CastFrom<Launcher, From>(queue, p); });
}

}  // namespace millrace::gpu

#endif  // KERNELS_GPU_LOOPS_CAST_LOOPS_H_
