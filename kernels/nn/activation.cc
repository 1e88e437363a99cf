// SPDX-License-Identifier: Apache-2.0
// The nonlinearities of networks, and their gradients.
#include <algorithm>
#include <cmath>

#include "base/status_macros.h"
#include "kernels/common/elementwise.h"
#include "kernels/common/fast_functions.h"
#include "kernels/nn/epilogue.h"

namespace millrace {

namespace {

using namespace fast_functions;  // NOLINT: what the ops below are made of

// Comparisons are written so that a NaN stays one.
struct Relu {
  static constexpr double kCost = 0.3;
  template <typename T>
  static T Do(T x) {
    return x < T(0) ? T(0) : x;
  }
};

// Products, as in TensorFlow: a gradient that is no number stays none where the feature is cut off.
struct ReluGrad {
  static constexpr double kCost = 0.4;
  template <typename T>
  static T Do(T gradient, T feature) {
    return static_cast<T>(gradient * (feature > T(0) ? T(1) : T(0)));
  }
};

struct Relu6 {
  static constexpr double kCost = 0.3;
  template <typename T>
  static T Do(T x) {
    return x < T(0) ? T(0) : x > T(6) ? T(6) : x;
  }
};

struct Relu6Grad {
  static constexpr double kCost = 0.4;
  template <typename T>
  static T Do(T gradient, T feature) {
    return static_cast<T>(gradient * (feature > T(0) && feature < T(6) ? T(1) : T(0)));
  }
};

struct Elu {
  static constexpr double kCost = 1;
  template <typename T>
  static MR_ALWAYS_INLINE T Do(T x) {
    if (!std::is_same_v<T, float> && !(x < T(0))) return x;
    const T below = Expm1::Do(x);  // before the choice, which is then a blend and no branch
    return x < T(0) ? below : x;
  }
};

struct EluGrad {
  static constexpr double kCost = 0.5;
  template <typename T>
  static T Do(T gradient, T output) {
    return output < T(0) ? gradient * (output + T(1)) : gradient;
  }
};

// Klambauer et al., "Self-Normalizing Neural Networks" (2017).
constexpr double kSeluScale = 1.0507009873554804934193349852946;
constexpr double kSeluScaleAlpha = 1.7580993408473768599402175208123;

struct Selu {
  static constexpr double kCost = 1;
  template <typename T>
  static MR_ALWAYS_INLINE T Do(T x) {
    if (!std::is_same_v<T, float> && !(x < T(0))) return T(kSeluScale) * x;
    const T below = T(kSeluScaleAlpha) * Expm1::Do(x);
    return x < T(0) ? below : T(kSeluScale) * x;
  }
};

struct SeluGrad {
  static constexpr double kCost = 0.6;
  template <typename T>
  static T Do(T gradient, T output) {
    return output < T(0) ? gradient * (output + T(kSeluScaleAlpha)) : gradient * T(kSeluScale);
  }
};

struct SoftplusGrad {
  static constexpr double kCost = 1;
  template <typename T>
  static MR_ALWAYS_INLINE T Do(T gradient, T feature) {
    return gradient / (T(1) + Exp::Do(-feature));
  }
};

struct Softsign {
  static constexpr double kCost = 1;
  template <typename T>
  static T Do(T x) {
    return x / (T(1) + std::abs(x));
  }
};

struct SoftsignGrad {
  static constexpr double kCost = 1;
  template <typename T>
  static T Do(T gradient, T feature) {
    const T d = T(1) + std::abs(feature);
    return gradient / (d * d);
  }
};

// `by` where the feature is positive, `by` times alpha elsewhere; `by` and `out` may be one another
// or the feature.
template <typename T>
struct LeakyLoop {
  using C = ComputeType<T>;
  static MR_ALWAYS_INLINE void Run(const T* by, const T* feature, C alpha, T* out, int64_t n) {
    MR_IVDEP
    for (int64_t i = 0; i < n; ++i) {
      const C x = static_cast<C>(by[i]), below = x * alpha;
      out[i] = static_cast<T>(static_cast<C>(feature[i]) > C(0) ? x : below);
    }
  }
};

// The same for 16-bit floats, a block of floats at a time.
template <typename T>
void LeakySmall(const T* by, const T* feature, float alpha, T* out, int64_t n) {
  static const auto loop = BestVersion<LeakyLoop<float>>();
  float x[small_floats::kBlock], f[small_floats::kBlock];
  for (int64_t i = 0; i < n; i += small_floats::kBlock) {
    const int64_t count = std::min(small_floats::kBlock, n - i);
    small_floats::Widen(by + i, x, count);
    small_floats::Widen(feature + i, f, count);
    loop(x, f, alpha, x, count);
    small_floats::Narrow(x, out + i, count);
  }
}

class LeakyReluKernel : public Kernel {
 public:
  explicit LeakyReluKernel(KernelConstruction& c)
      : Kernel(c), alpha_(c.attr<float>("alpha")), gradient_(c.def().name() == "LeakyReluGrad") {}

