// SPDX-License-Identifier: Apache-2.0
// Variables as references: Variable and VariableV2, and the assignments to them.
#include <atomic>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/kernel_errors.h"
#include "kernels/common/strided_copy.h"
#include "kernels/kernel.h"
#include "kernels/kernel_context.h"
#include "kernels/kernel_registry.h"
#include "kernels/state/counted_update.h"
#include "kernels/state/variable.h"
#include "kernels/state/variable_plan.h"

namespace millrace {
namespace {

class VariableKernel : public Kernel {
 public:
  explicit VariableKernel(KernelConstruction& c)
      : Kernel(c),
        dtype_(c.attr<DataType>("dtype")),
        container_(c.attrs().GetOr<std::string>("container", "")),
        resource_(c.attrs().GetOr<std::string>("shared_name", "")),
        ledger_(UpdateLedger::Of(c.device()->resource_manager())) {
    if (resource_.empty()) resource_ = name();
    // An unknown shape is a scalar's until something is assigned without validation.
    shape_ = c.attr<PartialShape>("shape").AsShape().value_or(Shape());
  }

  bool IsExpensive() const override { return false; }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(RefPtr<RefVariable> found,
                        ctx.resources()->LookupOrCreate<RefVariable>(
                            container_, resource_, [this]() -> StatusOr<RefPtr<RefVariable>> {
                              auto made =
                                  MakeRef<RefVariable>(ledger_, LedgerName(container_, resource_));
                              MutexLock lock(&made->mu);
                              made->value = Tensor(dtype_, shape_, nullptr, nullptr);
                              return made;
                            }));
    RefVariable* variable = found.get();
    {
      MutexLock lock(&mu_);
      if (held_.empty() || !(held_.back() == found)) held_.push_back(std::move(found));
    }
    ctx.SetOutputRef(0, &variable->mu, &variable->value);
    return OkStatus();
  }

 private:
  const DataType dtype_;
  const std::string container_;
  std::string resource_;
  const RefPtr<UpdateLedger> ledger_;
  Shape shape_;
  Mutex mu_;
  // References on edges do not count: steps may still use a variable that was taken out of
  // its container, so all that were ever handed out live as long as the kernel.
  std::vector<RefPtr<RefVariable>> held_ ABSL_GUARDED_BY(mu_);
};

// The name of a temporary variable: one for each iteration of each frame.
std::string TemporaryName(const KernelContext& ctx, const std::string& name) {
  return StrCat(name, "/frame:", ctx.frame_id(), "/iter:", ctx.iteration());
}

// A variable of one step, or of one iteration, until DestroyTemporaryVariable.
class TemporaryVariableKernel : public Kernel {
 public:
  explicit TemporaryVariableKernel(KernelConstruction& c)
      : Kernel(c),
        dtype_(c.attr<DataType>("dtype")),
        variable_(c.attrs().GetOr<std::string>("var_name", "")) {
    if (variable_.empty()) variable_ = name();
    const std::optional<Shape> shape = c.attr<PartialShape>("shape").AsShape();
    if (shape.has_value()) {
      shape_ = *shape;
    } else {
      c.SetError(errors::InvalidArgument("the shape of a temporary variable must be known"));
    }
  }

  Status Compute(KernelContext& ctx) override {
    auto variable = MakeRef<RefVariable>();
    {
      MutexLock lock(&variable->mu);
      MR_ASSIGN_OR_RETURN(variable->value, ctx.AllocateTemp(dtype_, shape_));
      if (!FillZero(ctx, dtype_, variable->value.raw_data(), shape_.num_elements())) {
        return errors::Unimplemented("a temporary variable of ", DataTypeName(dtype_));
      }
    }
    MR_RETURN_IF_ERROR(ctx.resources()->Create<RefVariable>(
        ctx.env().step_container, TemporaryName(ctx, variable_), variable));
    ctx.SetOutputRef(0, &variable->mu, &variable->value);  // the step's container keeps it
    return OkStatus();
  }

 private:
  const DataType dtype_;
  std::string variable_;
  Shape shape_;
};

// The last value. What else refers to the variable finds it without one: the variable itself stays
// until the step ends, for references on edges do not count.
class DestroyTemporaryVariableKernel : public Kernel {
 public:
  explicit DestroyTemporaryVariableKernel(KernelConstruction& c)
      : Kernel(c), variable_(c.attr<std::string>("var_name")), type_(c.attr<DataType>("T")) {}

