// SPDX-License-Identifier: Apache-2.0
// Elementwise functions of two operands: arithmetic, comparisons, and gradients that take what
// the op made or read and the gradient that arrives.
#ifndef KERNELS_GPU_LOOPS_BINARY_LOOPS_H_
#define KERNELS_GPU_LOOPS_BINARY_LOOPS_H_

#include "kernels/gpu/loops/elementwise_loops.h"
#include "kernels/gpu/loops/unary_loops.h"

namespace millrace::gpu {

#define MR_GPU_BINARY(Name, ...)                               \
  struct Name##Of {                                            \
    template <typename C>                                      \
    static MR_HD auto Do(C a, C b, [[maybe_unused]] C alpha) { \
      __VA_ARGS__                                              \
    }                                                          \
  }

// Integers wrap around.
template <typename C>
using Wrapping = std::make_unsigned_t<decltype(C() + C())>;
template <typename C>
MR_HD C WrappingSub(C a, C b) {
  return static_cast<C>(static_cast<Wrapping<C>>(a) - static_cast<Wrapping<C>>(b));
}
template <typename C>
MR_HD C WrappingMul(C a, C b) {
  return static_cast<C>(static_cast<Wrapping<C>>(a) * static_cast<Wrapping<C>>(b));
}
// A GPU cannot refuse a zero divisor: the quotient is then 0, the remainder a. The quotient that
// overflows wraps around.
template <typename C>
MR_HD C IntQuotient(C a, C b) {
  if (b == C(0)) return C(0);
  return b == C(-1) ? WrappingSub(C(0), a) : static_cast<C>(a / b);
}
template <typename C>
MR_HD C IntRemainder(C a, C b) {
  if (b == C(0)) return a;
  return b == C(-1) ? C(0) : static_cast<C>(a % b);
}

MR_GPU_BINARY(
    Add,
    if constexpr (std::is_integral_v<C>) {
      return static_cast<C>(static_cast<Wrapping<C>>(a) + static_cast<Wrapping<C>>(b));
    } else { return a + b; });
MR_GPU_BINARY(
    Sub, if constexpr (std::is_integral_v<C>) { return WrappingSub(a, b); } else { return a - b; });
MR_GPU_BINARY(
    Mul, if constexpr (std::is_integral_v<C>) { return WrappingMul(a, b); } else { return a * b; });
MR_GPU_BINARY(
    Div, if constexpr (std::is_integral_v<C>) { return IntQuotient(a, b); } else { return a / b; });
MR_GPU_BINARY(DivNoNan, return b == C(0) ? C(0) : a / b;);
MR_GPU_BINARY(MulNoNan, return b == C(0) ? C(0) : a * b;);
MR_GPU_BINARY(
    FloorDiv,
    if constexpr (std::is_integral_v<C>) {
      const C q = IntQuotient(a, b);
      const C r = b == C(0) ? C(0) : IntRemainder(a, b);
      return r != C(0) && (r < C(0)) != (b < C(0)) ? static_cast<C>(q - 1) : q;
    } else { return std::floor(a / b); });
MR_GPU_BINARY(
    FloorMod, C r; if constexpr (std::is_integral_v<C>) { r = IntRemainder(a, b); } else {
      r = std::fmod(a, b);
    } return r != C(0) && (r < C(0)) != (b < C(0))
                       ? static_cast<C>(r + b)
                       : r;);
MR_GPU_BINARY(
    TruncateMod, if constexpr (std::is_integral_v<C>) { return IntRemainder(a, b); } else {
      return std::fmod(a, b);
    });
// A NaN on either side is the result.
MR_GPU_BINARY(Maximum, return (a >= b || a != a) ? a : b;);
MR_GPU_BINARY(Minimum, return (a <= b || a != a) ? a : b;);
MR_GPU_BINARY(Pow, return std::pow(a, b););
struct SquaredDifferenceOf {
  template <typename C>
  static MR_HD C Do(C a, C b, C) {
    if constexpr (std::is_integral_v<C>) {
      const C d = WrappingSub(a, b);
      return WrappingMul(d, d);
    } else {
      const C d = a - b;
      return d * d;
    }
  }
  // Of 16 bits, the difference is rounded too.
  template <typename T>
  static MR_HD float DoSmall(float a, float b) {
    const float d = Widen(Narrow<T>(a - b));
    return d * d;
  }
};
MR_GPU_BINARY(Atan2, return std::atan2(a, b););
// 0 for a zero a, whatever b is.
MR_GPU_BINARY(Xdivy, return a == C(0) ? C(0) : a / b;);
MR_GPU_BINARY(Xlogy, return a == C(0) ? C(0) : a * std::log(b););
MR_GPU_BINARY(Xlog1py, return a == C(0) ? C(0) : a * std::log1p(b););

MR_GPU_BINARY(Less, return a < b;);
MR_GPU_BINARY(LessEqual, return a <= b;);
MR_GPU_BINARY(Greater, return a > b;);
MR_GPU_BINARY(GreaterEqual, return a >= b;);
MR_GPU_BINARY(Equal, return a == b;);
MR_GPU_BINARY(NotEqual, return a != b;);
MR_GPU_BINARY(LogicalAnd, return a && b;);
MR_GPU_BINARY(LogicalOr, return a || b;);