  Status Compute(KernelContext& ctx) override {
    // References, no shares of the inputs: these would keep the output from taking a buffer.
    const Tensor& first = ctx.input(0);
    const Tensor& feature = ctx.input(gradient_ ? 1 : 0);
    if (!(first.shape() == feature.shape())) {
      return errors::InvalidArgument("gradients and features must have the same shape, got ",
                                     first.shape().DebugString(), " and ",
                                     feature.shape().DebugString());
    }
    const DataType dtype = first.dtype();
    const int64_t n = first.num_elements();
    const void *by = first.raw_data(), *features = feature.raw_data();
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.ForwardOrAllocateOutput({0}, 0, first.shape()));
    DispatchType(FloatTypes(), dtype, [&]<typename T>() {
      const T *x = static_cast<const T*>(by), *f = static_cast<const T*>(features);
      T* to = out->data<T>();
      const auto alpha = static_cast<ComputeType<T>>(alpha_);
      ctx.ParallelFor(n, 0.4, [&](int64_t begin, int64_t end) {
        if constexpr (kIsSmallFloat<T>) {
          LeakySmall(x + begin, f + begin, alpha, to + begin, end - begin);
        } else {
          LoopFor<LeakyLoop<T>, T>()(x + begin, f + begin, alpha, to + begin, end - begin);
        }
      });
    });
    return OkStatus();
  }

 private:
  const float alpha_;
  const bool gradient_;
};

}  // namespace

UnaryLoopFn ActivationLoop(std::string_view op, DataType type) {
  const auto loop_of = [&]<typename Op>() -> UnaryLoopFn {
    UnaryLoopFn loop = nullptr;
    DispatchType(FloatTypes(), type, [&]<typename T>() { loop = UnaryLoopFor<Op, T>(); });
    return loop;
  };
  if (op == "Relu") return loop_of.operator()<Relu>();
  if (op == "Relu6") return loop_of.operator()<Relu6>();
  if (op == "Elu") return loop_of.operator()<Elu>();
  if (op == "Tanh") return loop_of.operator()<Tanh>();
  return op == "Sigmoid" ? loop_of.operator()<Sigmoid>() : nullptr;
}

void RegisterActivationKernels(KernelRegistry& r) {
  RegisterUnary<Relu, RealTypes>(r, "Relu");
  RegisterBinary<ReluGrad, RealTypes, false>(r, "ReluGrad");
  RegisterUnary<Relu6, RealTypes>(r, "Relu6");
  RegisterBinary<Relu6Grad, RealTypes, false>(r, "Relu6Grad");
  RegisterUnary<Elu, FloatTypes>(r, "Elu");
  RegisterBinary<EluGrad, FloatTypes, false>(r, "EluGrad");
  RegisterUnary<Selu, FloatTypes>(r, "Selu");
  RegisterBinary<SeluGrad, FloatTypes, false>(r, "SeluGrad");
  RegisterUnary<Softplus, FloatTypes>(r, "Softplus");
  RegisterBinary<SoftplusGrad, FloatTypes, false>(r, "SoftplusGrad");
  RegisterUnary<Softsign, FloatTypes>(r, "Softsign");
  RegisterBinary<SoftsignGrad, FloatTypes, false>(r, "SoftsignGrad");
  for (const char* op : {"LeakyRelu", "LeakyReluGrad"}) {
    r.Register(KernelDef(op).Types("T", DataTypesOf(FloatTypes())), MakeKernel<LeakyReluKernel>);
  }
}

}  // namespace millrace
