// SPDX-License-Identifier: Apache-2.0
// Elementwise arithmetic of two operands with broadcasting.
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "kernels/all_kernels.h"
#include "kernels/common/elementwise.h"
#include "kernels/common/strided_copy.h"
#include "kernels/math/output_gradient_plan.h"

namespace millrace {
namespace {

// Integers wrap around: computed in the unsigned type of at least int's width.
template <typename T>
using Wrapping = std::make_unsigned_t<decltype(T() + T())>;

struct Add {
  static constexpr double kCost = 0.3;
  template <typename T>
  static T Do(const T& a, const T& b) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
    } else {
      return a + b;
    }
  }
};
struct Sub {
  static constexpr double kCost = 0.3;
  template <typename T>
  static T Do(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<Wrapping<T>>(a) - static_cast<Wrapping<T>>(b));
    } else {
      return a - b;
    }
  }
};
struct Mul {
  static constexpr double kCost = 0.3;
  template <typename T>
  static T Do(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
    } else {
      return a * b;
    }
  }
};

// For integers: the quotient cut towards zero; the one that overflows wraps around (the
// processor would trap).
template <typename T>
T TruncatedQuotient(T a, T b) {
  if constexpr (std::is_signed_v<T>) {
    if (b == T(-1)) return Sub::Do(T(0), a);
  }
  return static_cast<T>(a / b);
}
template <typename T>
T TruncatedRemainder(T a, T b) {
  if constexpr (std::is_signed_v<T>) {
    if (b == T(-1)) return T(0);
  }
  return static_cast<T>(a % b);
}

// Refuses a zero among integer divisors.
struct Division {
  static constexpr double kCost = 1.5;
  static Status Refusal() { return errors::InvalidArgument("Integer division by zero"); }
  template <typename T>
    requires std::is_integral_v<T>
  static bool Valid(T b) {
    return b != T(0);
  }
};
struct Div : Division {
  template <typename T>
  static T Do(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      return TruncatedQuotient(a, b);
    } else {
      return a / b;
    }
  }
};
// TensorFlow answers Internal here, clients may look for it.
struct TruncateDiv : Div {
  static Status Refusal() { return errors::Internal("Integer division by zero"); }
  template <typename T>
  static T Do(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      return Div::Do(a, b);
    } else {
      return std::trunc(a / b);
    }
  }
};
struct FloorDiv : Division {
  template <typename T>
  static T Do(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      const T q = TruncatedQuotient(a, b);
      const T r = TruncatedRemainder(a, b);
      return r != T(0) && (r < T(0)) != (b < T(0)) ? static_cast<T>(q - 1) : q;
    } else {
      return std::floor(a / b);
    }
  }
};
struct FloorMod : Division {
  template <typename T>
  static T Do(T a, T b) {
    T r;
    if constexpr (std::is_integral_v<T>) {
      r = TruncatedRemainder(a, b);
    } else {
      r = std::fmod(a, b);
    }
    return r != T(0) && (r < T(0)) != (b < T(0)) ? static_cast<T>(r + b) : r;
  }
};
struct DivNoNan {
  static constexpr double kCost = 0.8;
  template <typename T>
  static T Do(T a, T b) {
    return b == T(0) ? T(0) : a / b;
  }
};
// A NaN on either side is the result.
struct Maximum {
  static constexpr double kCost = 0.3;
  template <typename T>
  static T Do(T a, T b) {
    return (a >= b || a != a) ? a : b;
  }
};
struct Minimum {
  static constexpr double kCost = 0.3;
  template <typename T>
  static T Do(T a, T b) {
    return (a <= b || a != a) ? a : b;
  }
};
struct SquaredDifference {
  static constexpr double kCost = 0.4;
  template <typename T>
  static T Do(T a, T b) {
    const T d = Sub::Do(a, b);
    if constexpr (kIsComplex<T>) {
      return d * std::conj(d);
    } else {
      return Mul::Do(d, d);
    }
  }
  template <typename T>
  static T DoSmall(T a, T b) {
    const auto d = static_cast<float>(T(static_cast<float>(a) - static_cast<float>(b)));
    return T(d * d);
  }
};
struct MakeComplex {
  static constexpr double kCost = 0.5;
  template <typename T>
  static std::complex<T> Do(T re, T im) {
    return {re, im};
  }
};
struct Pow {
  static constexpr double kCost = 15;
  static Status Refusal() {
    return errors::InvalidArgument("Integers to negative integer powers are not allowed");
  }
  template <typename T>
    requires std::is_signed_v<T> && std::is_integral_v<T>
  static bool Valid(T b) {
    return b >= T(0);
  }
  template <typename T>
  static T Do(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      T result = 1;
      for (auto e = static_cast<std::make_unsigned_t<T>>(b); e != 0; e >>= 1) {
        if (e & 1) result = Mul::Do(result, a);
        a = Mul::Do(a, a);
      }
      return result;
    } else {
      return std::pow(a, b);
    }
  }
};

