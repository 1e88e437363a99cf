// SPDX-License-Identifier: Apache-2.0
// Kernels of the ops that loaded libraries define (millrace/custom_op.h): on the CPU.
#ifndef KERNELS_CUSTOM_CUSTOM_KERNELS_H_
#define KERNELS_CUSTOM_CUSTOM_KERNELS_H_

#include "kernels/kernel_registry.h"

namespace millrace {

void RegisterCustomKernels(KernelRegistry& registry);

}  // namespace millrace

#endif  // KERNELS_CUSTOM_CUSTOM_KERNELS_H_
