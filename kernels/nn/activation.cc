// The nonlinearities of networks, and their gradients.
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

struct ReluGrad {
  static constexpr double kCost = 0.4;
  template <typename T>
  static T Do(T gradient, T feature) {
    return feature > T(0) ? gradient : T(0);
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
    return feature > T(0) && feature < T(6) ? gradient : T(0);
  }
};

struct Elu {
  static constexpr double kCost = 8;
  template <typename T>
  static T Do(T x) {
    return x < T(0) ? std::expm1(x) : x;
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
  static constexpr double kCost = 8;
  template <typename T>
  static T Do(T x) {
    return x < T(0) ? T(kSeluScaleAlpha) * std::expm1(x) : T(kSeluScale) * x;
  }
};

struct SeluGrad {
  static constexpr double kCost = 0.6;
  template <typename T>
  static T Do(T gradient, T output) {
    return output < T(0) ? gradient * (output + T(kSeluScaleAlpha)) : gradient * T(kSeluScale);
  }
};

struct Softplus {
  static constexpr double kCost = 15;
  template <typename T>
  static T Do(T x) {
    // max(x, 0) + log(1 + exp(-|x|)) neither overflows nor cancels.
    if (x != x) return x;
    return (x > T(0) ? x : T(0)) + std::log1p(std::exp(-std::abs(x)));
  }
};

struct SoftplusGrad {
  static constexpr double kCost = 8;
  template <typename T>
  static T Do(T gradient, T feature) {
    return gradient / (T(1) + std::exp(-feature));
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

class LeakyReluKernel : public Kernel {
 public:
  explicit LeakyReluKernel(KernelConstruction& c)
      : Kernel(c), alpha_(c.attr<float>("alpha")), gradient_(c.def().name() == "LeakyReluGrad") {}

  Status Compute(KernelContext& ctx) override {
    const Tensor& first = ctx.input(0);
    const Tensor& feature = ctx.input(gradient_ ? 1 : 0);
    if (!(first.shape() == feature.shape())) {
      return errors::InvalidArgument("gradients and features must have the same shape, got ",
                                     first.shape().DebugString(), " and ",
                                     feature.shape().DebugString());
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.ForwardOrAllocateOutput({0}, 0, first.shape()));
    DispatchType(FloatTypes(), first.dtype(), [&]<typename T>() {
      using C = ComputeType<T>;
      const C alpha = static_cast<C>(alpha_);
      const T* in = first.data<T>();
      const T* by = feature.data<T>();
      T* to = out->data<T>();
      ctx.ParallelFor(first.num_elements(), 0.5, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const C x = static_cast<C>(in[i]), f = static_cast<C>(by[i]);
          to[i] = static_cast<T>(f > C(0) ? x : x * alpha);
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
    DispatchType(FloatTypes(), type, [&]<typename T>() { loop = LoopFor<UnaryLoop<Op, T>, T>(); });
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