  Status Compute(KernelContext& ctx) override {
    static std::atomic<uint64_t> next{0};
    const std::string& container = ctx.env().step_container;
    const std::string name = TemporaryName(ctx, variable_);
    MR_ASSIGN_OR_RETURN(RefPtr<RefVariable> found,
                        ctx.resources()->Lookup<RefVariable>(container, name));
    Tensor value;
    {
      MutexLock lock(&found->mu);
      std::swap(value, found->value);
    }
    MR_RETURN_IF_ERROR(ctx.resources()->Create<RefVariable>(
        container, StrCat("destroyed/", next.fetch_add(1, std::memory_order_relaxed)), found));
    MR_RETURN_IF_ERROR(ctx.resources()->Delete<RefVariable>(container, name));
    if (value.dtype() != type_) {
      return errors::InvalidArgument("the temporary variable ", variable_, " has no value of type ",
                                     DataTypeName(type_));
    }
    ctx.SetOutput(0, std::move(value));
    return OkStatus();
  }

 private:
  const std::string variable_;
  const DataType type_;
};

Status NeedReference(const KernelContext& ctx) {
  if (ctx.input_is_ref(0)) return OkStatus();
  return NeedsReference(ctx.node_name());
}

class AssignKernel : public Kernel {
 public:
  explicit AssignKernel(KernelConstruction& c)
      : Kernel(c), validate_shape_(c.attr<bool>("validate_shape")) {}

  Status Compute(KernelContext& ctx) override {
    MR_RETURN_IF_ERROR(NeedReference(ctx));
    // A share would look like a second owner: only references need one.
    Tensor read;
    if (ctx.input_is_ref(1)) read = ctx.locked_input(1);
    const Tensor& source = ctx.input_is_ref(1) ? read : ctx.input(1);
    if (!source.IsInitialized()) {
      return errors::FailedPrecondition("Attempting to assign an uninitialized value to ",
                                        ctx.node_name());
    }
    {
      MutexLock lock(ctx.input_ref_mutex(0));
      Tensor* value = ctx.input_ref(0);
      if (validate_shape_ && !(value->shape() == source.shape())) {
        return errors::InvalidArgument(
            "Assign requires shapes of both tensors to match. lhs "
            "shape= ",
            value->shape().DebugString(), " rhs shape= ", source.shape().DebugString());
      }
      MR_RETURN_IF_ERROR(AssignValue(ctx.allocator(), source, value));
    }
    ctx.ForwardRef(0, 0);
    return OkStatus();
  }

 private:
  const bool validate_shape_;
};

// AssignAdd and AssignSub.
class AssignUpdateKernel : public Kernel {
 public:
  explicit AssignUpdateKernel(KernelConstruction& c)
      : Kernel(c), add_(c.def().name() == "AssignAdd") {}

  Status Compute(KernelContext& ctx) override {
    MR_RETURN_IF_ERROR(NeedReference(ctx));
    const Tensor operand = ctx.locked_input(1);
    {
      LockedVariables variable;
      MR_RETURN_IF_ERROR(variable.Lock(ctx, 1, operand.dtype()));
      Tensor* value = variable.value(0);
      MR_RETURN_IF_ERROR(CheckReferenceUpdate(def().name(), value->shape(), operand.shape()));
      MR_RETURN_IF_ERROR(variable.MakeExclusive(ctx));
      AddTo(ctx, operand, /*subtract=*/!add_, value);
    }
    ctx.ForwardRef(0, 0);
    return OkStatus();
  }

 private:
  const bool add_;
};

class IsVariableInitializedKernel : public Kernel {
 public:
  explicit IsVariableInitializedKernel(KernelConstruction& c) : Kernel(c) {}
  bool IsExpensive() const override { return false; }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, Shape()));
    if (ctx.input_is_ref(0)) {
      MutexLock lock(ctx.input_ref_mutex(0));
      out->data<bool>()[0] = ctx.input_ref(0)->IsInitialized();
    } else {
      out->data<bool>()[0] = ctx.input(0).IsInitialized();
    }
    return OkStatus();
  }
};

}  // namespace

void RegisterStateKernels(KernelRegistry& registry) {
  registry.Register(KernelDef("Variable"), MakeKernel<VariableKernel>);
  registry.Register(KernelDef("VariableV2"), MakeKernel<VariableKernel>);
  registry.Register(KernelDef("TemporaryVariable"), MakeKernel<TemporaryVariableKernel>);
  registry.Register(KernelDef("DestroyTemporaryVariable"),
                    MakeKernel<DestroyTemporaryVariableKernel>);
  registry.Register(KernelDef("Assign"), MakeKernel<AssignKernel>);
  for (const char* op : {"AssignAdd", "AssignSub"}) {
    registry.Register(KernelDef(op).Types("T", DataTypesOf(NumberTypes())),
                      MakeKernel<AssignUpdateKernel>);
  }
  registry.Register(KernelDef("IsVariableInitialized"), MakeKernel<IsVariableInitializedKernel>);
}

}  // namespace millrace
