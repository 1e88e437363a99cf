// The updates of optimizers: each op is one pass over a variable and its slots, under their
// locks, so that an update is atomic whatever use_locking says. An algorithm is a struct
// with the names of its scalar inputs and the step of one element; inputs are found by the
// names in the op's definition, and references or handles come first.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/elementwise.h"
#include "kernels/kernel.h"
#include "kernels/kernel_context.h"
#include "kernels/kernel_registry.h"
#include "kernels/variable.h"

namespace millrace {
namespace {

struct Flags {
  bool use_nesterov = false, update_slots = true, multiply_linear_by_lr = false;
};

constexpr int kMaxScalars = 6;

// --- Algorithms ------------------------------------------------------------------------------
// kScalars names the inputs that arrive in h, in this order; Prepare may replace h by what
// does not depend on the element. Step changes the variable v and its slots s, given the
// gradient g.

struct GradientDescent {
  using Types = JoinTypes<FloatTypes, ComplexTypes>;
  static constexpr int kSlots = 0;
  static constexpr std::array kScalars = {"alpha"};
  template <typename C>
  static void Prepare(C*) {}
  template <typename C>
  static void Step(const C* h, const Flags&, C& v, C*, C g) {
    v -= h[0] * g;
  }
};

struct Momentum {
  using Types = JoinTypes<FloatTypes, ComplexTypes>;
  static constexpr int kSlots = 1;
  static constexpr std::array kScalars = {"lr", "momentum"};
  template <typename C>
  static void Prepare(C*) {}
  template <typename C>
  static void Step(const C* h, const Flags& flags, C& v, C* s, C g) {
    s[0] = s[0] * h[1] + g;
    v -= flags.use_nesterov ? g * h[0] + s[0] * h[1] * h[0] : h[0] * s[0];
  }
};

struct KerasMomentum {
  static constexpr int kSlots = 1;
  static constexpr std::array kScalars = {"lr", "momentum"};
  template <typename C>
  static void Prepare(C*) {}
  template <typename C>
  static void Step(const C* h, const Flags& flags, C& v, C* s, C g) {
    s[0] = s[0] * h[1] - g * h[0];
    v += flags.use_nesterov ? s[0] * h[1] - g * h[0] : s[0];
  }
};

struct Adagrad {
  using Types = JoinTypes<FloatTypes, ComplexTypes>;
  static constexpr int kSlots = 1;
  static constexpr std::array kScalars = {"lr"};
  template <typename C>
  static void Prepare(C*) {}
  template <typename C>
  static void Step(const C* h, const Flags& flags, C& v, C* s, C g) {
    if (flags.update_slots) s[0] += g * g;
    v -= h[0] * g / std::sqrt(s[0]);
  }
};

struct AdagradV2 {
  static constexpr int kSlots = 1;
  static constexpr std::array kScalars = {"lr", "epsilon"};
  template <typename C>
  static void Prepare(C*) {}
  template <typename C>
  static void Step(const C* h, const Flags& flags, C& v, C* s, C g) {
    if (flags.update_slots) s[0] += g * g;
    v -= h[0] * g / (std::sqrt(s[0]) + h[1]);
  }
};

struct Adadelta {
  static constexpr int kSlots = 2;
  static constexpr std::array kScalars = {"lr", "rho", "epsilon"};
  template <typename C>
  static void Prepare(C*) {}
  template <typename C>
  static void Step(const C* h, const Flags&, C& v, C* s, C g) {
    s[0] = s[0] * h[1] + g * g * (C(1) - h[1]);
    const C update = std::sqrt(s[1] + h[2]) / std::sqrt(s[0] + h[2]) * g;
    s[1] = s[1] * h[1] + update * update * (C(1) - h[1]);
    v -= update * h[0];
  }
};

struct RmsProp {
  using Types = JoinTypes<FloatTypes, ComplexTypes>;
  static constexpr int kSlots = 2;
  static constexpr std::array kScalars = {"lr", "rho", "momentum", "epsilon"};
  template <typename C>
  static void Prepare(C*) {}
  template <typename C>
  static void Step(const C* h, const Flags&, C& v, C* s, C g) {
    s[0] += (g * g - s[0]) * (C(1) - h[1]);
    s[1] = s[1] * h[2] + g * h[0] / std::sqrt(s[0] + h[3]);
    v -= s[1];
  }
};

struct CenteredRmsProp {
  static constexpr int kSlots = 3;  // mg, ms, mom
  static constexpr std::array kScalars = {"lr", "rho", "momentum", "epsilon"};
  template <typename C>
  static void Prepare(C*) {}
  template <typename C>
  static void Step(const C* h, const Flags&, C& v, C* s, C g) {
    s[1] += (g * g - s[1]) * (C(1) - h[1]);
    s[0] += (g - s[0]) * (C(1) - h[1]);
    s[2] = s[2] * h[2] + g * h[0] / std::sqrt(s[1] - s[0] * s[0] + h[3]);
    v -= s[2];
  }
};

// Kingma and Ba, "Adam" (ICLR 2015), in the form before section 2.1 where epsilon is not
// corrected; h[0] becomes the corrected learning rate.
struct Adam {
  using Types = JoinTypes<FloatTypes, ComplexTypes>;
  static constexpr int kSlots = 2;
  static constexpr std::array kScalars = {"lr",      "beta1",       "beta2",
                                          "epsilon", "beta1_power", "beta2_power"};
  template <typename C>
  static void Prepare(C* h) {
    h[0] = h[0] * std::sqrt(C(1) - h[5]) / (C(1) - h[4]);
  }
  template <typename C>
  static void Step(const C* h, const Flags& flags, C& v, C* s, C g) {
    s[0] += (g - s[0]) * (C(1) - h[1]);
    s[1] += (g * g - s[1]) * (C(1) - h[2]);
    const C m = flags.use_nesterov ? g * (C(1) - h[1]) + h[1] * s[0] : s[0];
    v -= m * h[0] / (std::sqrt(s[1]) + h[3]);
  }
};

struct AdamWithAmsgrad {
  static constexpr int kSlots = 3;  // m, v, vhat
  static constexpr auto kScalars = Adam::kScalars;
  template <typename C>
  static void Prepare(C* h) {
    Adam::Prepare(h);
  }
  template <typename C>
  static void Step(const C* h, const Flags&, C& v, C* s, C g) {
    s[0] += (g - s[0]) * (C(1) - h[1]);
    s[1] += (g * g - s[1]) * (C(1) - h[2]);
    s[2] = std::max(s[2], s[1]);
    v -= s[0] * h[0] / (std::sqrt(s[2]) + h[3]);
  }
};

struct AdaMax {
  static constexpr int kSlots = 2;
  static constexpr std::array kScalars = {"lr", "beta1", "beta2", "epsilon", "beta1_power"};
  template <typename C>
  static void Prepare(C* h) {
    h[0] = h[0] / (C(1) - h[4]);
  }
  template <typename C>
  static void Step(const C* h, const Flags&, C& v, C* s, C g) {
    s[0] += (g - s[0]) * (C(1) - h[1]);
    s[1] = std::max(h[2] * s[1], std::abs(g));
    v -= h[0] * s[0] / (s[1] + h[3]);
  }
};

// McMahan et al., "Ad Click Prediction: a View from the Trenches" (KDD 2013).
template <bool kShrinks>
struct FtrlBase {
  static constexpr int kSlots = 2;  // accum, linear
  template <typename C>
  static void Prepare(C*) {}
  template <typename C>
  static void Step(const C* h, const Flags& flags, C& v, C* s, C g) {
    const C lr = h[0], l1 = h[1], l2 = h[2], power = -h[3];
    const C accum = s[0] + g * g;
    const C grown = std::pow(accum, power), before = std::pow(s[0], power);
    const C pull = kShrinks ? g + C(2) * h[4] * v : g;
    C quadratic, threshold;
    if (flags.multiply_linear_by_lr) {
      s[1] += pull * lr - (grown - before) * v;
      quadratic = grown + C(2) * l2 * lr;
      threshold = l1 * lr;
    } else {
      s[1] += pull - (grown - before) / lr * v;
      quadratic = grown / lr + C(2) * l2;
      threshold = l1;
    }
    v = std::abs(s[1]) > threshold ? (std::copysign(threshold, s[1]) - s[1]) / quadratic : C(0);
    s[0] = accum;
  }
};
struct Ftrl : FtrlBase<false> {
  static constexpr std::array kScalars = {"lr", "l1", "l2", "lr_power"};
};
struct FtrlV2 : FtrlBase<true> {
  static constexpr std::array kScalars = {"lr", "l1", "l2", "lr_power", "l2_shrinkage"};
};

// Duchi, Hazan and Singer, "Adaptive Subgradient Methods" (JMLR 2011): steps along the sum of
// all gradients, kept sparse by l1.
struct AdagradDA {
  using Types = TypeList<float, double>;
  static constexpr int kSlots = 2;  // sums of the gradients and of their squares
  static constexpr std::array kScalars = {"lr", "l1", "l2", "global_step"};
  template <typename C>
  static void Prepare(C*) {}
  template <typename C>
  static void Step(const C* h, const Flags&, C& v, C* s, C g) {
    s[0] += g;
    s[1] += g * g;
    const C scale = h[2] * h[3] * h[0] + std::sqrt(s[1]);
    const C pull = h[1] > C(0) ? std::max(std::abs(s[0]) - h[1] * h[3], C(0)) : std::abs(s[0]);
    v = -std::copysign(h[0] * pull, s[0]) / scale;
  }
};

// Duchi and Singer, "Efficient Learning using Forward-Backward Splitting" (NIPS 2009): a step,
// then towards zero.
template <typename C>
C Shrink(C v, C lr, C l1, C l2) {
  const C kept = l1 > C(0) ? std::copysign(std::max(std::abs(v) - lr * l1, C(0)), v) : v;
  return kept / (C(1) + l2 * lr);
}
struct ProximalGradientDescent {
  static constexpr int kSlots = 0;
  static constexpr std::array kScalars = {"alpha", "l1", "l2"};
  template <typename C>
  static void Prepare(C*) {}
  template <typename C>
  static void Step(const C* h, const Flags&, C& v, C*, C g) {
    v = Shrink(v - h[0] * g, h[0], h[1], h[2]);
  }
};
struct ProximalAdagrad {
  static constexpr int kSlots = 1;
  static constexpr std::array kScalars = {"lr", "l1", "l2"};
  template <typename C>
  static void Prepare(C*) {}
  template <typename C>
  static void Step(const C* h, const Flags&, C& v, C* s, C g) {
    s[0] += g * g;
    const C lr = h[0] / std::sqrt(s[0]);
    v = Shrink(v - lr * g, lr, h[1], h[2]);
  }
};

// The element types an algorithm takes: its own list, or the floats.
template <typename A>
struct TypesOfT {
  using type = FloatTypes;
};
template <typename A>
  requires requires { typename A::Types; }
struct TypesOfT<A> {
  using type = typename A::Types;
};

// --- Kernels ---------------------------------------------------------------------------------

// Updates n elements of the variable and its slots, which lie at data[0], data[1] and so on.
template <typename A, typename T>
struct UpdateLoop {
  using C = ComputeType<T>;

