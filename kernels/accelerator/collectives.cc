// SPDX-License-Identifier: Apache-2.0
#include "kernels/accelerator/collectives.h"

#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/log.h"
#include "base/mutex.h"
#include "device/copy.h"
#include "kernels/collective/collective_kernel.h"
#include "kernels/kernel_context.h"
#include "rendezvous/device_rendezvous.h"

namespace millrace {
namespace {

using DoneFn = std::function<void(const Status&)>;

// One execution. It ends once: when its result is there, with an error, or with the step, whatever
// the device is doing then; the context is gone afterwards.
class Execution final : public RefCounted {
 public:
  Execution(KernelContext* ctx, DoneFn done, CollectiveExecutor& executor,
            std::shared_ptr<const ResolvedCollective> resolved, std::string key,
            const std::string& node)
      : machine_(AcceleratorOf(ctx->device())),
        allocator_(ctx->allocator()),
        work_(RefPtr<DeviceWork>::Share(WorkOf(ctx->rendezvous()))),
        executor_(RefPtr<CollectiveExecutor>::Share(&executor)),
        resolved_(std::move(resolved)),
        key_(std::move(key)),
        node_(node),
        ctx_(ctx),
        done_(std::move(done)) {}

  void End(const Status& status, const Tensor* result) {
    KernelContext* ctx = nullptr;
    DoneFn done;
    {
      MutexLock lock(&mu_);
      ctx = std::exchange(ctx_, nullptr);
      done.swap(done_);
    }
    if (ctx == nullptr) return;
    if (status.ok() && result != nullptr) ctx->SetOutput(0, *result);
    done(status);
  }

  // Over `link`, or, if that says so, through the hosts.
  void ThroughLink(const std::shared_ptr<DeviceLink>& link, const std::string& hint, Tensor part,
                   Tensor output) {
    LinkedRun run{executor_, resolved_, key_, hint, work_, part, output};
    link->RunAsync(std::move(run), [self = RefPtr<Execution>::Share(this),
                                    part = std::move(part)](const DeviceLink::Outcome& outcome) {
      if (!outcome.status.ok() || outcome.done) return self->End(outcome.status, nullptr);
      MR_LOG(kDebug, self->node_, " takes the way through host memory: ", outcome.why_not);
      self->ThroughHosts(part);
    });
  }

  void ThroughHosts(const Tensor& part) {
    const auto self = RefPtr<Execution>::Share(this);
    if (part.buffer() == nullptr) return BetweenHosts(Tensor());
    auto guard = executor_->GuardRun(
        resolved_, [self](const Status& stopped) { self->End(stopped, nullptr); });
    CopyToHost(machine_, part, work_.get(), node_,
               [self, guard](const Status& status, const Tensor& copy) {
                 const Status ended = guard->End(status);
                 if (!ended.ok()) return self->End(ended, nullptr);
                 self->BetweenHosts(copy);
               });
  }

 private:
  void BetweenHosts(const Tensor& part) {
    const CollectiveParams& params = resolved_->params;
    // A copy is its own result where it has the size of one.
    Tensor result = part;
    if (part.buffer() == nullptr || part.shape() != params.shape ||
        params.shape.num_elements() == 0) {
      StatusOr<Tensor> made =
          Tensor::Allocate(machine_->staging_allocator(), params.dtype, params.shape);
      if (!made.ok()) {
        executor_->Abort(made.status());
        return End(made.status(), nullptr);
      }
      result = *std::move(made);
    }
    executor_->RunAsync(resolved_, key_, part, result,
                        [self = RefPtr<Execution>::Share(this), result](const Status& status) {
                          if (!status.ok()) return self->End(status, nullptr);
                          const StatusOr<Tensor> there =
                              CopyToDevice(self->machine_, self->allocator_, result,
                                           self->work_.get(), self->node_);
                          if (!there.ok()) self->executor_->Abort(there.status());
                          self->End(there.status(), there.ok() ? &*there : nullptr);
                        });
  }

  Accelerator* const machine_;
  Allocator* const allocator_;
  const RefPtr<DeviceWork> work_;
  const RefPtr<CollectiveExecutor> executor_;
  const std::shared_ptr<const ResolvedCollective> resolved_;
  const std::string key_, node_;
  Mutex mu_;
  KernelContext* ctx_ ABSL_GUARDED_BY(mu_);
  DoneFn done_ ABSL_GUARDED_BY(mu_);
};

class AcceleratorCollective final : public CollectiveKernel {
 public:
  AcceleratorCollective(KernelConstruction& c, OpenLink open)
      : CollectiveKernel(c),
        hint_(c.attrs().GetOr<std::string>("communication_hint", "auto")),
        link_(open == nullptr ? nullptr : open(AcceleratorOf(c.device()))) {}

 protected:
  void Exchange(KernelContext& ctx, CollectiveExecutor& executor,
                std::shared_ptr<const ResolvedCollective> resolved, const std::string& key,
                std::function<void(const Status&)> done) override {
    const auto fail = [&](const Status& status) {
      executor.Abort(status);
      done(status);
    };
    if (WorkOf(ctx.rendezvous()) == nullptr) {
      return fail(errors::Internal("the step keeps no account of work on accelerators"));
    }
    Tensor part = Part(ctx);
    if (resolved->group->size() == 1 && role() != Role::kReceive) {
      ctx.SetOutput(0, std::move(part));
      return done(OkStatus());
    }
    // All members decide alike: what is asked here is the same for all of a group.
    const bool linked = link_ != nullptr && resolved->group->tells_steps &&
                        resolved->params.shape.num_elements() > 0;
    Tensor output;
    if (linked) {
      const StatusOr<Tensor*> made = TakeOutput(ctx, resolved->params.shape);
      if (!made.ok()) return fail(made.status());
      output = **made;
    }
    const auto execution =
        MakeRef<Execution>(&ctx, std::move(done), executor, std::move(resolved), key, name());
    if (!linked) return execution->ThroughHosts(part);
    execution->ThroughLink(link_, hint_, std::move(part), std::move(output));
  }

 private:
  const std::string hint_;
  const std::shared_ptr<DeviceLink> link_;
};

}  // namespace

std::unique_ptr<Kernel> NewAcceleratorCollective(KernelConstruction& c, OpenLink open) {
  return std::make_unique<AcceleratorCollective>(c, open);
}

void RegisterAcceleratorCollectives(const OpRegistry& ops, const CpuKernels& cpu,
                                    const std::string& device_type, KernelFactory make,
                                    KernelRegistry& registry) {
  if (make == nullptr) make = &MakeAcceleratorCollective<nullptr>;
  const std::vector<std::string> keys = {"group_size", "group_key", "instance_key"};
  const std::vector<std::string> keys_and_tokens = {"group_size", "group_key", "instance_key",
                                                    "ordering_token"};
  const std::vector<std::string> keys_and_shape = {"group_size", "group_key", "instance_key",
                                                   "shape"};
  const auto adopt = [&](const char* op, const std::vector<std::string>& host_args) {
    Adopt(ops, cpu, op, {device_type, make, host_args, DeviceTypes(), "T"}, registry);
  };
  for (const char* op :
       {"CollectiveReduce", "CollectiveGather", "CollectiveBcastSend", "CollectiveBcastRecv"}) {
    adopt(op, {});
  }
  for (const char* op : {"CollectiveReduceV2", "CollectiveGatherV2"}) adopt(op, keys_and_tokens);
  adopt("CollectiveBcastSendV2", keys);
  adopt("CollectiveBcastRecvV2", keys_and_shape);
}

}  // namespace millrace
