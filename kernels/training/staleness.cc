// SPDX-License-Identifier: Apache-2.0
// They carry no values: a step's nodes wait for them.
#include "kernels/training/staleness.h"

#include <cstdint>
#include <string>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "kernels/kernel.h"
#include "kernels/kernel_context.h"
#include "kernels/training/staleness_gate.h"

namespace millrace {
namespace {

// Lies in the step's container: the step has left when it is over, however it ends.
class StepWithin : public Resource {
 public:
  StepWithin(RefPtr<StalenessGate> gate, int64_t step) : gate_(std::move(gate)), step_(step) {}
  std::string DebugString() const override { return "a step within a staleness bound"; }
  void OnRemoved() override { gate_->Leave(step_); }

 private:
  const RefPtr<StalenessGate> gate_;
  const int64_t step_;
};

class StalenessKernel : public Kernel {
 public:
  explicit StalenessKernel(KernelConstruction& c)
      : Kernel(c),
        ledger_(UpdateLedger::Of(c.device()->resource_manager())),
        bound_(c.attr<int64_t>("bound")),
        name_(c.attr<std::string>("shared_name")),
        worker_(c.attr<std::string>("worker")),
        enters_(c.def().name() == "_StalenessEnter"),
        commits_(c.def().name() == "_StalenessCommit") {}

  bool IsAsync() const override { return true; }
  Status Compute(KernelContext&) override {
    return errors::Internal(def().name(), " is asynchronous");
  }

  void ComputeAsync(KernelContext& ctx, DoneCallback done) override {
    const StatusOr<RefPtr<StalenessGate>> found = Gate(ctx);
    if (!found.ok()) return done(found.status());
    StalenessGate& gate = **found;
    const int64_t step = ctx.env().step_id;
    if (enters_) {
      const Status added = ctx.resources()->Create<StepWithin>(ctx.env().step_container,
                                                               StrCat("staleness_bound/", name_),
                                                               MakeRef<StepWithin>(*found, step));
      if (!added.ok()) return done(added);
      return gate.Enter(step, worker_, Waiter(ctx), done);
    }
    if (commits_) return gate.Commit(step, Waiter(ctx), done);
    gate.Finish(step);
    done(OkStatus());
  }

 private:
  StatusOr<RefPtr<StalenessGate>> Gate(KernelContext& ctx) const {
    MR_ASSIGN_OR_RETURN(RefPtr<StalenessGate> gate,
                        ctx.resources()->LookupOrCreate<StalenessGate>(
                            kDefaultContainer, name_, [this]() -> StatusOr<RefPtr<StalenessGate>> {
                              return MakeRef<StalenessGate>(name_, bound_, ledger_);
                            }));
    if (gate->bound() == bound_) return gate;
    return errors::InvalidArgument("the staleness bound '", name_, "' is ", gate->bound(),
                                   " already, by another worker, and cannot be ", bound_);
  }

  const RefPtr<UpdateLedger> ledger_;
  const int64_t bound_;
  const std::string name_, worker_;
  const bool enters_, commits_;
};

}  // namespace

void RegisterStalenessKernels(KernelRegistry& registry) {
  for (const char* op : {"_StalenessEnter", "_StalenessCommit", "_StalenessFinish"}) {
    registry.Register(KernelDef(op), MakeKernel<StalenessKernel>);
  }
}

}  // namespace millrace