  static MR_ALWAYS_INLINE void Run(const std::array<C, kMaxScalars>& hyper, const Flags& given,
                                   const std::array<T*, 1 + A::kSlots>& data, int64_t offset,
                                   const T* g, int64_t n) {
    const auto h = hyper;
    const Flags flags = given;
    std::array<T*, 1 + A::kSlots> at;
    for (int k = 0; k <= A::kSlots; ++k) at[k] = data[k] + offset;
    // Variables and gradient never overlap: the variables were made exclusive.
    MR_IVDEP
    for (int64_t i = 0; i < n; ++i) {
      C value = static_cast<C>(at[0][i]);
      C slots[A::kSlots + 1] = {};
      for (int k = 0; k < A::kSlots; ++k) slots[k] = static_cast<C>(at[k + 1][i]);
      A::Step(h.data(), flags, value, slots, static_cast<C>(g[i]));
      for (int k = 0; k < A::kSlots; ++k) at[k + 1][i] = static_cast<T>(slots[k]);
      at[0][i] = static_cast<T>(value);
    }
  }
};

// One algorithm, applied to whole variables (Apply*) or to the rows that the input `indices`
// lists, in order (SparseApply*).
template <typename A>
class ApplyKernel : public Kernel {
 public:
  explicit ApplyKernel(KernelConstruction& c) : Kernel(c) {
    flags_.use_nesterov = c.attrs().GetOr<bool>("use_nesterov", false);
    flags_.update_slots = c.attrs().GetOr<bool>("update_slots", true);
    flags_.multiply_linear_by_lr = c.attrs().GetOr<bool>("multiply_linear_by_lr", false);
    for (std::size_t i = 0; i < A::kScalars.size(); ++i) {
      scalars_[i] = Find(c, A::kScalars[i]);
      if (scalars_[i] < 0) {
        c.SetError(errors::Internal(c.def().name(), " has no input ", A::kScalars[i]));
      }
    }
    gradient_ = std::max(Find(c, "grad"), Find(c, "delta"));
    indices_ = Find(c, "indices");
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor gradient = ctx.locked_input(gradient_);
    {
      LockedVariables variables;
      MR_RETURN_IF_ERROR(variables.Lock(ctx, kVariables, gradient.dtype()));
      for (int i = 1; i < kVariables; ++i) {
        if (!(variables.value(i)->shape() == variables.value(0)->shape())) {
          return errors::InvalidArgument(
              "var and ", def().input_arg(i).name(),
              " do not have the same shape: ", variables.value(0)->shape().DebugString(), " ",
              variables.value(i)->shape().DebugString());
        }
      }
      for (std::size_t i = 0; i < A::kScalars.size(); ++i) {
        const Tensor& scalar = ctx.input(scalars_[i]);
        if (scalar.rank() != 0) {
          return errors::InvalidArgument(A::kScalars[i],
                                         " is not a scalar: ", scalar.shape().DebugString());
        }
      }
      MR_RETURN_IF_ERROR(indices_ < 0 ? CheckDense(*variables.value(0), gradient)
                                      : CheckSparse(ctx, *variables.value(0), gradient));
      MR_RETURN_IF_ERROR(variables.MakeExclusive(ctx));
      DispatchType(typename TypesOfT<A>::type(), gradient.dtype(),
                   [&]<typename T>() { Run<T>(ctx, variables, gradient); });
    }
    ForwardFirstRef(ctx);
    return OkStatus();
  }

