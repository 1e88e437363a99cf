#include "kernels/send_recv.h"

#include <string>
#include <utility>

#include "base/errors.h"
#include "base/strings.h"
#include "kernels/kernel_context.h"
#include "rendezvous/rendezvous.h"

namespace millrace {
namespace {

// Everything of the key but frame and iteration is known when the kernel is made.
class TransferKernel : public Kernel {
 public:
  explicit TransferKernel(KernelConstruction& c) : Kernel(c) {
    RendezvousKey key;
    key.src_device = c.attr<std::string>("send_device");
    key.src_incarnation = static_cast<uint64_t>(c.attr<int64_t>("send_device_incarnation"));
    key.dst_device = c.attr<std::string>("recv_device");
    key.edge_name = c.attr<std::string>("tensor_name");
    root_key_ = key.ToString();
    prefix_ = root_key_.substr(0, root_key_.rfind(';') + 1);
  }
  bool IsExpensive() const override { return false; }

 protected:
  // The key of this execution; `buffer` holds it if it had to be written.
  std::string_view Key(const KernelContext& ctx, std::string* buffer) const {
    if (ctx.frame_id() == 0 && ctx.iteration() == 0) return root_key_;
    *buffer = StrCat(prefix_, ctx.frame_id(), ":", ctx.iteration());
    return *buffer;
  }
  Status NoRendezvous() const {
    return errors::Internal("the step has no rendezvous, which ", def().name(), " needs");
  }

 private:
  std::string root_key_, prefix_;
};

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
  Status Compute(KernelContext&) override {
    return errors::Internal(def().name(), " completes only asynchronously");
  }
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
