// Elementwise exponentials, logarithms, sines and their kin.
#include <cmath>

#include "kernels/all_kernels.h"
#include "kernels/elementwise.h"
#include "kernels/float_math.h"

namespace millrace {
namespace {

// Functions of float have loops that vectorise; for the rest there is the library.
#define MR_FAST_FUNCTION(Name, fast, expression) \
  struct Name {                                  \
    static constexpr double kCost = 1;           \
    template <typename T>                        \
    static MR_ALWAYS_INLINE T Do(T x) {          \
      if constexpr (std::is_same_v<T, float>) {  \
        return float_math::fast(x);              \
      } else {                                   \
        return expression;                       \
      }                                          \
    }                                            \
  }
#define MR_UNARY_FUNCTION(Name, cost, expression) \
  struct Name {                                   \
    static constexpr double kCost = cost;         \
    template <typename T>                         \
    static T Do(T x) {                            \
      return expression;                          \
    }                                             \
  }

MR_FAST_FUNCTION(Exp, Exp, std::exp(x));
MR_FAST_FUNCTION(Log, Log, std::log(x));
MR_FAST_FUNCTION(Tanh, Tanh, std::tanh(x));
MR_FAST_FUNCTION(Sigmoid, Sigmoid, T(1) / (T(1) + std::exp(-x)));
MR_UNARY_FUNCTION(Expm1, 8, std::expm1(x));
MR_UNARY_FUNCTION(Log1p, 8, std::log1p(x));
MR_UNARY_FUNCTION(Sin, 8, std::sin(x));
MR_UNARY_FUNCTION(Cos, 8, std::cos(x));
MR_UNARY_FUNCTION(Erf, 10, std::erf(x));
#undef MR_FAST_FUNCTION
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