// a is the op's output, b the gradient.
MR_GPU_BINARY(SigmoidGrad, return b * a * (C(1) - a););
MR_GPU_BINARY(TanhGrad, return b * (C(1) - a * a););
// Where no gradient arrives these three are 0, whatever a is.
MR_GPU_BINARY(SqrtGrad, return b == C(0) ? C(0) : b * C(0.5) / a;);
MR_GPU_BINARY(RsqrtGrad, return b == C(0) ? C(0) : C(-0.5) * (b * a) * (a * a););
MR_GPU_BINARY(ReciprocalGrad, return b == C(0) ? C(0) : -a * (b * a););
// a is the gradient, b the op's input, or, for Elu and Selu, its output.
// Products: a gradient that is no number stays none where the input is cut off.
MR_GPU_BINARY(ReluGrad, return a * (b > C(0) ? C(1) : C(0)););
MR_GPU_BINARY(Relu6Grad, return a * (b > C(0) && b < C(6) ? C(1) : C(0)););
MR_GPU_BINARY(EluGrad, return b < C(0) ? a * (b + C(1)) : a;);
MR_GPU_BINARY(SeluGrad, return b < C(0) ? a * (b + C(kSeluScaleAlpha)) : a * C(kSeluScale););
MR_GPU_BINARY(LeakyReluGrad, return b > C(0) ? a : a * alpha;);
MR_GPU_BINARY(SoftplusGrad, return a / (C(1) + std::exp(-b)););
MR_GPU_BINARY(SoftsignGrad, const C d = C(1) + std::fabs(b); return a / (d * d););
#undef MR_GPU_BINARY

#define MR_GPU_CASE(Name, List)     \
  case BinaryOp::k##Name:           \
    return Dispatch(List(), p.type, \
                    [&]<typename T>() { return BinaryOf<Launcher, Name##Of, T>(queue, p); });

template <typename Launcher>
Outcome RunBinary(Queue queue, const BinaryParams& p) {
  switch (p.op) {
    MR_GPU_CASE(Add, FloatsAndInt64)
    MR_GPU_CASE(Sub, FloatsAndInt64)
    MR_GPU_CASE(Mul, FloatsAndInt64)
    MR_GPU_CASE(Div, FloatsAndInt64)
    MR_GPU_CASE(DivNoNan, Floats)
    MR_GPU_CASE(MulNoNan, Floats)
    MR_GPU_CASE(FloorDiv, FloatsAndInt64)
    MR_GPU_CASE(FloorMod, FloatsAndInt64)
    MR_GPU_CASE(TruncateMod, FloatsAndInt64)
    MR_GPU_CASE(Maximum, FloatsAndInt64)
    MR_GPU_CASE(Minimum, FloatsAndInt64)
    MR_GPU_CASE(Pow, Floats)
    MR_GPU_CASE(SquaredDifference, FloatsAndInt64)
    MR_GPU_CASE(Atan2, Floats)
    MR_GPU_CASE(Xdivy, Floats)
    MR_GPU_CASE(Xlogy, Floats)
    MR_GPU_CASE(Xlog1py, Floats)
    default:
      return kNoLoop;
  }
}

template <typename Launcher>
Outcome RunCompare(Queue queue, const BinaryParams& p) {
  using Equatable = Types<float, double, Half, BFloat16, int64_t, bool>;
  switch (p.op) {
    MR_GPU_CASE(Less, FloatsAndInt64)
    MR_GPU_CASE(LessEqual, FloatsAndInt64)
    MR_GPU_CASE(Greater, FloatsAndInt64)
    MR_GPU_CASE(GreaterEqual, FloatsAndInt64)
    MR_GPU_CASE(Equal, Equatable)
    MR_GPU_CASE(NotEqual, Equatable)
    MR_GPU_CASE(LogicalAnd, Types<bool>)
    MR_GPU_CASE(LogicalOr, Types<bool>)
    default:
      return kNoLoop;
  }
}

template <typename Launcher>
Outcome RunBinaryGrad(Queue queue, const BinaryParams& p) {
  switch (p.op) {
    MR_GPU_CASE(SigmoidGrad, Floats)
    MR_GPU_CASE(TanhGrad, Floats)
    MR_GPU_CASE(SqrtGrad, Floats)
    MR_GPU_CASE(RsqrtGrad, Floats)
    MR_GPU_CASE(ReciprocalGrad, Floats)
    MR_GPU_CASE(ReluGrad, Floats)
    MR_GPU_CASE(Relu6Grad, Floats)
    MR_GPU_CASE(EluGrad, Floats)
    MR_GPU_CASE(SeluGrad, Floats)
    MR_GPU_CASE(LeakyReluGrad, Floats)
    MR_GPU_CASE(SoftplusGrad, Floats)
    MR_GPU_CASE(SoftsignGrad, Floats)
    default:
      return kNoLoop;
  }
}
#undef MR_GPU_CASE

}  // namespace millrace::gpu

#endif  // KERNELS_GPU_LOOPS_BINARY_LOOPS_H_
