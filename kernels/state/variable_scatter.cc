// SPDX-License-Identifier: Apache-2.0
// Updates of some rows or elements of a variable, in place: Scatter*, ScatterNd* and their
// forms on resource variables.
#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/slice_indices.h"
#include "kernels/kernel.h"
#include "kernels/kernel_context.h"
#include "kernels/kernel_registry.h"
#include "kernels/state/counted_update.h"
#include "kernels/state/variable.h"
#include "kernels/state/variable_plan.h"

namespace millrace {
namespace {

using Updatable = JoinTypes<NumberTypes, TypeList<bool>>;

enum class Update { kSet, kAdd, kSub, kMul, kDiv, kMin, kMax };

// "ScatterAdd", "ResourceScatterNdSub": the op's name ends in what it does.
Update UpdateOf(std::string_view op) {
  struct Ending {
    std::string_view text;
    Update update;
  };
  for (const Ending& e :
       {Ending{"Add", Update::kAdd}, Ending{"Sub", Update::kSub}, Ending{"Mul", Update::kMul},
        Ending{"Div", Update::kDiv}, Ending{"Min", Update::kMin}, Ending{"Max", Update::kMax}}) {
    if (op.ends_with(e.text)) return e.update;
  }
  return Update::kSet;
}

// What does not fit wraps, as everywhere; it is not left to the compiler.
template <typename C, typename F>
C Wrapping(C a, C b, F f) {
  if constexpr (std::is_integral_v<C>) {
    using U = std::make_unsigned_t<std::common_type_t<C, int>>;
    return static_cast<C>(f(static_cast<U>(a), static_cast<U>(b)));
  } else {
    return f(a, b);
  }
}

// Towards zero. The lowest integer by -1, which would trap, wraps. `b` is no integer 0.
template <typename C>
C Quotient(C a, C b) {
  if constexpr (std::is_integral_v<C> && std::is_signed_v<C>) {
    if (b == C(-1)) return Wrapping(C(0), a, std::minus<>());
  }
  return static_cast<C>(a / b);
}

// to[i] = update(to[i], by[i * stride]); stride is 0 for a scalar. False on division of an
// integer by zero.
template <typename T>
bool Apply(Update update, T* to, const T* by, int64_t n, int64_t stride) {
  using C = ComputeType<T>;
  if constexpr (std::is_same_v<T, bool>) {  // added by or; nothing else is registered
    for (int64_t i = 0; i < n; ++i) {
      to[i] = by[i * stride] || (update == Update::kAdd && to[i]);
    }
    return true;
  }
  for (int64_t i = 0; i < n; ++i) {
    const C a = static_cast<C>(to[i]), b = static_cast<C>(by[i * stride]);
    switch (update) {
      case Update::kSet:
        to[i] = by[i * stride];
        break;
      case Update::kAdd:
        to[i] = static_cast<T>(Wrapping(a, b, std::plus<>()));
        break;
      case Update::kSub:
        to[i] = static_cast<T>(Wrapping(a, b, std::minus<>()));
        break;
      case Update::kMul:
        to[i] = static_cast<T>(Wrapping(a, b, std::multiplies<>()));
        break;
      case Update::kDiv:
        if constexpr (!kIsFloating<T> && !kIsComplex<T>) {
          if (b == C(0)) return false;
        }
        to[i] = static_cast<T>(Quotient(a, b));
        break;
      case Update::kMin:
      case Update::kMax:
        if constexpr (!kIsComplex<T>) {
          if (update == Update::kMin ? b < a : a < b) to[i] = by[i * stride];
        }
        break;
    }
  }
  return true;
}

class ScatterBase : public Kernel {
 public:
  explicit ScatterBase(KernelConstruction& c) : Kernel(c), update_(UpdateOf(c.def().name())) {
    // Sparse gradients are added; the others set rows.
    if (update_ == Update::kAdd || update_ == Update::kSub) {
      ledger_ = UpdateLedger::Of(c.device()->resource_manager());
    }
  }

  Status Compute(KernelContext& ctx) override {
    CountedUpdate update(ledger_.get(), ctx);
    if (ledger_) MR_RETURN_IF_ERROR(update.Begin());
    const Tensor indices = ctx.locked_input(1);
    const Tensor updates = ctx.locked_input(2);
    {
      LockedVariables variable;
      MR_RETURN_IF_ERROR(variable.Lock(ctx, 1, updates.dtype()));
      MR_RETURN_IF_ERROR(Check(*variable.value(0), indices, updates));
      MR_RETURN_IF_ERROR(variable.MakeExclusive(ctx));
      MR_RETURN_IF_ERROR(Run(variable.value(0), indices, updates));
      update.Applied();
    }
    ForwardFirstRef(ctx);
    return OkStatus();
  }

 protected:
  // Everything that can be wrong, indices included: a failed update changes nothing.
  virtual Status Check(const Tensor& value, const Tensor& indices, const Tensor& updates) const = 0;
  virtual Status Run(Tensor* value, const Tensor& indices, const Tensor& updates) const = 0;

