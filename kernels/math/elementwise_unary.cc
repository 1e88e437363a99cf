// SPDX-License-Identifier: Apache-2.0
// Elementwise ops of one operand that need no library call per element.
#include <bit>
#include <cmath>

#include "kernels/all_kernels.h"
#include "kernels/common/elementwise.h"

namespace millrace {
namespace {

struct Abs {
  static constexpr double kCost = 0.3;
  template <typename T>
  static T Do(T x) {
    if constexpr (std::is_floating_point_v<T>) {
      return std::fabs(x);
    } else if constexpr (std::is_signed_v<T>) {
      // Through the unsigned type: the lowest value stays itself.
      using U = std::make_unsigned_t<T>;
      return x < 0 ? static_cast<T>(U(0) - static_cast<U>(x)) : x;
    } else {
      return x;
    }
  }
};
struct Neg {
  static constexpr double kCost = 0.3;
  template <typename T>
  static T Do(T x) {
    if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;
      return static_cast<T>(U(0) - static_cast<U>(x));
    } else {
      return -x;
    }
  }
};
struct Sign {
  static constexpr double kCost = 0.4;
  template <typename T>
  static T Do(T x) {
    if constexpr (kIsComplex<T>) {
      // Through the reciprocal root of the squares, in double so that they do not overflow.
      using R = typename T::value_type;
      if (x == T(0)) return T(0);
      if constexpr (std::is_same_v<R, float>) {
        const double re = x.real(), im = x.imag();
        return x * static_cast<float>(1 / std::sqrt(re * re + im * im));
      } else {
        return x / std::abs(x);
      }
    } else if constexpr (std::is_floating_point_v<T>) {
      return x > 0 ? T(1) : (x < 0 ? T(-1) : x);  // keeps zeros and NaN
    } else {
      return static_cast<T>((x > T(0)) - (x < T(0)));
    }
  }
};
struct Square {
  static constexpr double kCost = 0.3;
  template <typename T>
  static T Do(T x) {
    if constexpr (std::is_integral_v<T>) {
      const uint64_t u = static_cast<uint64_t>(x);  // wraps around
      return static_cast<T>(u * u);
    } else {
      return x * x;
    }
  }
};
struct Sqrt {
  static constexpr double kCost = 1.0;
  template <typename T>
  static T Do(T x) {
    return std::sqrt(x);
  }
};
struct Rsqrt {
  static constexpr double kCost = 1.5;
  template <typename T>
  static T Do(T x) {
    return T(1) / std::sqrt(x);
  }
};
struct Reciprocal {
  static constexpr double kCost = 0.8;
  template <typename T>
  static T Do(T x) {
    return T(1) / x;
  }
};
struct Floor {
  static constexpr double kCost = 0.5;
  template <typename T>
  static T Do(T x) {
    if constexpr (std::is_integral_v<T>) {
      return x;
    } else {
      return std::floor(x);
    }
  }
};
struct Ceil {
  static constexpr double kCost = 0.5;
  template <typename T>
  static T Do(T x) {
    if constexpr (std::is_integral_v<T>) {
      return x;
    } else {
      return std::ceil(x);
    }
  }
};
// Halves go to the even neighbour.
struct Round {
  static constexpr double kCost = 0.5;
  template <typename T>
  static T Do(T x) {
    if constexpr (std::is_integral_v<T>) {
      return x;
    } else {
      return std::nearbyint(x);
    }
  }
};
struct IsNan {
  static constexpr double kCost = 0.3;
  template <typename T>
  static bool Do(T x) {
    return x != x;
  }
};
struct IsInf {
  static constexpr double kCost = 0.3;
  template <typename T>
  static bool Do(T x) {
    return std::isinf(x);
  }
};
struct IsFinite {
  static constexpr double kCost = 0.3;
  template <typename T>
  static bool Do(T x) {
    return std::isfinite(x);
  }
};
struct LogicalNot {
  static constexpr double kCost = 0.2;
  static bool Do(bool x) { return !x; }
};
struct Conj {
  static constexpr double kCost = 0.5;
  template <typename T>
  static T Do(T x) {
    if constexpr (kIsComplex<T>) {
      return std::conj(x);
    } else {
      return x;
    }
  }
};
struct Real {
  static constexpr double kCost = 0.5;
  template <typename T>
  static typename T::value_type Do(T x) {
    return x.real();
  }
};
struct Imag {
  static constexpr double kCost = 0.5;
  template <typename T>
  static typename T::value_type Do(T x) {
    return x.imag();
  }
};
struct ComplexAbs {
  static constexpr double kCost = 3;
  template <typename T>
  static typename T::value_type Do(T x) {
    return std::abs(x);
  }
};

// Results are as wide as the parts: the op's two types are attributes of their own.
template <typename Op, typename... Ts>
void RegisterPart(KernelRegistry& r, const char* op, TypeList<Ts...>) {
  (r.Register(KernelDef(op).Type<Ts>("T").template Type<typename Ts::value_type>("Tout"),
              &MakeUnary<Op, TypeList<Ts>>),
   ...);
}

using FloatOrComplex = JoinTypes<FloatTypes, ComplexTypes>;

}  // namespace

void RegisterElementwiseUnaryKernels(KernelRegistry& r) {
  RegisterUnary<Abs, RealTypes>(r, "Abs");
  RegisterUnary<Neg, NumberTypes>(r, "Neg");
  RegisterUnary<Sign, NumberTypes>(r, "Sign");
  RegisterUnary<Square, NumberTypes>(r, "Square");
  RegisterUnary<Sqrt, FloatOrComplex>(r, "Sqrt");
  RegisterUnary<Rsqrt, FloatOrComplex>(r, "Rsqrt");
  RegisterUnary<Reciprocal, FloatOrComplex>(r, "Reciprocal");
  RegisterUnary<Floor, RealTypes>(r, "Floor");
  RegisterUnary<Ceil, RealTypes>(r, "Ceil");
  RegisterUnary<Round, RealTypes>(r, "Round");
  RegisterUnary<IsNan, FloatTypes>(r, "IsNan");
  RegisterUnary<IsInf, FloatTypes>(r, "IsInf");
  RegisterUnary<IsFinite, FloatTypes>(r, "IsFinite");
  RegisterUnary<LogicalNot, TypeList<bool>>(r, "LogicalNot", "");
  RegisterUnary<Conj, ComplexTypes>(r, "Conj");
  RegisterPart<Real>(r, "Real", ComplexTypes());
  RegisterPart<Imag>(r, "Imag", ComplexTypes());
  RegisterPart<ComplexAbs>(r, "ComplexAbs", ComplexTypes());
}

}  // namespace millrace
