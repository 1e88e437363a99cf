// SPDX-License-Identifier: Apache-2.0
// What of a kernel's work its device may record once and repeat without the kernel.
#ifndef KERNELS_CAPTURABLE_KERNEL_H_
#define KERNELS_CAPTURABLE_KERNEL_H_

#include <cstdint>
#include <functional>

#include "base/errors.h"
#include "millrace/status.h"

namespace millrace {

class KernelContext;  // kernels/kernel_context.h

// A kernel derives from it, besides Kernel, to say that what it does is decided by the shapes of
// its inputs, by their values where they lie in host memory, and by where the variables behind its
// handles lie. A kernel that does not say so is never recorded.
class CapturableKernel {
 public:
  struct Traits {
    // Why it is not so for this node after all; null if it is.
    const char* obstacle = nullptr;
    // It enqueues to the compute stream of its device, and to no other: that is recorded. False
    // if it works on the host alone, or has something copied once for all steps.
    bool enqueues = false;
    // So many of the leading inputs are handles of variables whose values it changes in place.
    int num_updated = 0;
    // What it enqueues depends on a number, too, that the host draws anew for every step: it is
    // recorded by RecordDrawn instead of Compute.
    bool draws = false;
  };
  virtual Traits capture_traits() const = 0;

  // False while it is about to find a quicker way for inputs that it has met, as code that is being
  // compiled: what is recorded would be the slow way, for ever. Asked between steps, often, by any
  // thread. It becomes true some time whatever happens.
  virtual bool IsSettled() const { return true; }

  // As Compute, of a kernel that draws. What it enqueues reads the number at `drawn`, in memory of
  // the device, when it runs. `*draw` becomes what is to be called once before each launch, by any
  // thread: it gives the number, and moves on the state as one execution would. It may be called
  // when the kernel is gone.
  virtual Status RecordDrawn(KernelContext& ctx, const uint64_t* drawn,
                             std::function<uint64_t()>* draw) {
    return errors::Internal("a kernel that draws nothing is recorded as if it did");
  }

 protected:
  ~CapturableKernel() = default;
};

}  // namespace millrace

#endif  // KERNELS_CAPTURABLE_KERNEL_H_