 private:
  static constexpr int kVariables = 1 + A::kSlots;

  static int Find(const KernelConstruction& c, const char* name) {
    for (int i = 0; i < c.def().input_arg_size(); ++i) {
      if (c.def().input_arg(i).name() == name) return i;
    }
    return -1;
  }

  static Status CheckDense(const Tensor& var, const Tensor& gradient) {
    if (var.shape() == gradient.shape()) return OkStatus();
    return errors::InvalidArgument("var and grad do not have the same shape",
                                   var.shape().DebugString(), " ", gradient.shape().DebugString());
  }

  Status CheckSparse(KernelContext& ctx, const Tensor& var, const Tensor& gradient) const {
    const Tensor& indices = ctx.input(indices_);
    if (var.rank() < 1) return errors::InvalidArgument("var must be at least 1 dimensional");
    if (indices.rank() != 1) return errors::InvalidArgument("indices must be one-dimensional");
    bool fits = gradient.rank() == var.rank() && gradient.dim(0) == indices.dim(0);
    for (int i = 1; fits && i < var.rank(); ++i) fits = var.dim(i) == gradient.dim(i);
    if (!fits) {
      return errors::InvalidArgument("grad of shape ", gradient.shape().DebugString(), " with ",
                                     indices.dim(0), " indices does not match var of shape ",
                                     var.shape().DebugString());
    }
    for (int64_t i = 0; i < indices.dim(0); ++i) {
      const int64_t at = Index(indices, i);
      if (at < 0 || at >= var.dim(0)) {
        return errors::InvalidArgument("Index ", at, " at offset ", i, " in indices is out of ",
                                       "range [0, ", var.dim(0), ")");
      }
    }
    return OkStatus();
  }

