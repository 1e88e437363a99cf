// SPDX-License-Identifier: Apache-2.0
#include "kernels/accelerator/pending_output.h"

#include <utility>

#include "base/errors.h"

namespace millrace {

PendingOutput::PendingOutput(KernelContext* ctx, DoneCallback done)
    : ctx_(ctx), done_(done), cancellation_(ctx->cancellation()) {}

bool PendingOutput::Watch() {
  if (cancellation_ == nullptr) return true;
  token_ = cancellation_->NextToken();
  return cancellation_->RegisterCallback(
      token_, [self = RefPtr<PendingOutput>::Share(this)] { self->End(Cancelled(), Tensor()); });
}

void PendingOutput::End(const Status& status, const Tensor& value) {
  Finish([&](KernelContext& ctx) {
    if (status.ok()) ctx.SetOutput(0, value);
    return status;
  });
}

void PendingOutput::Finish(absl::FunctionRef<Status(KernelContext&)> last) {
  KernelContext* ctx = nullptr;
  {
    MutexLock lock(&mu_);
    ctx = std::exchange(ctx_, nullptr);
  }
  if (ctx == nullptr) return;
  // The manager may go away as soon as `done` was called.
  if (cancellation_ != nullptr) cancellation_->TryDeregisterCallback(token_);
  done_(last(*ctx));
}

Status PendingOutput::Cancelled() {
  return errors::Cancelled("a copy from the device was not awaited");
}

}  // namespace millrace
