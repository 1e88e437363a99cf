// Elementwise exponentials, logarithms, sines and their kin.
#include <cmath>

#include "kernels/all_kernels.h"
#include "kernels/elementwise.h"

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

MR_UNARY_FUNCTION(Exp, 5, std::exp(x));
MR_UNARY_FUNCTION(Expm1, 8, std::expm1(x));
MR_UNARY_FUNCTION(Log, 5, std::log(x));
MR_UNARY_FUNCTION(Log1p, 8, std::log1p(x));
MR_UNARY_FUNCTION(Sin, 8, std::sin(x));
MR_UNARY_FUNCTION(Cos, 8, std::cos(x));
MR_UNARY_FUNCTION(Tanh, 10, std::tanh(x));
MR_UNARY_FUNCTION(Erf, 10, std::erf(x));
MR_UNARY_FUNCTION(Sigmoid, 6, T(1) / (T(1) + std::exp(-x)));
#undef MR_UNARY_FUNCTION

using FloatOrComplex = JoinTypes<FloatTypes, ComplexTypes>;

}  // namespace

void RegisterElementwiseFunctionKernels(KernelRegistry& r) {
  RegisterUnary<Exp, FloatOrComplex>(r, "Exp");
  RegisterUnary<Expm1, FloatTypes>(r, "Expm1");
  RegisterUnary<Log, FloatOrComplex>(r, "Log");
  RegisterUnary<Log1p, FloatTypes>(r, "Log1p");
  RegisterUnary<Sin, FloatOrComplex>(r, "Sin");
  RegisterUnary<Cos, FloatOrComplex>(r, "Cos");
  RegisterUnary<Tanh, FloatOrComplex>(r, "Tanh");
  RegisterUnary<Erf, FloatTypes>(r, "Erf");
  RegisterUnary<Sigmoid, FloatOrComplex>(r, "Sigmoid");
}

}  // namespace millrace
