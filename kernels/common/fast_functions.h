// SPDX-License-Identifier: Apache-2.0
// Functions of float that have loops which vectorise, as functors of elementwise kernels; for
// other types there is the library.
#ifndef KERNELS_COMMON_FAST_FUNCTIONS_H_
#define KERNELS_COMMON_FAST_FUNCTIONS_H_

#include <cmath>
#include <complex>
#include <type_traits>

#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/float_math.h"
#include "kernels/common/isa.h"

namespace millrace::fast_functions {

template <typename T>
T Expm1Of(T x) {
  if constexpr (kIsComplex<T>) {
    // e^(a + ib) - 1, its real part without the difference of two numbers near 1.
    const auto half_sine = std::sin(x.imag() / 2);
    return T(std::expm1(x.real()) * std::cos(x.imag()) - 2 * half_sine * half_sine,
             std::exp(x.real()) * std::sin(x.imag()));
  } else {
    return std::expm1(x);
  }
}
template <typename T>
T Log1pOf(T x) {
  if constexpr (kIsComplex<T>) {
    // log|1 + a + ib| = log1p(2a + a^2 + b^2) / 2, of which the squares of large numbers overflow.
    const auto a = x.real(), b = x.imag();
    if (std::abs(a) > 1 || std::abs(b) > 1) return std::log(T(1) + x);
    return T(std::log1p(a * (2 + a) + b * b) / 2, std::atan2(b, 1 + a));
  } else {
    return std::log1p(x);
  }
}
// max(x, 0) + log(1 + exp(-|x|)) neither overflows nor cancels.
template <typename T>
T SoftplusOf(T x) {
  if (x != x) return x;
  return (x > T(0) ? x : T(0)) + std::log1p(std::exp(-std::abs(x)));
}

#define MR_FAST_FUNCTION(Name, quick, expression) \
  struct Name {                                   \
    static constexpr double kCost = 1;            \
    template <typename T>                         \
    static MR_ALWAYS_INLINE T Do(T x) {           \
      if constexpr (std::is_same_v<T, float>) {   \
        return float_math::quick(x);              \
      } else {                                    \
        return expression;                        \
      }                                           \
    }                                             \
  }
MR_FAST_FUNCTION(Exp, Exp, std::exp(x));
MR_FAST_FUNCTION(Expm1, Expm1, Expm1Of(x));
MR_FAST_FUNCTION(Log, Log, std::log(x));
MR_FAST_FUNCTION(Log1p, Log1p, Log1pOf(x));
MR_FAST_FUNCTION(Erf, Erf, std::erf(x));
MR_FAST_FUNCTION(Softplus, Softplus, SoftplusOf(x));
MR_FAST_FUNCTION(Tanh, Tanh, std::tanh(x));
MR_FAST_FUNCTION(Sigmoid, Sigmoid, T(1) / (T(1) + std::exp(-x)));
#undef MR_FAST_FUNCTION

}  // namespace millrace::fast_functions

#endif  // KERNELS_COMMON_FAST_FUNCTIONS_H_
