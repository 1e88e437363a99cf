// SPDX-License-Identifier: Apache-2.0
// Kernels whose outputs have sizes that only the device can tell.
#ifndef KERNELS_ACCELERATOR_COUNTING_KERNEL_H_
#define KERNELS_ACCELERATOR_COUNTING_KERNEL_H_

#include <memory>

#include "kernels/accelerator/stream_kernel.h"
#include "kernels/kernel.h"

namespace millrace {

// Enqueues what counts, takes the outputs' memory when the host has seen the counts, and enqueues
// the rest. Done then, or with the step, whichever is first: it waits for all that was enqueued
// before it, and no thread does. Never recorded, for that. The op has no variables.
std::unique_ptr<Kernel> MakeCountingKernel(KernelConstruction& c, std::shared_ptr<StreamBody> body);

}  // namespace millrace

#endif  // KERNELS_ACCELERATOR_COUNTING_KERNEL_H_