// Gradients that take an output of the op and the gradient that arrives.
struct SigmoidGrad {
  static constexpr double kCost = 0.5;
  template <typename T>
  static T Do(T y, T dy) {
    return dy * y * (T(1) - y);
  }
};
struct TanhGrad {
  static constexpr double kCost = 0.5;
  template <typename T>
  static T Do(T y, T dy) {
    return dy * (T(1) - y * y);
  }
};
// The next three take the conjugate of y (the two above get one from whoever differentiates), and
// give 0 where no gradient arrives, whatever y is: what a mask has cut off stays cut off at the
// places where the derivative has no value. kernels/gpu/loops/binary_loops.h and jit/emit_ops.cc
// follow.
template <typename T>
T Conjugate(T x) {
  if constexpr (kIsComplex<T>) {
    return std::conj(x);
  } else {
    return x;
  }
}
struct SqrtGrad {
  static constexpr double kCost = 0.8;
  template <typename T>
  static T Do(T y, T dy) {
    const T value = dy * T(0.5) / Conjugate(y);
    return dy == T(0) ? T(0) : value;
  }
};
struct RsqrtGrad {
  static constexpr double kCost = 0.5;
  template <typename T>
  static T Do(T y, T dy) {
    const T z = Conjugate(y);
    const T value = T(-0.5) * (dy * z) * (z * z);
    return dy == T(0) ? T(0) : value;
  }
};
struct ReciprocalGrad {
  static constexpr double kCost = 0.5;
  template <typename T>
  static T Do(T y, T dy) {
    const T z = Conjugate(y);
    const T value = -z * (dy * z);
    return dy == T(0) ? T(0) : value;
  }
};

using FloatOrComplex = JoinTypes<FloatTypes, ComplexTypes>;

// The gradients above: as TensorFlow has it, y and dy need not be of one shape.
template <typename Op>
class OutputGradientKernel : public BinaryKernel {
 public:
  using BinaryKernel::BinaryKernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor &y = ctx.input(0), &dy = ctx.input(1);
    if (y.shape() == dy.shape()) return BinaryKernel::Compute(ctx);
    MR_RETURN_IF_ERROR(CheckSameCount(y.shape(), dy.shape()));
    const DataType type = y.dtype();
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, y.shape()));
    ctx.ParallelFor(y.num_elements(), Op::kCost, [&](int64_t begin, int64_t end) {
      loop()(ElementAt(y.raw_data(), type, begin), 1, ElementAt(dy.raw_data(), type, begin), 1,
             ElementAt(out->raw_data(), type, begin), end - begin);
    });
    return OkStatus();
  }
};

template <typename Op>
std::unique_ptr<Kernel> MakeOutputGradient(KernelConstruction& c) {
  BinaryLoopFn loop = nullptr;
  ScalarFn scalar = nullptr;
  DispatchType(FloatOrComplex(), BaseType(c.input_types()[0]), [&]<typename T>() {
    loop = BinaryLoopFor<Op, T>();
    scalar = &BinaryScalar<Op, T>;
  });
  if (loop == nullptr) c.SetError(NoLoopFor(c));
  return std::make_unique<OutputGradientKernel<Op>>(c, loop, scalar, Op::kCost, OkStatus(), false);
}

template <typename Op>
void RegisterOutputGradient(KernelRegistry& r, std::string op) {
  r.Register(KernelDef(std::move(op)).Types("T", DataTypesOf(FloatOrComplex())),
             &MakeOutputGradient<Op>);
}

}  // namespace

void RegisterElementwiseBinaryKernels(KernelRegistry& r) {
  RegisterBinary<Add, JoinTypes<NumberTypes, TypeList<std::string>>>(r, "Add");
  RegisterBinary<Add, NumberTypes>(r, "AddV2");
  RegisterBinary<Sub, NumberTypes>(r, "Sub");
  RegisterBinary<Mul, NumberTypes>(r, "Mul");
  RegisterBinary<SquaredDifference, JoinTypes<FloatOrComplex, IndexTypes>>(r, "SquaredDifference");
  RegisterBinary<Maximum, RealTypes>(r, "Maximum");
  RegisterBinary<Minimum, RealTypes>(r, "Minimum");
  r.Register(KernelDef("Complex").Type<float>("T").Type<Complex64>("Tout"),
             &MakeBinary<MakeComplex, TypeList<float>, true>);
  r.Register(KernelDef("Complex").Type<double>("T").Type<Complex128>("Tout"),
             &MakeBinary<MakeComplex, TypeList<double>, true>);
  RegisterOutputGradient<SigmoidGrad>(r, "SigmoidGrad");
  RegisterOutputGradient<TanhGrad>(r, "TanhGrad");
  RegisterOutputGradient<SqrtGrad>(r, "SqrtGrad");
  RegisterOutputGradient<RsqrtGrad>(r, "RsqrtGrad");
  RegisterOutputGradient<ReciprocalGrad>(r, "ReciprocalGrad");
}

void RegisterElementwiseDivisionKernels(KernelRegistry& r) {
  RegisterBinary<Div, NumberTypes>(r, "Div");
  RegisterBinary<Div, FloatOrComplex>(r, "RealDiv");
  RegisterBinary<TruncateDiv, RealTypes>(r, "TruncateDiv");
  RegisterBinary<FloorDiv, RealTypes>(r, "FloorDiv");
  RegisterBinary<FloorMod, RealTypes>(r, "FloorMod");
  RegisterBinary<DivNoNan, FloatOrComplex>(r, "DivNoNan");
  RegisterBinary<Pow, JoinTypes<FloatOrComplex, TypeList<int8_t, int16_t, int32_t, int64_t>>>(
      r, "Pow");
}

}  // namespace millrace
