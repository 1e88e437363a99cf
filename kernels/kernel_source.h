// SPDX-License-Identifier: Apache-2.0
// For kernels that are made of others.
#ifndef KERNELS_KERNEL_SOURCE_H_
#define KERNELS_KERNEL_SOURCE_H_

#include "kernels/kernel_registry.h"

namespace millrace {

// What KernelRegistry::Create was asked for, while it calls a factory in this thread; null
// elsewhere. Defined beside it.
const KernelRegistry* CurrentKernelRegistry();
const OpInfo* CurrentKernelOp();

}  // namespace millrace

#endif  // KERNELS_KERNEL_SOURCE_H_