  // Applies `n` updates to the elements at to.
  Status ApplyTo(Tensor* value, int64_t to, const Tensor& updates, int64_t from, int64_t n,
                 int64_t stride) const {
    Status status;
    const bool known = DispatchType(Updatable(), value->dtype(), [&]<typename T>() {
      if (!Apply(update_, value->data<T>() + to, updates.data<T>() + from, n, stride)) {
        status = errors::InvalidArgument("Integer division by zero");
      }
    });
    if (known) return status;
    if (update_ != Update::kSet) {
      return errors::Unimplemented(def().name(), " of ", DataTypeName(value->dtype()));
    }
    const auto set = [&]<typename T>() {
      T* out = static_cast<T*>(value->raw_data()) + to;
      const T* in = static_cast<const T*>(updates.raw_data()) + from;
      for (int64_t i = 0; i < n; ++i) out[i] = in[i * stride];
    };
    if (value->dtype() == kVariant) {
      set.template operator()<RefPtr<RefCounted>>();
    } else if (!DispatchMovable(value->dtype(), set)) {
      return errors::Unimplemented(def().name(), " of ", DataTypeName(value->dtype()));
    }
    return OkStatus();
  }

 private:
  const Update update_;
  RefPtr<UpdateLedger> ledger_;  // null: not of gradients
};

// One index per row of the first axis.
class ScatterKernel : public ScatterBase {
 public:
  using ScatterBase::ScatterBase;

 protected:
  Status Check(const Tensor& value, const Tensor& indices, const Tensor& updates) const override {
    MR_RETURN_IF_ERROR(CheckRowScatter(value.shape(), indices.shape(), updates.shape()));
    for (int64_t i = 0; i < indices.num_elements(); ++i) {
      const int64_t at = IndexAt(indices, i);
      if (at < 0 || at >= value.dim(0)) {
        return BadIndex(indices.shape(), i, at, value.dim(0));
      }
    }
    return OkStatus();
  }

  Status Run(Tensor* value, const Tensor& indices, const Tensor& updates) const override {
    if (value->num_elements() == 0) return OkStatus();
    const int64_t row = value->num_elements() / value->dim(0);
    const int64_t stride = updates.rank() == 0 ? 0 : 1;
    for (int64_t i = 0; i < indices.num_elements(); ++i) {
      MR_RETURN_IF_ERROR(
          ApplyTo(value, IndexAt(indices, i) * row, updates, i * row * stride, row, stride));
    }
    return OkStatus();
  }
};

// The last axis of the indices is a position in the leading axes of the variable.
class ScatterNdKernel : public ScatterBase {
 public:
  using ScatterBase::ScatterBase;

 protected:
  Status Check(const Tensor& value, const Tensor& indices, const Tensor& updates) const override {
    MR_ASSIGN_OR_RETURN(const int depth,
                        VariableSliceDepth(value.shape(), indices.shape(), updates.shape()));
    for (int64_t i = 0; i < indices.num_elements(); ++i) {
      const int64_t at = IndexAt(indices, i), limit = value.dim(static_cast<int>(i % depth));
      if (at < 0 || at >= limit) {
        return BadSlice(indices, i / depth, "shape", value.shape());
      }
    }
    return OkStatus();
  }

  Status Run(Tensor* value, const Tensor& indices, const Tensor& updates) const override {
    if (updates.num_elements() == 0) return OkStatus();
    const int depth = static_cast<int>(indices.dim(indices.rank() - 1));
    int64_t row = 1;
    for (int i = depth; i < value->rank(); ++i) row *= value->dim(i);
    const int64_t count = updates.num_elements() / row;
    for (int64_t i = 0; i < count; ++i) {
      int64_t at = 0;
      for (int d = 0; d < depth; ++d) at = at * value->dim(d) + IndexAt(indices, i * depth + d);
      MR_RETURN_IF_ERROR(ApplyTo(value, at * row, updates, i * row, row, 1));
    }
    return OkStatus();
  }
};

}  // namespace

void RegisterVariableScatterKernels(KernelRegistry& registry) {
  for (const char* prefix : {"", "Resource"}) {
    // The resource forms of Scatter* call the type dtype, those of ScatterNd* T.
    const char* type = *prefix == '\0' ? "T" : "dtype";
    registry.Register(
        KernelDef(StrCat(prefix, "ScatterUpdate")).Types("Tindices", {kInt32, kInt64}),
        MakeKernel<ScatterKernel>);
    for (const char* update : {"Add", "Sub", "Mul", "Div"}) {
      registry.Register(KernelDef(StrCat(prefix, "Scatter", update))
                            .Types(type, DataTypesOf(NumberTypes()))
                            .Types("Tindices", {kInt32, kInt64}),
                        MakeKernel<ScatterKernel>);
    }
    for (const char* update : {"Min", "Max"}) {
      registry.Register(KernelDef(StrCat(prefix, "Scatter", update))
                            .Types(type, DataTypesOf(RealTypes()))
                            .Types("Tindices", {kInt32, kInt64}),
                        MakeKernel<ScatterKernel>);
    }
    registry.Register(
        KernelDef(StrCat(prefix, "ScatterNdUpdate")).Types("Tindices", {kInt32, kInt64}),
        MakeKernel<ScatterNdKernel>);
    registry.Register(KernelDef(StrCat(prefix, "ScatterNdSub"))
                          .Types("T", DataTypesOf(NumberTypes()))
                          .Types("Tindices", {kInt32, kInt64}),
                      MakeKernel<ScatterNdKernel>);
    registry.Register(KernelDef(StrCat(prefix, "ScatterNdAdd"))
                          .Types("T", DataTypesOf(Updatable()))
                          .Types("Tindices", {kInt32, kInt64}),
                      MakeKernel<ScatterNdKernel>);
    for (const char* update : {"Min", "Max"}) {
      registry.Register(KernelDef(StrCat(prefix, "ScatterNd", update))
                            .Types("T", DataTypesOf(RealTypes()))
                            .Types("Tindices", {kInt32, kInt64}),
                        MakeKernel<ScatterNdKernel>);
    }
  }
}

}  // namespace millrace
