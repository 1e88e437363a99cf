// SPDX-License-Identifier: Apache-2.0
#include "kernels/math/elementwise_special.h"

#include <math.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <type_traits>

#include "kernels/common/elementwise.h"
#include "kernels/common/fast_functions.h"

namespace millrace {
namespace {

#define MR_UNARY_FUNCTION(Name, cost, expression) \
  struct Name {                                   \
    static constexpr double kCost = cost;         \
    template <typename T>                         \
    static T Do(T x) {                            \
      return expression;                          \
    }                                             \
  }
MR_UNARY_FUNCTION(Erfc, 12, std::erfc(x));
MR_UNARY_FUNCTION(Tan, 10, std::tan(x));
MR_UNARY_FUNCTION(Asin, 8, std::asin(x));
MR_UNARY_FUNCTION(Acos, 8, std::acos(x));
MR_UNARY_FUNCTION(Atan, 8, std::atan(x));
MR_UNARY_FUNCTION(Sinh, 10, std::sinh(x));
MR_UNARY_FUNCTION(Cosh, 10, std::cosh(x));
MR_UNARY_FUNCTION(Asinh, 12, std::asinh(x));
MR_UNARY_FUNCTION(Acosh, 12, std::acosh(x));
MR_UNARY_FUNCTION(Atanh, 12, std::atanh(x));
MR_UNARY_FUNCTION(Rint, 0.5, std::nearbyint(x));
MR_UNARY_FUNCTION(Inv, 0.8, T(1) / x);
MR_UNARY_FUNCTION(Invert, 0.3, static_cast<T>(~x));
#undef MR_UNARY_FUNCTION

struct Lgamma {
  static constexpr double kCost = 20;
  template <typename T>
  static T Do(T x) {
    if (std::isinf(x)) return std::numeric_limits<T>::infinity();
    int sign;  // lgamma itself would write it to a variable of the process
    return static_cast<T>(lgamma_r(static_cast<double>(x), &sign));
  }
};

// By the recurrence up to 10, the asymptotic series from there, and reflection below 0.
struct Digamma {
  static constexpr double kCost = 40;
  template <typename T>
  static T Do(T value) {
    double x = static_cast<double>(value), result = 0;
    if (x <= 0) {
      if (x == std::floor(x)) return std::numeric_limits<T>::quiet_NaN();
      result -= std::numbers::pi / std::tan(std::numbers::pi * x);
      x = 1 - x;
    }
    for (; x < 10; ++x) result -= 1 / x;
    const double z = 1 / (x * x);
    const double series =
        z * (1.0 / 12 -
             z * (1.0 / 120 -
                  z * (1.0 / 252 -
                       z * (1.0 / 240 - z * (1.0 / 132 - z * (691.0 / 32760 - z * (1.0 / 12)))))));
    return static_cast<T>(result + std::log(x) - 0.5 / x - series);
  }
};

// Hurwitz' zeta: the sum of (q + k)^-x over all k from 0, for x > 1.
double PositiveZeta(double x, double q) {
  // B(2k) / (2k)! of the formula of Euler and Maclaurin.
  constexpr double kCoefficients[] = {1.0 / 12,          -1.0 / 720,
                                      1.0 / 30240,       -1.0 / 1209600,
                                      1.0 / 47900160,    -691.0 / 1307674368000,
                                      1.0 / 74724249600, -3617.0 / 10670622842880000};
  double sum = 0;
  // Terms one by one until they are too small, or the formula converges fast.
  for (; q < 10 || q < x + 10; ++q) {
    const double term = std::pow(q, -x);
    sum += term;
    if (!(term > sum * 1e-17) || std::isinf(sum)) return sum;
  }
  const double power = std::pow(q, -x);
  if (power == 0) return sum;
  sum += q * power / (x - 1) + power / 2;
  double factor = x * power / q;
  for (int k = 0; k < 8; ++k) {
    sum += kCoefficients[k] * factor;
    factor *= (x + 2 * k + 1) * (x + 2 * k + 2) / (q * q);
  }
  return sum;
}

double HurwitzZeta(double x, double q) {
  if (x == 1) return std::numeric_limits<double>::infinity();
  if (!(x > 1) || std::isnan(q)) return std::numeric_limits<double>::quiet_NaN();
  if (q > 0) return PositiveZeta(x, q);
  const bool even = std::fmod(x, 2) == 0;
  if (q == std::floor(q)) {  // a pole, of one sign on both sides where x is even
    return even ? std::numeric_limits<double>::infinity()
                : std::numeric_limits<double>::quiet_NaN();
  }
  if (x != std::floor(x)) return std::numeric_limits<double>::quiet_NaN();
  // The sum over all integers is the same for q as for its fraction, however far away that is.
  const double fraction = q - std::floor(q);
  const double below = PositiveZeta(x, 1 - fraction) - PositiveZeta(x, 1 - q);
  return PositiveZeta(x, fraction) + (even ? below : -below);
}

struct Zeta {
  static constexpr double kCost = 200;
  template <typename T>
  static T Do(T x, T q) {
    return static_cast<T>(HurwitzZeta(static_cast<double>(x), static_cast<double>(q)));
  }
};

// The derivative of Digamma that `order` counts.
struct Polygamma {
  static constexpr double kCost = 250;
  template <typename T>
  static T Do(T order, T x) {
    if (order == T(0)) return Digamma::Do(x);
    const double n = static_cast<double>(order);
    if (!(n > 0) || n != std::floor(n)) return std::numeric_limits<T>::quiet_NaN();
    int sign;
    const double factorial = std::exp(lgamma_r(n + 1, &sign));
    const double value = factorial * HurwitzZeta(n + 1, static_cast<double>(x));
    return static_cast<T>(std::fmod(n, 2) == 0 ? -value : value);
  }
};

// A first guess (Winitzki), then Newton's method on the complement, which keeps its digits.
struct Erfinv {
  static constexpr double kCost = 100;
  template <typename T>
  static T Do(T value) {
    const double y = static_cast<double>(value);
    if (!(std::abs(y) <= 1)) return std::numeric_limits<T>::quiet_NaN();
    if (std::abs(y) == 1) return std::copysign(std::numeric_limits<T>::infinity(), value);
    const double a = std::abs(y), log = std::log((1 - a) * (1 + a));
    const double half = 2 / (std::numbers::pi * 0.147) + log / 2;
    double x = std::sqrt(std::max(0.0, std::sqrt(half * half - log / 0.147) - half));
    for (int i = 0; i < 4; ++i) {
      const double error = a < 0.5 ? a - std::erf(x) : std::erfc(x) - (1 - a);
      x += error * std::sqrt(std::numbers::pi) / 2 * std::exp(x * x);
    }
    return static_cast<T>(std::copysign(x, y));
  }
};

struct Atan2 {
  static constexpr double kCost = 15;
  template <typename T>
  static T Do(T y, T x) {
    return std::atan2(y, x);
  }
};
struct NextAfter {
  static constexpr double kCost = 3;
  template <typename T>
  static T Do(T x, T y) {
    return std::nextafter(x, y);
  }
};
// 0 for a zero x, whatever y is.
struct Xdivy {
  static constexpr double kCost = 0.8;
  template <typename T>
  static T Do(T x, T y) {
    return x == T(0) ? T(0) : x / y;
  }
};
struct Xlogy {
  static constexpr double kCost = 8;
  template <typename T>
  static T Do(T x, T y) {
    return x == T(0) ? T(0) : x * std::log(y);
  }
};
// 0 for a zero y, even if x is infinite or not a number.
struct MulNoNan {
  static constexpr double kCost = 0.5;
  template <typename T>
  static T Do(T x, T y) {
    return y == T(0) ? T(0) : x * y;
  }
};

// Counts outside of a number's bits are cut to them.
template <typename T>
int ShiftCount(T y) {
  constexpr int kMost = static_cast<int>(8 * sizeof(T)) - 1;
  if (y < T(0)) return 0;
  return y > static_cast<T>(kMost) ? kMost : static_cast<int>(y);
}
struct LeftShift {
  static constexpr double kCost = 0.5;
  template <typename T>
  static T Do(T x, T y) {
    return static_cast<T>(static_cast<uint64_t>(x) << ShiftCount(y));
  }
};
struct RightShift {
  static constexpr double kCost = 0.5;
  template <typename T>
  static T Do(T x, T y) {
    return static_cast<T>(x >> ShiftCount(y));
  }
};

struct TruncateMod {
  static constexpr double kCost = 3;
  static Status Refusal() { return errors::Internal("Integer division by zero"); }
  template <typename T>
    requires std::is_integral_v<T>
  static bool Valid(T b) {
    return b != T(0);
  }
  template <typename T>
  static T Do(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      return b == T(-1) ? T(0) : static_cast<T>(a % b);  // the lowest by -1 would trap
    } else {
      return std::fmod(a, b);
    }
  }
};

struct Mod : TruncateMod {
  static Status Refusal() { return errors::InvalidArgument("Integer division by zero"); }
};

struct Xlog1py {
  static constexpr double kCost = 8;
  template <typename T>
  static T Do(T x, T y) {
    return x == T(0) ? T(0) : x * fast_functions::Log1pOf(y);
  }
};
struct PopulationCount {
  static constexpr double kCost = 0.5;
  template <typename T>
  static uint8_t Do(T x) {
    return static_cast<uint8_t>(std::popcount(static_cast<std::make_unsigned_t<T>>(x)));
  }
};
struct Angle {
  static constexpr double kCost = 15;
  template <typename T>
  static typename T::value_type Do(T x) {
    return std::arg(x);
  }
};

using FloatOrComplex = JoinTypes<FloatTypes, ComplexTypes>;

}  // namespace

