// SPDX-License-Identifier: Apache-2.0
// Elementwise functions of one operand.
#ifndef KERNELS_GPU_LOOPS_UNARY_LOOPS_H_
#define KERNELS_GPU_LOOPS_UNARY_LOOPS_H_

#include "kernels/gpu/loops/elementwise_loops.h"

namespace millrace::gpu {

// Klambauer et al., "Self-Normalizing Neural Networks" (2017).
inline constexpr double kSeluScale = 1.0507009873554804934193349852946;
inline constexpr double kSeluScaleAlpha = 1.7580993408473768599402175208123;

#define MR_GPU_UNARY(Name, ...)                           \
  struct Name##Of {                                       \
    template <typename C>                                 \
    static MR_HD auto Do(C x, [[maybe_unused]] C alpha) { \
      __VA_ARGS__                                         \
    }                                                     \
  }

// What integers know too.
MR_GPU_UNARY(
    Abs,
    if constexpr (std::is_integral_v<C>) {
      using U = std::make_unsigned_t<C>;  // the lowest value stays itself
      return x < 0 ? static_cast<C>(U(0) - static_cast<U>(x)) : x;
    } else { return std::fabs(x); });
MR_GPU_UNARY(
    Neg,
    if constexpr (std::is_integral_v<C>) {
      using U = std::make_unsigned_t<C>;
      return static_cast<C>(U(0) - static_cast<U>(x));
    } else { return -x; });
MR_GPU_UNARY(Sign, return x > C(0) ? C(1) : (x < C(0) ? C(-1) : x););
MR_GPU_UNARY(
    Square,
    if constexpr (std::is_integral_v<C>) {
      using U = std::make_unsigned_t<C>;
      return static_cast<C>(static_cast<U>(x) * static_cast<U>(x));
    } else { return x * x; });
// Comparisons let a NaN through.
MR_GPU_UNARY(Relu, return x < C(0) ? C(0) : x;);
MR_GPU_UNARY(Relu6, return x < C(0) ? C(0) : (x > C(6) ? C(6) : x););

MR_GPU_UNARY(Exp, return std::exp(x););
MR_GPU_UNARY(Expm1, return std::expm1(x););
MR_GPU_UNARY(Log, return std::log(x););
MR_GPU_UNARY(Log1p, return std::log1p(x););
MR_GPU_UNARY(Sqrt, return std::sqrt(x););
MR_GPU_UNARY(Rsqrt, return C(1) / std::sqrt(x););
MR_GPU_UNARY(Reciprocal, return C(1) / x;);
MR_GPU_UNARY(Tanh, return std::tanh(x););
// Small values through e^x, so that they do not become 0 early.
MR_GPU_UNARY(Sigmoid, const C e = std::exp(-std::fabs(x));
             return (x < C(0) ? e : C(1)) / (C(1) + e););
MR_GPU_UNARY(Sin, return std::sin(x););
MR_GPU_UNARY(Cos, return std::cos(x););
MR_GPU_UNARY(Tan, return std::tan(x););
MR_GPU_UNARY(Asin, return std::asin(x););
MR_GPU_UNARY(Acos, return std::acos(x););
MR_GPU_UNARY(Atan, return std::atan(x););
MR_GPU_UNARY(Sinh, return std::sinh(x););
MR_GPU_UNARY(Cosh, return std::cosh(x););
MR_GPU_UNARY(Asinh, return std::asinh(x););
MR_GPU_UNARY(Acosh, return std::acosh(x););
MR_GPU_UNARY(Atanh, return std::atanh(x););
MR_GPU_UNARY(Erf, return std::erf(x););
MR_GPU_UNARY(Erfc, return std::erfc(x););
MR_GPU_UNARY(Floor, return std::floor(x););
MR_GPU_UNARY(Ceil, return std::ceil(x););
MR_GPU_UNARY(Round, return std::nearbyint(x););  // halves go to the even neighbour
MR_GPU_UNARY(IsNan, return x != x;);
MR_GPU_UNARY(IsInf, return std::fabs(x) == std::numeric_limits<C>::infinity(););
MR_GPU_UNARY(IsFinite, return std::fabs(x) < std::numeric_limits<C>::infinity(););
MR_GPU_UNARY(LogicalNot, return !x;);
MR_GPU_UNARY(Elu, return x < C(0) ? std::expm1(x) : x;);
MR_GPU_UNARY(Selu, return x < C(0) ? C(kSeluScaleAlpha) * std::expm1(x) : C(kSeluScale) * x;);
MR_GPU_UNARY(LeakyRelu, return x > C(0) ? x : x * alpha;);
// max(x, 0) + log(1 + exp(-|x|)) neither overflows nor cancels.
MR_GPU_UNARY(Softplus, if (x != x) return x;
             return (x > C(0) ? x : C(0)) + std::log1p(std::exp(-std::fabs(x))););
MR_GPU_UNARY(Softsign, return x / (C(1) + std::fabs(x)););
#undef MR_GPU_UNARY

template <UnaryOp kOp>
struct UnaryTypes {
  using type = Floats;
};
template <>
struct UnaryTypes<UnaryOp::kAbs> {
  using type = FloatsAndInt64;
};
template <>
struct UnaryTypes<UnaryOp::kNeg> {
  using type = FloatsAndInt64;
};
template <>
struct UnaryTypes<UnaryOp::kSign> {
  using type = FloatsAndInt64;
};
template <>
struct UnaryTypes<UnaryOp::kSquare> {
  using type = FloatsAndInt64;
};
template <>
struct UnaryTypes<UnaryOp::kLogicalNot> {
  using type = Types<bool>;
};

template <typename Launcher>
Outcome RunUnary(Queue queue, const UnaryParams& p) {
  switch (p.op) {
#define MR_GPU_CASE(Name)                                                  \
  case UnaryOp::k##Name:                                                   \
    return Dispatch(typename UnaryTypes<UnaryOp::k##Name>::type(), p.type, \
                    [&]<typename T>() { return UnaryOf<Launcher, Name##Of, T>(queue, p); });
    MR_GPU_UNARY_OPS(MR_GPU_CASE)
#undef MR_GPU_CASE
  }
  return kNoLoop;
}

}  // namespace millrace::gpu

#endif  // KERNELS_GPU_LOOPS_UNARY_LOOPS_H_
