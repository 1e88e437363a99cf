// Elementwise exponentials, logarithms, sines and their kin.
#include <cmath>

#include "kernels/all_kernels.h"
#include "kernels/common/elementwise.h"
#include "kernels/common/fast_functions.h"

namespace millrace {
namespace {

using namespace fast_functions;  // NOLINT: what the ops below are made of

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
    // log|1 + a + ib| = log1p(2a + a^2 + b^2) / 2
    const auto a = x.real(), b = x.imag();
    return T(std::log1p(a * (2 + a) + b * b) / 2, std::atan2(b, 1 + a));
  } else {
    return std::log1p(x);
  }
}

#define MR_UNARY_FUNCTION(Name, cost, expression) \
  struct Name {                                   \
    static constexpr double kCost = cost;         \
    template <typename T>                         \
    static T Do(T x) {                            \
      return expression;                          \
    }                                             \
  }

MR_UNARY_FUNCTION(Expm1, 8, Expm1Of(x));
MR_UNARY_FUNCTION(Log1p, 8, Log1pOf(x));
MR_UNARY_FUNCTION(Sin, 8, std::sin(x));
MR_UNARY_FUNCTION(Cos, 8, std::cos(x));
MR_UNARY_FUNCTION(Erf, 10, std::erf(x));
#undef MR_UNARY_FUNCTION

using FloatOrComplex = JoinTypes<FloatTypes, ComplexTypes>;

}  // namespace

void RegisterElementwiseFunctionKernels(KernelRegistry& r) {
  RegisterUnary<Exp, FloatOrComplex>(r, "Exp");
  RegisterUnary<Expm1, FloatOrComplex>(r, "Expm1");
  RegisterUnary<Log, FloatOrComplex>(r, "Log");
  RegisterUnary<Log1p, FloatOrComplex>(r, "Log1p");
  RegisterUnary<Sin, FloatOrComplex>(r, "Sin");
  RegisterUnary<Cos, FloatOrComplex>(r, "Cos");
  RegisterUnary<Tanh, FloatOrComplex>(r, "Tanh");
  RegisterUnary<Erf, FloatTypes>(r, "Erf");
  RegisterUnary<Sigmoid, FloatOrComplex>(r, "Sigmoid");
}

}  // namespace millrace
