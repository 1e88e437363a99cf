// SPDX-License-Identifier: Apache-2.0
// The kernel of _Fused, which graph/rewrite makes of elementwise nodes (docs/fusion.md).
#ifndef JIT_FUSED_KERNEL_H_
#define JIT_FUSED_KERNEL_H_

#include "kernels/kernel_registry.h"

namespace millrace {

void RegisterFusedKernels(KernelRegistry& registry);

}  // namespace millrace

#endif  // JIT_FUSED_KERNEL_H_
