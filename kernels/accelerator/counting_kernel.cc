// SPDX-License-Identifier: Apache-2.0
#include "kernels/accelerator/counting_kernel.h"

#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "device/copy.h"
#include "kernels/accelerator/pending_output.h"
#include "kernels/accelerator/stream_operand.h"
#include "kernels/common/kernel_errors.h"
#include "kernels/kernel_context.h"
#include "rendezvous/device_rendezvous.h"

namespace millrace {
namespace {

// What is left of one execution while the device counts: nothing of the step but its account.
struct Pending {
  std::shared_ptr<StreamCall> call;
  std::shared_ptr<StreamBody> body;
  RefPtr<DeviceWork> account;
  std::string node;
  Tensor scratch, counts;  // until all is enqueued
};

Status EnqueueRest(const Pending& pending, KernelContext& ctx) {
  StreamCall& call = *pending.call;
  MR_ASSIGN_OR_RETURN(const std::vector<Shape> shapes, pending.body->CountedShapes(call));
  if (static_cast<int>(shapes.size()) != ctx.num_outputs()) {
    return errors::Internal("shapes of ", shapes.size(), " outputs of ", ctx.num_outputs());
  }
  for (int i = 0; i < ctx.num_outputs(); ++i) {
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(i, shapes[i]));
    call.outputs.push_back(Operand(*out));
  }
  call.machine->stream(StreamKind::kCompute)
      ->Enqueue({pending.account, pending.node,
                 [call = pending.call, body = pending.body] { return body->Run(*call); }});
  return OkStatus();
}

class CountingKernel final : public Kernel {
 public:
  CountingKernel(KernelConstruction& c, std::shared_ptr<StreamBody> body)
      : Kernel(c), body_(std::move(body)) {}
  bool IsExpensive() const override { return false; }
  bool IsAsync() const override { return true; }
  Status Compute(KernelContext&) override { return CompletesAsynchronously(def().name()); }

  void ComputeAsync(KernelContext& ctx, DoneCallback done) override {
    auto pending = std::make_shared<Pending>();
    if (const Status taken = Take(ctx, pending.get()); !taken.ok()) return done(taken);
    const auto output = MakeRef<PendingOutput>(&ctx, done);
    if (!output->Watch()) return output->End(PendingOutput::Cancelled(), Tensor());
    // The step may be over, and this kernel gone, from here on.
    Accelerator* const machine = pending->call->machine;
    machine->stream(StreamKind::kCompute)
        ->Enqueue({pending->account, pending->node,
                   [call = pending->call, body = pending->body] { return body->Count(*call); }});
    const Tensor counts = pending->counts;
    const RefPtr<DeviceWork> account = pending->account;
    const std::string node = pending->node;
    CopyToHost(machine, counts, account.get(), node,
               [output, pending = std::move(pending)](const Status& status, const Tensor& found) {
                 output->Finish([&](KernelContext& context) -> Status {
                   MR_RETURN_IF_ERROR(status);
                   const auto numbers = found.flat<int64_t>();
                   pending->call->counted.assign(numbers.begin(), numbers.end());
                   return EnqueueRest(*pending, context);
                 });
               });
  }

 private:
  // What the counting needs.
  Status Take(KernelContext& ctx, Pending* pending) const {
    DeviceWork* const work = WorkOf(ctx.rendezvous());
    if (work == nullptr) return errors::Internal("the step keeps no account of its device's work");
    auto call = std::make_shared<StreamCall>();
    call->machine = AcceleratorOf(ctx.device());
    for (int i = 0; i < ctx.num_inputs(); ++i) {
      // The context keeps a share of each until the kernel is done.
      call->inputs.push_back(Operand(ctx.input(i)));
      call->input_on_device.push_back(InDeviceMemory(ctx.input(i)));
    }
    if (const int64_t bytes = body_->ScratchBytes(*call); bytes > 0) {
      MR_ASSIGN_OR_RETURN(pending->scratch, ctx.AllocateTemp(kUint8, Shape({bytes})));
      call->scratch = Operand(pending->scratch);
    }
    MR_ASSIGN_OR_RETURN(pending->counts, ctx.AllocateTemp(kInt64, Shape({body_->num_counts()})));
    call->counts = Operand(pending->counts);
    pending->call = std::move(call);
    pending->body = body_;
    pending->account = RefPtr<DeviceWork>::Share(work);
    pending->node = name();
    return OkStatus();
  }

  const std::shared_ptr<StreamBody> body_;
};

}  // namespace

std::unique_ptr<Kernel> MakeCountingKernel(KernelConstruction& c,
                                           std::shared_ptr<StreamBody> body) {
  return std::make_unique<CountingKernel>(c, std::move(body));
}

}  // namespace millrace
