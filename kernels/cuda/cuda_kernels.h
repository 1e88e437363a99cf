// SPDX-License-Identifier: Apache-2.0
// Kernels of CUDA devices. Only builds with --config=cuda have them.
#ifndef KERNELS_CUDA_CUDA_KERNELS_H_
#define KERNELS_CUDA_CUDA_KERNELS_H_

#include "kernels/gpu/loops/loops.h"
#include "kernels/kernel_registry.h"
#include "millrace/status.h"
#include "ops/op_registry.h"

namespace millrace {

// For devices of type "GPU": the kernels of every accelerator, and what computes, by our own loops
// (kernels/gpu) and by NVIDIA's libraries. After all kernels of the CPU.
void RegisterCudaKernels(const OpRegistry& ops, KernelRegistry& registry);

namespace gpu {

// Launch on the GPU whose context is current, in the queue's stream. They are in a component
// (loops_component.h) that the first call loads; NotFound or FailedPrecondition where that cannot
// be, for ever. Any thread.
StatusOr<const Loops*> LoadedCudaLoops();

}  // namespace gpu
}  // namespace millrace

#endif  // KERNELS_CUDA_CUDA_KERNELS_H_
