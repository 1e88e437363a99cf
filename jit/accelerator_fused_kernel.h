// SPDX-License-Identifier: Apache-2.0
// The kernel of _Fused on accelerators: one launch where there is one loop, or the kernels that the
// parts have there, one after the other, until that loop is compiled and where there is none.
#ifndef JIT_ACCELERATOR_FUSED_KERNEL_H_
#define JIT_ACCELERATOR_FUSED_KERNEL_H_

#include <memory>

#include "jit/grid_loop.h"
#include "kernels/kernel_registry.h"
#include "ops/op_registry.h"

namespace millrace {

// For a factory of a type of device. `ops` has the parts' ops, and with `backend` outlives the
// kernel; kernels of the parts come from the registry that asks.
std::unique_ptr<Kernel> MakeAcceleratorFusedKernel(KernelConstruction& c, const OpRegistry& ops,
                                                   const jit::GridBackend& backend);

}  // namespace millrace

#endif  // JIT_ACCELERATOR_FUSED_KERNEL_H_
