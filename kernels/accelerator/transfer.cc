// SPDX-License-Identifier: Apache-2.0
#include "kernels/accelerator/transfer.h"

#include <memory>
#include <string>
#include <utility>

#include "base/errors.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "device/copy.h"
#include "kernels/accelerator/accelerator_kernels.h"
#include "kernels/accelerator/pending_output.h"
#include "kernels/capturable_kernel.h"
#include "kernels/common/kernel_errors.h"
#include "kernels/kernel_context.h"
#include "kernels/transfer_kernel.h"
#include "rendezvous/device_rendezvous.h"

namespace millrace {
namespace {

Status NoWork() { return errors::Internal("the step keeps no account of work on accelerators"); }

// A value in device memory meets a receiver on an accelerator of the same task as it is; for all
// others it is copied to the host first, and sent when it is there.
class DeviceSendKernel final : public TransferKernel {
 public:
  explicit DeviceSendKernel(KernelConstruction& c) : TransferKernel(c) {
    const DeviceName& here = c.device()->parsed_name();
    const StatusOr<DeviceName> to = DeviceName::Parse(c.attr<std::string>("recv_device"));
    stages_ = !to.ok() || !to->SameAddressSpace(here) || to->type != here.type;
  }

  Status Compute(KernelContext& ctx) override {
    if (ctx.rendezvous() == nullptr) return NoRendezvous();
    std::string buffer;
    const std::string_view key = Key(ctx, &buffer);
    if (ctx.is_input_dead()) return ctx.rendezvous()->Send(key, Tensor(), true);
    const Tensor value = ctx.locked_input(0);
    const bool is_object = !IsMemcpyable(value.dtype());
    if (is_object || !stages_) return ctx.rendezvous()->Send(key, value, false);
    if (WorkOf(ctx.rendezvous()) == nullptr) return NoWork();
    // A value without elements stands for a control edge: it, too, comes after what was enqueued.
    auto rendezvous = RefPtr<Rendezvous>::Share(ctx.rendezvous());
    CopyToHost(AcceleratorOf(ctx.device()), value, WorkOf(ctx.rendezvous()), name(),
               [rendezvous = std::move(rendezvous), key = std::string(key)](const Status& status,
                                                                            const Tensor& copy) {
                 // An error ends the step, which tells the receiver. So does an abort.
                 if (status.ok()) {
                   rendezvous->Send(key, copy, false).IgnoreError();
                 } else {
                   rendezvous->StartAbort(MarkDerived(status));
                 }
               });
    return OkStatus();
  }

 private:
  bool stages_ = true;
};

template <bool kToHost>
class DeviceRecvKernel final : public TransferKernel {
 public:
  using TransferKernel::TransferKernel;

  bool IsAsync() const override { return true; }
  Status Compute(KernelContext&) override { return CompletesAsynchronously(def().name()); }
  void ComputeAsync(KernelContext& ctx, DoneCallback done) override {
    if (ctx.rendezvous() == nullptr) return done(NoRendezvous());
    if (WorkOf(ctx.rendezvous()) == nullptr) return done(NoWork());
    std::string buffer;
    ctx.rendezvous()->RecvAsync(
        Key(ctx, &buffer), ctx.cancellation(),
        [this, context = &ctx, done](const Status& status, const Tensor& value, bool is_dead) {
          if (!status.ok()) return done(status);
          if (is_dead) {
            context->SetOutputDead(0);
            return done(status);
          }
          kToHost ? TakeToHost(context, value, done) : done(TakeToDevice(context, value));
        });
  }

