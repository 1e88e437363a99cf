// SPDX-License-Identifier: Apache-2.0
// An output that the host learns of when a copy from the device has ended.
#ifndef KERNELS_ACCELERATOR_PENDING_OUTPUT_H_
#define KERNELS_ACCELERATOR_PENDING_OUTPUT_H_

#include "absl/functional/function_ref.h"
#include "base/cancellation.h"
#include "base/mutex.h"
#include "kernels/kernel.h"
#include "kernels/kernel_context.h"
#include "millrace/ref_ptr.h"
#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {

// Output 0 of a kernel that ends with a copy, or with the step: whoever comes first. The context is
// gone once `done` was called. Thread-safe.
class PendingOutput : public RefCounted {
 public:
  PendingOutput(KernelContext* ctx, DoneCallback done);

  // To be called once, first. False if the step is over: then End is to say so.
  bool Watch();
  // The kernel is done, with the output if the status is OK; nothing if it was before.
  void End(const Status& status, const Tensor& value);
  // Likewise, with the status, and the outputs, that `last` makes, which is called at most once,
  // before this returns.
  void Finish(absl::FunctionRef<Status(KernelContext&)> last);

  static Status Cancelled();

 private:
  Mutex mu_;
  KernelContext* ctx_ ABSL_GUARDED_BY(mu_);
  const DoneCallback done_;
  CancellationManager* const cancellation_;
  CancellationManager::Token token_ = -1;
};

}  // namespace millrace

#endif  // KERNELS_ACCELERATOR_PENDING_OUTPUT_H_
