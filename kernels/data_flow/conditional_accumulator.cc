// SPDX-License-Identifier: Apache-2.0
// The ops on accumulators: dense and sparse, on references and on resource handles.
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/handle_kernel.h"
#include "kernels/data_flow/accumulator.h"
#include "kernels/kernel.h"
#include "kernels/kernel_context.h"
#include "kernels/kernel_registry.h"
#include "kernels/state/counted_update.h"

namespace millrace {
namespace {

class AccumulatorKernel : public HandleKernel<Accumulator> {
 public:
  explicit AccumulatorKernel(KernelConstruction& c)
      : HandleKernel<Accumulator>(c),
        sparse_(c.def().name() == "SparseConditionalAccumulator"),
        allocator_(c.device()->allocator()) {
    options_.name = resource_name();
    options_.dtype = c.attr<DataType>("dtype");
    options_.shape = c.attr<PartialShape>("shape");
    const std::string reduction = c.attrs().GetOr<std::string>("reduction_type", "MEAN");
    if (reduction != "MEAN" && reduction != "SUM") {
      c.SetError(errors::InvalidArgument("reduction_type must be MEAN or SUM, got ", reduction));
    }
    options_.mean = reduction == "MEAN";
    options_.ledger = UpdateLedger::Of(c.device()->resource_manager());
    options_.account = FindInLedger(options_.ledger.get(), LedgerKind::kAccumulator,
                                    c.attrs().GetOr<std::string>("container", ""), resource_name());
  }

 protected:
  StatusOr<RefPtr<Accumulator>> Make() override {
    return sparse_ ? NewSparseAccumulator(options_, allocator_)
                   : NewDenseAccumulator(options_, allocator_);
  }

  Status CheckSame(const Accumulator& existing) const override {
    const Accumulator::Options& o = existing.options();
    const char* differs = existing.sparse() != sparse_   ? "kind"
                          : o.dtype != options_.dtype    ? "dtype"
                          : !(o.shape == options_.shape) ? "shape"
                          : o.mean != options_.mean      ? "reduction_type"
                                                         : nullptr;
    if (differs == nullptr) return OkStatus();
    return errors::InvalidArgument("Shared conditional accumulator '", resource_name(),
                                   "' exists with another ", differs);
  }

 private:
  const bool sparse_;
  Allocator* const allocator_;
  Accumulator::Options options_;
};

Status WrongKind(const Accumulator& accumulator) {
  return errors::InvalidArgument("accumulator '", accumulator.options().name, "' is ",
                                 accumulator.sparse() ? "sparse" : "dense",
                                 ", the op is for the other kind");
}

class ApplyGradientKernel : public Kernel {
 public:
  explicit ApplyGradientKernel(KernelConstruction& c)
      : Kernel(c),
        sparse_(c.def().name() == "SparseAccumulatorApplyGradient"),
        has_known_shape_(c.attrs().GetOr<bool>("has_known_shape", false)),
        worker_(c.attrs().GetOr<std::string>("_sync_worker", "")) {}

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(RefPtr<Accumulator> accumulator, LookupHandle<Accumulator>(ctx, 0));
    if (accumulator->sparse() != sparse_) return WrongKind(*accumulator);
    const Tensor& step = ctx.input(1);
    if (step.num_elements() != 1) {
      return errors::InvalidArgument("Argument local_step must be scalar, but had bad shape ",
                                     step.shape().DebugString());
    }
    // References are read under their lock; values stay in their slots.
    Tensor reads[3];
    const Tensor* gradient[3];
    const int count = sparse_ ? 3 : 1;
    for (int i = 0; i < count; ++i) {
      if (ctx.input_is_ref(i + 2)) reads[i] = ctx.locked_input(i + 2);
      gradient[i] = ctx.input_is_ref(i + 2) ? &reads[i] : &ctx.input(i + 2);
    }
    const Tensor unknown(kInt64, Shape({0}));
    if (sparse_ && !has_known_shape_) gradient[2] = &unknown;
    return accumulator->Apply(step.scalar<int64_t>(), std::span(gradient, count), OriginOf(ctx),
                              worker_);
  }

