// SPDX-License-Identifier: Apache-2.0
// How a step runs a kernel: whatever it throws is the step's error, not the end of the process.
#ifndef KERNELS_RUN_KERNEL_H_
#define KERNELS_RUN_KERNEL_H_

#include "base/exceptions.h"
#include "kernels/kernel.h"

namespace millrace {

// Compute, with exceptions as statuses. Costs nothing as long as nothing is thrown.
inline Status RunKernel(Kernel* kernel, KernelContext& ctx) {
  try {
    return kernel->Compute(ctx);
  } catch (...) {
    return CaughtStatus();
  }
}

// ComputeAsync; what it throws is told to `done`.
inline void RunKernelAsync(Kernel* kernel, KernelContext& ctx, DoneCallback done) {
  try {
    kernel->ComputeAsync(ctx, done);
  } catch (...) {
    done(CaughtStatus());
  }
}

}  // namespace millrace

#endif  // KERNELS_RUN_KERNEL_H_
