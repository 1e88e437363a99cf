// SPDX-License-Identifier: Apache-2.0
// Fused loops on GPUs.
#ifndef JIT_CUDA_GRID_H_
#define JIT_CUDA_GRID_H_

#include "jit/grid_loop.h"
#include "kernels/kernel_registry.h"
#include "ops/op_registry.h"

namespace millrace {

namespace jit {

// For machines that are a CudaMachine of compute capability 7.5 or later: PTX, which the driver
// compiles when it is loaded. Bits are those of the CPU (docs/fusion.md).
const GridBackend& CudaGrids();

}  // namespace jit

// "GPU". Both outlive the kernels.
void RegisterGpuFusedKernels(const OpRegistry& ops, KernelRegistry& registry);

}  // namespace millrace

#endif  // JIT_CUDA_GRID_H_
