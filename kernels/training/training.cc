// SPDX-License-Identifier: Apache-2.0
// The updates of optimizers: each op is one pass over a variable and its slots, under their
// locks, so that an update is atomic whatever use_locking says. What an algorithm does
// to one element is in update_rules.h; inputs are found by the names in the op's definition, and
// references or handles come first.
#include <algorithm>
#include <array>
#include <string>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/elementwise.h"
#include "kernels/kernel.h"
#include "kernels/kernel_context.h"
#include "kernels/kernel_registry.h"
#include "kernels/state/counted_update.h"
#include "kernels/state/variable.h"
#include "kernels/training/update_call.h"
#include "kernels/training/update_rules.h"

namespace millrace {
namespace {

using rules::UpdateFlags;

constexpr int kMaxScalars = 6;

// The element types an algorithm takes: the floats, if nothing else is said.
template <typename Rule>
struct TypesOfT {
  using type = FloatTypes;
};
struct FloatAndComplexTypes {
  using type = JoinTypes<FloatTypes, ComplexTypes>;
};
template <>
struct TypesOfT<rules::GradientDescent> : FloatAndComplexTypes {};
template <>
struct TypesOfT<rules::Momentum> : FloatAndComplexTypes {};
template <>
struct TypesOfT<rules::Adagrad> : FloatAndComplexTypes {};
template <>
struct TypesOfT<rules::RmsProp> : FloatAndComplexTypes {};
template <>
struct TypesOfT<rules::Adam> : FloatAndComplexTypes {};
template <>
struct TypesOfT<rules::AdagradDA> {
  using type = TypeList<float, double>;
};

// --- Kernels ---------------------------------------------------------------------------------

// Updates n elements of the variable and its slots, which lie at data[0], data[1] and so on.
template <typename A, typename T>
struct UpdateLoop {
  using C = ComputeType<T>;

  static MR_ALWAYS_INLINE void Run(const std::array<C, kMaxScalars>& hyper,
                                   const UpdateFlags& given,
                                   const std::array<T*, 1 + A::kSlots>& data, int64_t offset,
                                   const T* g, int64_t n) {
    const auto h = hyper;
    const UpdateFlags flags = given;
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
  explicit ApplyKernel(KernelConstruction& c)
      : Kernel(c),
        ledger_(UpdateLedger::Of(c.device()->resource_manager())),
        flags_(UpdateFlagsOf(c)) {
    for (int i = 0; i < kScalars; ++i) {
      scalars_[i] = FindInput(c, A::kScalars[i]);
      if (scalars_[i] < 0) {
        c.SetError(errors::Internal(c.def().name(), " has no input ", A::kScalars[i]));
      }
    }
    gradient_ = FindGradient(c);
    indices_ = FindInput(c, "indices");
  }

  Status Compute(KernelContext& ctx) override {
    CountedUpdate update(ledger_.get(), ctx);
    MR_RETURN_IF_ERROR(update.Begin());
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
      for (int i = 0; i < kScalars; ++i) {
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
      update.Applied();
    }
    ForwardFirstRef(ctx);
    return OkStatus();
  }

 private:
  static constexpr int kVariables = 1 + A::kSlots, kScalars = rules::kNumScalars<A>;

  static Status CheckDense(const Tensor& var, const Tensor& gradient) {
    if (var.shape() == gradient.shape()) return OkStatus();
    return errors::InvalidArgument("var and grad do not have the same shape",
                                   var.shape().DebugString(), " ", gradient.shape().DebugString());
  }

  Status CheckSparse(KernelContext& ctx, const Tensor& var, const Tensor& gradient) const {
    const Tensor& indices = ctx.input(indices_);
    MR_RETURN_IF_ERROR(CheckRowShapes(var, gradient, indices));
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
    for (int i = 0; i < kScalars; ++i) {
      const Tensor& scalar = ctx.input(scalars_[i]);  // of the element type, or a global step
      h[i] = scalar.dtype() == kInt64 && DataTypeOf<T>() != kInt64
                 ? static_cast<C>(scalar.scalar<int64_t>())
                 : static_cast<C>(scalar.template scalar<T>());
    }
    A::Prepare(h.data());
    std::array<T*, kVariables> data;
    for (int i = 0; i < kVariables; ++i) data[i] = variables.value(i)->template data<T>();
    const T* g = gradient.data<T>();
    auto update = LoopFor<UpdateLoop<A, T>, T>();
    if constexpr (requires { A::TakesRoot(h.data()); }) {
      if (A::TakesRoot(h.data())) update = LoopFor<UpdateLoop<typename A::WithRoot, T>, T>();
    }
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

  const RefPtr<UpdateLedger> ledger_;
  UpdateFlags flags_;
  std::array<int, kScalars> scalars_{};
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
  RegisterDense<rules::GradientDescent>(registry, "GradientDescent");
  RegisterDense<rules::Momentum>(registry, "Momentum");
  RegisterDense<rules::Adagrad>(registry, "Adagrad");
  RegisterDense<rules::AdagradV2>(registry, "AdagradV2");
  RegisterDense<rules::Adadelta>(registry, "Adadelta");
  RegisterDense<rules::RmsProp>(registry, "RMSProp");
  RegisterDense<rules::CenteredRmsProp>(registry, "CenteredRMSProp");
  RegisterDense<rules::Adam>(registry, "Adam");
  RegisterDense<rules::AdaMax>(registry, "AdaMax");
  RegisterDense<rules::Ftrl>(registry, "Ftrl");
  RegisterDense<rules::FtrlV2>(registry, "FtrlV2");
  RegisterOne<rules::KerasMomentum>(registry, "ResourceApplyKerasMomentum");
  RegisterOne<rules::AdamWithAmsgrad>(registry, "ResourceApplyAdamWithAmsgrad");
  RegisterDense<rules::AdagradDA>(registry, "AdagradDA");
  RegisterDense<rules::ProximalAdagrad>(registry, "ProximalAdagrad");
  RegisterDense<rules::ProximalGradientDescent>(registry, "ProximalGradientDescent");
  RegisterSparse<rules::AdagradDA>(registry, "AdagradDA");
  RegisterSparse<rules::ProximalAdagrad>(registry, "ProximalAdagrad");
  RegisterSparse<rules::ProximalGradientDescent>(registry, "ProximalGradientDescent");
  RegisterSparse<rules::Momentum>(registry, "Momentum");
  RegisterSparse<rules::Adagrad>(registry, "Adagrad");
  RegisterSparse<rules::Ftrl>(registry, "Ftrl");
  RegisterSparse<rules::FtrlV2>(registry, "FtrlV2");
  RegisterSparse<rules::Adadelta>(registry, "Adadelta");
  RegisterSparse<rules::RmsProp>(registry, "RMSProp");
  RegisterSparse<rules::CenteredRmsProp>(registry, "CenteredRMSProp");
  RegisterOne<rules::KerasMomentum>(registry, "ResourceSparseApplyKerasMomentum");
  RegisterOne<rules::AdagradV2>(registry, "ResourceSparseApplyAdagradV2");
}

}  // namespace millrace
