// SPDX-License-Identifier: Apache-2.0
// Kernels of collectives: see ops/comm_ops.cc.
#ifndef KERNELS_COLLECTIVE_COLLECTIVE_H_
#define KERNELS_COLLECTIVE_COLLECTIVE_H_

#include "kernels/kernel_registry.h"

namespace millrace {

// CollectiveReduce, CollectiveGather, CollectiveBcastSend, CollectiveBcastRecv, and their V2.
void RegisterCollectiveKernels(KernelRegistry& registry);

}  // namespace millrace

#endif  // KERNELS_COLLECTIVE_COLLECTIVE_H_
