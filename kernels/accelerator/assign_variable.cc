// SPDX-License-Identifier: Apache-2.0
#include "kernels/accelerator/assign_variable.h"

#include <atomic>
#include <utility>

#include "base/errors.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "device/capture.h"
#include "device/copy.h"
#include "kernels/accelerator/accelerator_kernels.h"
#include "kernels/capturable_kernel.h"
#include "kernels/kernel_context.h"
#include "kernels/state/variable.h"
#include "rendezvous/device_rendezvous.h"

namespace millrace {
namespace {

// The variable takes a share of the value, which the stream may not have computed yet. If it
// never will, because the step failed before, the variable is as if nothing had been assigned.
//
// In a recorded step it has a fixed address, to which the value is copied. Ordinary steps do that
// too from then on, or the variable would be elsewhere after each and the step recorded anew. What
// others have a share of is never overwritten: they keep the old value.
class AssignVariableKernel final : public Kernel, public CapturableKernel {
 public:
  AssignVariableKernel(const KernelConstruction& c, std::unique_ptr<Kernel> inner)
      : Kernel(c), inner_(std::move(inner)) {}

  Traits capture_traits() const override { return {.enqueues = true, .num_updated = 1}; }

  Status Compute(KernelContext& ctx) override {
    DeviceWork* const work = WorkOf(ctx.rendezvous());
    if (work == nullptr) return errors::Internal("an assignment on a device outside of a step");
    const RecordingAccelerator* const recording = RecorderOf(AcceleratorOf(ctx.device()));
    if (recording != nullptr && recording->IsRecording()) {
      stays_.store(true, std::memory_order_relaxed);
      return CopyInto(ctx, work);
    }
    if (stays_.load(std::memory_order_relaxed) && CopyInto(ctx, work).ok()) return OkStatus();
    return TakeOver(ctx, work);
  }

 private:
  // FailedPrecondition if the value does not fit where the variable lies; nothing has been done
  // then.
  Status CopyInto(KernelContext& ctx, DeviceWork* work) {
    MR_ASSIGN_OR_RETURN(const ResourceHandle* handle, InputHandle(ctx, 0));
    MR_ASSIGN_OR_RETURN(const RefPtr<ResourceVariable> variable, FindVariable(ctx, *handle));
    if (ctx.input_is_ref(1)) return errors::FailedPrecondition("it assigns a reference's value");
    const Tensor& from = ctx.input(1);
    MutexLock lock(&variable->mu);  // until it is enqueued: the streams see updates in this order
    const Tensor& to = variable->value;
    if (to.dtype() != from.dtype() || !(to.shape() == from.shape())) {
      return errors::FailedPrecondition("it changes the shape of the variable ", handle->name,
                                        " from ", to.shape().DebugString(), " to ",
                                        from.shape().DebugString());
    }
    if (to.num_elements() == 0) return OkStatus();
    if (!InDeviceMemory(to) || !InDeviceMemory(from)) {
      return errors::FailedPrecondition("the variable ", handle->name,
                                        ", or its new value, lies in host memory");
    }
    if (!to.OwnsBufferAlone()) {
      return errors::FailedPrecondition("somebody has a share of the variable ", handle->name);
    }
    AcceleratorOf(ctx.device())
        ->stream(StreamKind::kCompute)
        ->EnqueueCopy(RefPtr<DeviceWork>::Share(work), name(), const_cast<void*>(to.raw_data()),
                      from.raw_data(), from.num_bytes());
    return OkStatus();
  }

  Status TakeOver(KernelContext& ctx, DeviceWork* work) {
    MR_RETURN_IF_ERROR(inner_->Compute(ctx));
    MR_ASSIGN_OR_RETURN(const ResourceHandle* handle, InputHandle(ctx, 0));
    MR_ASSIGN_OR_RETURN(RefPtr<ResourceVariable> variable, FindVariable(ctx, *handle));
    const void* const data = ctx.input(1).raw_data();
    Stream::Operation check;
    check.work = RefPtr<DeviceWork>::Share(work);
    check.node = name();
    check.even_after_error = true;
    check.run = [variable = std::move(variable), work, data] {
      if (!work->failed()) return OkStatus();
      MutexLock lock(&variable->mu);
      if (variable->value.raw_data() == data) variable->value = Tensor();
      return OkStatus();
    };
    AcceleratorOf(ctx.device())->stream(StreamKind::kCompute)->Enqueue(std::move(check));
    return OkStatus();
  }

  const std::unique_ptr<Kernel> inner_;
  std::atomic<bool> stays_{false};  // once it has been recorded
};

}  // namespace

std::unique_ptr<Kernel> MakeAcceleratorAssign(KernelConstruction& c) {
  std::unique_ptr<Kernel> inner = MakeHostRunKernel(c);
  if (inner == nullptr) return nullptr;
  return std::make_unique<AssignVariableKernel>(c, std::move(inner));
}

}  // namespace millrace
