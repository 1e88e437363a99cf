// SPDX-License-Identifier: Apache-2.0
#include "kernels/control/control_flow.h"

#include <cstdint>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/kernel_errors.h"
#include "kernels/kernel_context.h"

namespace millrace {
namespace {

class CheapKernel : public Kernel {
 public:
  explicit CheapKernel(KernelConstruction& c) : Kernel(c) {}
  bool IsExpensive() const override { return false; }
};

class NoOpKernel final : public CheapKernel {
 public:
  using CheapKernel::CheapKernel;
  Status Compute(KernelContext&) override { return OkStatus(); }
};

void PassOn(KernelContext& ctx, int input, int output) {
  if (ctx.input_is_ref(input)) {
    ctx.ForwardRef(input, output);
  } else {
    ctx.SetOutput(output, ctx.input(input));
  }
}

// RefIdentity; Enter, Exit and NextIteration: what these do to frames is the executor's business.
class PassKernel final : public CheapKernel {
 public:
  using CheapKernel::CheapKernel;
  Status Compute(KernelContext& ctx) override {
    PassOn(ctx, 0, 0);
    return OkStatus();
  }
};

StatusOr<bool> Predicate(const Kernel& kernel, const Tensor& value) {
  if (value.dtype() == kBool && value.num_elements() == 1) return value.scalar<bool>();
  return errors::InvalidArgument("the predicate of a ", kernel.def().name(),
                                 " must be a bool scalar, but it is ", value.DebugString());
}

class LoopCondKernel final : public CheapKernel {
 public:
  using CheapKernel::CheapKernel;
  Status Compute(KernelContext& ctx) override {
    MR_RETURN_IF_ERROR(Predicate(*this, ctx.input(0)).status());
    ctx.SetOutput(0, ctx.input(0));
    return OkStatus();
  }
};

// Output 0 lives if the predicate is false, output 1 if it is true; the executor makes the
// one that was not set dead.
class SwitchKernel final : public CheapKernel {
 public:
  using CheapKernel::CheapKernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const bool taken, Predicate(*this, ctx.input(1)));
    PassOn(ctx, 0, taken ? 1 : 0);
    return OkStatus();
  }
};

class MergeKernel final : public CheapKernel {
 public:
  using CheapKernel::CheapKernel;
  Status Compute(KernelContext& ctx) override {
    for (int i = 0; i < ctx.num_inputs(); ++i) {
      if (!ctx.has_input(i)) continue;
      PassOn(ctx, i, 0);
      MR_ASSIGN_OR_RETURN(Tensor * index, ctx.AllocateOutput(1, Shape()));
      index->data<int32_t>()[0] = i;
      return OkStatus();
    }
    return NoLiveInput();
  }
};

class RefSelectKernel final : public CheapKernel {
 public:
  using CheapKernel::CheapKernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& index = ctx.input(0);
    if (index.dtype() != kInt32 || index.rank() != 0) {
      return errors::InvalidArgument("Index must be a scalar, got a tensor of rank ", index.rank());
    }
    const int32_t chosen = index.scalar<int32_t>();
    if (chosen < 0 || chosen >= ctx.num_inputs() - 1) {
      return errors::InvalidArgument("Index must be in the range [0, ", ctx.num_inputs() - 1,
                                     ") but got ", chosen);
    }
    PassOn(ctx, chosen + 1, 0);
    return OkStatus();
  }
};

class ArgKernel final : public CheapKernel {
 public:
  explicit ArgKernel(KernelConstruction& c) : CheapKernel(c), index_(c.attr<int64_t>("index")) {
    if (index_ < 0) c.SetError(errors::InvalidArgument("index must not be negative"));
  }
  Status Compute(KernelContext& ctx) override {
    const auto args = ctx.env().call_args;
    if (index_ >= static_cast<int64_t>(args.size())) {
      return errors::InvalidArgument("argument ", index_, " was not given: the call has ",
                                     args.size());
    }
    ctx.SetOutput(0, args[index_]);
    return OkStatus();
  }

 private:
  const int64_t index_;
};

class RetvalKernel final : public CheapKernel {
 public:
  explicit RetvalKernel(KernelConstruction& c) : CheapKernel(c), index_(c.attr<int64_t>("index")) {
    if (index_ < 0) c.SetError(errors::InvalidArgument("index must not be negative"));
  }
  Status Compute(KernelContext& ctx) override {
    const auto results = ctx.env().call_results;
    if (index_ >= static_cast<int64_t>(results.size())) {
      return errors::InvalidArgument("result ", index_, " has no place: the call wants ",
                                     results.size());
    }
    results[index_] = ctx.input(0);
    return OkStatus();
  }

 private:
  const int64_t index_;
};

}  // namespace

void RegisterControlFlowKernels(KernelRegistry& registry) {
  for (const char* op : {"NoOp", "ControlTrigger"}) {
    registry.Register(KernelDef(op), MakeKernel<NoOpKernel>);
  }
  for (const char* op : {"RefIdentity", "Enter", "RefEnter", "Exit", "RefExit", "NextIteration",
                         "RefNextIteration"}) {
    registry.Register(KernelDef(op), MakeKernel<PassKernel>);
  }
  for (const char* op : {"Switch", "RefSwitch"}) {
    registry.Register(KernelDef(op), MakeKernel<SwitchKernel>);
  }
  registry.Register(KernelDef("RefSelect"), MakeKernel<RefSelectKernel>);
  for (const char* op : {"Merge", "RefMerge"}) {
    registry.Register(KernelDef(op), MakeKernel<MergeKernel>);
  }
  registry.Register(KernelDef("LoopCond"), MakeKernel<LoopCondKernel>);
}

void RegisterCallKernels(KernelRegistry& registry) {
  registry.Register(KernelDef("_Arg"), MakeKernel<ArgKernel>);
  registry.Register(KernelDef("_Retval"), MakeKernel<RetvalKernel>);
}

}  // namespace millrace
