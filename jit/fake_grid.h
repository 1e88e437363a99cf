// SPDX-License-Identifier: Apache-2.0
// The kernel of _Fused on the simulated accelerator.
#ifndef JIT_FAKE_GRID_H_
#define JIT_FAKE_GRID_H_

#include "kernels/kernel_registry.h"
#include "ops/op_registry.h"

namespace millrace {

// Devices "FAKE". Both outlive the kernels.
void RegisterFakeFusedKernels(const OpRegistry& ops, KernelRegistry& registry);

}  // namespace millrace

#endif  // JIT_FAKE_GRID_H_
