// Functions of float that have loops which vectorise, as functors of elementwise kernels; for
// other types there is the library.
#ifndef KERNELS_COMMON_FAST_FUNCTIONS_H_
#define KERNELS_COMMON_FAST_FUNCTIONS_H_

#include <cmath>
#include <complex>
#include <type_traits>

#include "kernels/common/float_math.h"
#include "kernels/common/isa.h"

namespace millrace::fast_functions {

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
MR_FAST_FUNCTION(Log, Log, std::log(x));
MR_FAST_FUNCTION(Tanh, Tanh, std::tanh(x));
MR_FAST_FUNCTION(Sigmoid, Sigmoid, T(1) / (T(1) + std::exp(-x)));
#undef MR_FAST_FUNCTION

}  // namespace millrace::fast_functions

#endif  // KERNELS_COMMON_FAST_FUNCTIONS_H_