void RegisterElementwiseSpecialKernels(KernelRegistry& r) {
  RegisterUnary<Erfc, FloatTypes>(r, "Erfc");
  RegisterUnary<Erfinv, FloatTypes>(r, "Erfinv");
  RegisterUnary<Lgamma, FloatTypes>(r, "Lgamma");
  RegisterUnary<Digamma, FloatTypes>(r, "Digamma");
  RegisterUnary<Tan, FloatOrComplex>(r, "Tan");
  RegisterUnary<Asin, FloatOrComplex>(r, "Asin");
  RegisterUnary<Acos, FloatOrComplex>(r, "Acos");
  RegisterUnary<Atan, FloatOrComplex>(r, "Atan");
  RegisterUnary<Sinh, FloatOrComplex>(r, "Sinh");
  RegisterUnary<Cosh, FloatOrComplex>(r, "Cosh");
  RegisterUnary<Asinh, FloatOrComplex>(r, "Asinh");
  RegisterUnary<Acosh, FloatOrComplex>(r, "Acosh");
  RegisterUnary<Atanh, FloatOrComplex>(r, "Atanh");
  RegisterUnary<Rint, FloatTypes>(r, "Rint");
  RegisterUnary<Inv, FloatOrComplex>(r, "Inv");
  RegisterUnary<Invert, IntTypes>(r, "Invert");
  RegisterBinary<Atan2, FloatTypes>(r, "Atan2");
  RegisterBinary<Polygamma, TypeList<float, double>>(r, "Polygamma");
  RegisterBinary<Zeta, TypeList<float, double>>(r, "Zeta");
  RegisterBinary<NextAfter, TypeList<float, double>>(r, "NextAfter");
  RegisterBinary<Xdivy, FloatOrComplex>(r, "Xdivy");
  RegisterBinary<Xlogy, FloatOrComplex>(r, "Xlogy");
  RegisterBinary<MulNoNan, FloatOrComplex>(r, "MulNoNan");
  RegisterBinary<LeftShift, IntTypes>(r, "LeftShift");
  RegisterBinary<RightShift, IntTypes>(r, "RightShift");
  RegisterBinary<Xlog1py, FloatOrComplex>(r, "Xlog1py");
  RegisterUnary<PopulationCount, IntTypes>(r, "PopulationCount");
  // The angle is as wide as the parts.
  r.Register(KernelDef("Angle").Type<Complex64>("T").Type<float>("Tout"),
             &MakeUnary<Angle, TypeList<Complex64>>);
  r.Register(KernelDef("Angle").Type<Complex128>("T").Type<double>("Tout"),
             &MakeUnary<Angle, TypeList<Complex128>>);
  RegisterBinary<TruncateMod, JoinTypes<FloatTypes, IndexTypes>>(r, "TruncateMod");
  RegisterBinary<Mod, JoinTypes<FloatTypes, IndexTypes>>(r, "Mod");
}

}  // namespace millrace
