// SPDX-License-Identifier: Apache-2.0
#include "kernels/control/send_recv.h"

#include <string>
#include <utility>

#include "base/errors.h"
#include "base/strings.h"
#include "kernels/common/kernel_errors.h"
#include "kernels/kernel_context.h"
#include "kernels/transfer_kernel.h"
#include "rendezvous/rendezvous.h"

namespace millrace {
namespace {

class SendKernel : public TransferKernel {
 public:
  using TransferKernel::TransferKernel;

  Status Compute(KernelContext& ctx) override {
    if (ctx.rendezvous() == nullptr) return NoRendezvous();
    std::string buffer;
    const std::string_view key = Key(ctx, &buffer);
    if (ctx.is_input_dead()) return ctx.rendezvous()->Send(key, Tensor(), true);
    return ctx.rendezvous()->Send(key, ctx.locked_input(0), false);
  }
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
          if (status.ok() && is_dead) {
            context->SetOutputDead(0);
          } else if (status.ok()) {
            context->SetOutput(0, value);
          }
          done(status);
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