 private:
  Status TakeToDevice(KernelContext* ctx, const Tensor& value) {
    Accelerator* const here = AcceleratorOf(ctx->device());
    DeviceWork* const work = WorkOf(ctx->rendezvous());
    if (!InDeviceMemory(value)) {
      MR_ASSIGN_OR_RETURN(Tensor copy, CopyToDevice(here, ctx->allocator(), value, work, name()));
      ctx->SetOutput(0, std::move(copy));
      return OkStatus();
    }
    Accelerator* const there = AcceleratorOf(value.raw_data());
    if (there == here) {
      ctx->SetOutput(0, value);
      return OkStatus();
    }
    if (there == nullptr) return Orphan();
    MR_ASSIGN_OR_RETURN(Tensor copy,
                        CopyToPeer(there, here, ctx->allocator(), value, work, name()));
    ctx->SetOutput(0, std::move(copy));
    return OkStatus();
  }

  void TakeToHost(KernelContext* ctx, const Tensor& value, DoneCallback done) {
    if (!InDeviceMemory(value)) {
      ctx->SetOutput(0, value);
      return done(OkStatus());
    }
    Accelerator* const there = AcceleratorOf(value.raw_data());
    if (there == nullptr) return done(Orphan());
    const auto pending = MakeRef<PendingOutput>(ctx, done);
    DeviceWork* const work = WorkOf(ctx->rendezvous());
    if (!pending->Watch()) return pending->End(PendingOutput::Cancelled(), Tensor());
    CopyToHost(there, value, work, name(),
               [pending](const Status& status, const Tensor& copy) { pending->End(status, copy); });
  }

  static Status Orphan() {
    return errors::Internal("a tensor lies in the memory of a device that has gone away");
  }
};

class DeviceConstKernel final : public Kernel, public CapturableKernel {
 public:
  explicit DeviceConstKernel(KernelConstruction& c) : Kernel(c), value_(c.attr<Tensor>("value")) {
    if (c.status().ok()) c.SetError(CheckConstant(value_.dtype(), c.output_types()[0]));
  }
  bool IsExpensive() const override { return false; }
  Traits capture_traits() const override { return {}; }

  Status Compute(KernelContext& ctx) override {
    DeviceWork* const work = WorkOf(ctx.rendezvous());
    if (work == nullptr) return NoWork();
    Accelerator* const here = AcceleratorOf(ctx.device());
    MutexLock lock(&mu_);
    const bool ended = copying_ && copying_->Pending().empty();
    if (copying_ && copying_->failed()) copy_ = Tensor();
    if (ended || !copy_.IsInitialized()) copying_.reset();
    if (!copy_.IsInitialized()) {
      // Not from the step's allocator, nor on its account: the copy outlives the step.
      const auto copying = MakeRef<DeviceWork>();
      MR_ASSIGN_OR_RETURN(copy_,
                          CopyToDevice(here, here->allocator(), value_, copying.get(), name()));
      copying_ = copying;
    }
    if (copying_) {
      // Every step that comes before it has been copied shares its fate.
      here->stream(StreamKind::kCompute)
          ->Enqueue({RefPtr<DeviceWork>::Share(work), name(),
                     [copying = copying_] { return copying->error(); }});
    }
    ctx.SetOutput(0, copy_);
    return OkStatus();
  }

 private:
  const Tensor value_;
  Mutex mu_;
  Tensor copy_ ABSL_GUARDED_BY(mu_);
  RefPtr<DeviceWork> copying_ ABSL_GUARDED_BY(mu_);  // null once it is known to be there
};

}  // namespace

std::unique_ptr<Kernel> MakeAcceleratorConst(KernelConstruction& c) {
  return std::make_unique<DeviceConstKernel>(c);
}

void RegisterAcceleratorTransfers(const std::string& device_type, KernelRegistry& registry) {
  registry.Register(KernelDef("_Send").Device(device_type), MakeKernel<DeviceSendKernel>);
  registry.Register(KernelDef("_HostSend").Device(device_type), &MakeCpuKernel);
  registry.Register(KernelDef("_Recv").Device(device_type), MakeKernel<DeviceRecvKernel<false>>);
  registry.Register(KernelDef("_HostRecv").Device(device_type), MakeKernel<DeviceRecvKernel<true>>);
}

}  // namespace millrace
