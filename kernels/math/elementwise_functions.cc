// SPDX-License-Identifier: Apache-2.0
// Elementwise exponentials, logarithms, sines and their kin.
#include <cmath>

#include "kernels/all_kernels.h"
#include "kernels/common/elementwise.h"
#include "kernels/common/fast_functions.h"

namespace millrace {
namespace {

using namespace fast_functions;  // NOLINT: what the ops below are made of

#define MR_UNARY_FUNCTION(Name, cost, expression) \
  struct Name {                                   \
    static constexpr double kCost = cost;         \
    template <typename T>                         \
    static T Do(T x) {                            \
      return expression;                          \
    }                                             \
  }

MR_UNARY_FUNCTION(Sin, 8, std::sin(x));
MR_UNARY_FUNCTION(Cos, 8, std::cos(x));
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