 private:
  const bool sparse_, has_known_shape_;
  // Who brings one gradient of each step, as jobs say that see to it (training/sync_tokens.h). ""
  // for all others: TensorFlow's programs may bring as many as they like.
  const std::string worker_;
};

class TakeGradientKernel : public Kernel {
 public:
  explicit TakeGradientKernel(KernelConstruction& c)
      : Kernel(c), sparse_(c.def().name() == "SparseAccumulatorTakeGradient") {}

  bool IsAsync() const override { return true; }
  Status Compute(KernelContext&) override {
    return errors::Internal(def().name(), " is asynchronous");
  }

  void ComputeAsync(KernelContext& ctx, DoneCallback done) override {
    StatusOr<RefPtr<Accumulator>> found = LookupHandle<Accumulator>(ctx, 0);
    if (!found.ok()) return done(found.status());
    RefPtr<Accumulator> accumulator = *std::move(found);
    if (accumulator->sparse() != sparse_) return done(WrongKind(*accumulator));
    const Tensor& required = ctx.input(1);
    if (required.num_elements() != 1) {
      return done(
          errors::InvalidArgument("Argument num_required must be scalar, but had bad shape ",
                                  required.shape().DebugString()));
    }
    Accumulator* raw = accumulator.get();
    raw->Take(required.scalar<int32_t>(), Waiter(ctx),
              [&ctx, done, accumulator = std::move(accumulator)](Status status,
                                                                 std::vector<Tensor> outputs) {
                for (std::size_t i = 0; status.ok() && i < outputs.size(); ++i) {
                  ctx.SetOutput(static_cast<int>(i), std::move(outputs[i]));
                }
                done(std::move(status));
              });
  }

 private:
  const bool sparse_;
};

// On behalf of a worker that this node names, it lets that one bring another gradient besides: an
// op that servers without this rule know, and that changes nothing there.
class NumAccumulatedKernel : public Kernel {
 public:
  explicit NumAccumulatedKernel(KernelConstruction& c)
      : Kernel(c), worker_again_(c.attrs().GetOr<std::string>("_sync_worker_again", "")) {}
  bool IsExpensive() const override { return false; }
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(RefPtr<Accumulator> accumulator, LookupHandle<Accumulator>(ctx, 0));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, Shape()));
    out->data<int32_t>()[0] = static_cast<int32_t>(accumulator->num_accumulated());
    if (!worker_again_.empty()) accumulator->AllowAgain(worker_again_);
    return OkStatus();
  }

 private:
  const std::string worker_again_;
};

class SetGlobalStepKernel : public Kernel {
 public:
  explicit SetGlobalStepKernel(KernelConstruction& c) : Kernel(c) {}
  bool IsExpensive() const override { return false; }
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(RefPtr<Accumulator> accumulator, LookupHandle<Accumulator>(ctx, 0));
    const Tensor& step = ctx.input(1);
    if (step.num_elements() != 1) {
      return errors::InvalidArgument("Argument global_step must be scalar, but had bad shape ",
                                     step.shape().DebugString());
    }
    accumulator->SetGlobalStep(step.scalar<int64_t>());
    return OkStatus();
  }
};

}  // namespace

void RegisterAccumulatorKernels(KernelRegistry& registry) {
  const auto add = [&](const char* op, KernelFactory factory) {
    registry.Register(KernelDef(op), factory);
  };
  for (const char* op : {"ConditionalAccumulator", "ResourceConditionalAccumulator",
                         "SparseConditionalAccumulator"}) {
    add(op, MakeKernel<AccumulatorKernel>);
  }
  for (const char* op : {"AccumulatorApplyGradient", "ResourceAccumulatorApplyGradient",
                         "SparseAccumulatorApplyGradient"}) {
    add(op, MakeKernel<ApplyGradientKernel>);
  }
  for (const char* op : {"AccumulatorTakeGradient", "ResourceAccumulatorTakeGradient",
                         "SparseAccumulatorTakeGradient"}) {
    add(op, MakeKernel<TakeGradientKernel>);
  }
  for (const char* op : {"AccumulatorNumAccumulated", "ResourceAccumulatorNumAccumulated"}) {
    add(op, MakeKernel<NumAccumulatedKernel>);
  }
  for (const char* op : {"AccumulatorSetGlobalStep", "ResourceAccumulatorSetGlobalStep"}) {
    add(op, MakeKernel<SetGlobalStepKernel>);
  }
}

}  // namespace millrace