  static int64_t Index(const Tensor& indices, int64_t i) {
    return indices.dtype() == kInt32 ? indices.data<int32_t>()[i] : indices.data<int64_t>()[i];
  }

  template <typename T>
  void Run(KernelContext& ctx, const LockedVariables& variables, const Tensor& gradient) const {
    using C = ComputeType<T>;
    std::array<C, kMaxScalars> h{};
    for (std::size_t i = 0; i < A::kScalars.size(); ++i) {
      const Tensor& scalar = ctx.input(scalars_[i]);  // of the element type, or a global step
      h[i] = scalar.dtype() == kInt64 && DataTypeOf<T>() != kInt64
                 ? static_cast<C>(scalar.scalar<int64_t>())
                 : static_cast<C>(scalar.template scalar<T>());
    }
    A::Prepare(h.data());
    std::array<T*, kVariables> data;
    for (int i = 0; i < kVariables; ++i) data[i] = variables.value(i)->template data<T>();
    const T* g = gradient.data<T>();
    const auto update = LoopFor<UpdateLoop<A, T>, T>();
    if (indices_ < 0) {
      ctx.ParallelFor(gradient.num_elements(), 0.5 * kVariables, [&](int64_t begin, int64_t end) {
        update(h, flags_, data, begin, g + begin, end - begin);
      });
      return;
    }
    const Tensor& indices = ctx.input(indices_);  // in order: an index may occur twice
    if (gradient.num_elements() == 0) return;
    const int64_t row = gradient.num_elements() / indices.dim(0);
    for (int64_t i = 0; i < indices.dim(0); ++i) {
      update(h, flags_, data, Index(indices, i) * row, g + i * row, row);
    }
  }

