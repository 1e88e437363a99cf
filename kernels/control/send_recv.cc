// SPDX-License-Identifier: Apache-2.0
#include "kernels/control/send_recv.h"

#include <string>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "device/device_name.h"
#include "kernels/common/kernel_errors.h"
#include "kernels/common/variant_codec.h"
#include "kernels/kernel_context.h"
#include "kernels/transfer_kernel.h"
#include "rendezvous/rendezvous.h"

namespace millrace {
namespace {

// Objects of variants leave a process in another form than they have within.
bool LeavesTheTask(KernelConstruction& c) {
  const StatusOr<DeviceName> from = DeviceName::Parse(c.attr<std::string>("send_device"));
  const StatusOr<DeviceName> to = DeviceName::Parse(c.attr<std::string>("recv_device"));
  return from.ok() && to.ok() && !from->SameAddressSpace(*to);
}

class SendKernel : public TransferKernel {
 public:
  explicit SendKernel(KernelConstruction& c)
      : TransferKernel(c), encodes_(c.input_types()[0] == kVariant && LeavesTheTask(c)) {}

  Status Compute(KernelContext& ctx) override {
    if (ctx.rendezvous() == nullptr) return NoRendezvous();
    std::string buffer;
    const std::string_view key = Key(ctx, &buffer);
    if (ctx.is_input_dead()) return ctx.rendezvous()->Send(key, Tensor(), true);
    if (encodes_) {
      MR_ASSIGN_OR_RETURN(const Tensor encoded, EncodedObjects(ctx.input(0)));
      return ctx.rendezvous()->Send(key, encoded, false);
    }
    return ctx.rendezvous()->Send(key, ctx.locked_input(0), false);
  }

 private:
  const bool encodes_;
};

class RecvKernel : public TransferKernel {
 public:
  using TransferKernel::TransferKernel;

  bool IsAsync() const override { return true; }
  Status Compute(KernelContext&) override { return CompletesAsynchronously(def().name()); }
  void ComputeAsync(KernelContext& ctx, DoneCallback done) override {
    if (ctx.rendezvous() == nullptr) return done(NoRendezvous());
    std::string buffer;
    ctx.rendezvous()->RecvAsync(
        Key(ctx, &buffer), ctx.cancellation(),
        [context = &ctx, done](const Status& status, const Tensor& value, bool is_dead) {
          if (!status.ok()) return done(status);
          if (is_dead) {
            context->SetOutputDead(0);
          } else if (value.dtype() == kVariant) {
            StatusOr<Tensor> decoded = DecodedObjects(value);
            if (!decoded.ok()) return done(decoded.status());
            context->SetOutput(0, *std::move(decoded));
          } else {
            context->SetOutput(0, value);
          }
          done(OkStatus());
        });
  }
};

}  // namespace

void RegisterSendRecvKernels(KernelRegistry& registry) {
  registry.Register(KernelDef("_Send"), MakeKernel<SendKernel>);
  registry.Register(KernelDef("_HostSend"), MakeKernel<SendKernel>);
  registry.Register(KernelDef("_Recv"), MakeKernel<RecvKernel>);
  registry.Register(KernelDef("_HostRecv"), MakeKernel<RecvKernel>);
}

}  // namespace millrace
