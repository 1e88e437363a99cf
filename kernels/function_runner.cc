// SPDX-License-Identifier: Apache-2.0
#include "kernels/function_runner.h"

#include "base/errors.h"
#include "base/notification.h"
#include "base/status_macros.h"

namespace millrace {

Status FunctionRunner::Run(const RunnableFunction& function, const FunctionCall& call,
                           std::span<const Tensor> args, std::span<Tensor> results) {
  struct Waiter {
    Notification done;
    Status status;
  } waiter;
  RunAsync(function, call, args, results,
           {[](void* arg, Status status) {
              auto* const w = static_cast<Waiter*>(arg);
              w->status = std::move(status);
              w->done.Notify();
            },
            &waiter});
  waiter.done.Wait();
  return std::move(waiter.status);
}

StatusOr<const RunnableFunction*> LazyFunction::Get(const KernelContext& ctx) const {
  if (const RunnableFunction* found = found_.load(std::memory_order_acquire)) return found;
  FunctionRunner* const runner = ctx.env().functions;
  if (runner == nullptr) {
    return errors::NotFound("Function ", function_.name, " is not defined.");
  }
  FunctionRunner::Options options;
  options.device = ctx.device();
  options.on_one_device = on_one_device_;
  options.gradient = gradient_;
  MR_ASSIGN_OR_RETURN(const RunnableFunction* const found, runner->Instantiate(function_, options));
  found_.store(found, std::memory_order_release);
  return found;
}

}  // namespace millrace