  Flags flags_;
  std::array<int, A::kScalars.size()> scalars_{};
  int gradient_ = -1, indices_ = -1;
};

template <typename A>
void RegisterOne(KernelRegistry& registry, std::string op) {
  registry.Register(KernelDef(std::move(op)).Types("T", DataTypesOf(typename TypesOfT<A>::type())),
                    MakeKernel<ApplyKernel<A>>);
}

// ApplyX on references and ResourceApplyX on handles.
template <typename A>
void RegisterDense(KernelRegistry& registry, const char* name) {
  RegisterOne<A>(registry, StrCat("Apply", name));
  RegisterOne<A>(registry, StrCat("ResourceApply", name));
}
template <typename A>
void RegisterSparse(KernelRegistry& registry, const char* name) {
  RegisterOne<A>(registry, StrCat("SparseApply", name));
  RegisterOne<A>(registry, StrCat("ResourceSparseApply", name));
}

}  // namespace

void RegisterTrainingKernels(KernelRegistry& registry) {
  RegisterDense<GradientDescent>(registry, "GradientDescent");
  RegisterDense<Momentum>(registry, "Momentum");
  RegisterDense<Adagrad>(registry, "Adagrad");
  RegisterDense<AdagradV2>(registry, "AdagradV2");
  RegisterDense<Adadelta>(registry, "Adadelta");
  RegisterDense<RmsProp>(registry, "RMSProp");
  RegisterDense<CenteredRmsProp>(registry, "CenteredRMSProp");
  RegisterDense<Adam>(registry, "Adam");
  RegisterDense<AdaMax>(registry, "AdaMax");
  RegisterDense<Ftrl>(registry, "Ftrl");
  RegisterDense<FtrlV2>(registry, "FtrlV2");
  RegisterOne<KerasMomentum>(registry, "ResourceApplyKerasMomentum");
  RegisterOne<AdamWithAmsgrad>(registry, "ResourceApplyAdamWithAmsgrad");
  RegisterDense<AdagradDA>(registry, "AdagradDA");
  RegisterDense<ProximalAdagrad>(registry, "ProximalAdagrad");
  RegisterDense<ProximalGradientDescent>(registry, "ProximalGradientDescent");
  RegisterSparse<AdagradDA>(registry, "AdagradDA");
  RegisterSparse<ProximalAdagrad>(registry, "ProximalAdagrad");
  RegisterSparse<ProximalGradientDescent>(registry, "ProximalGradientDescent");
  RegisterSparse<Momentum>(registry, "Momentum");
  RegisterSparse<Adagrad>(registry, "Adagrad");
  RegisterSparse<Ftrl>(registry, "Ftrl");
  RegisterSparse<Adadelta>(registry, "Adadelta");
  RegisterSparse<RmsProp>(registry, "RMSProp");
  RegisterSparse<CenteredRmsProp>(registry, "CenteredRMSProp");
  RegisterOne<KerasMomentum>(registry, "ResourceSparseApplyKerasMomentum");
  RegisterOne<AdagradV2>(registry, "ResourceSparseApplyAdagradV2");
}

}  // namespace millrace
