// SPDX-License-Identifier: Apache-2.0
// The ops by which asynchronous updates wait for their turn (kernels/training/staleness_gate.h).
#ifndef KERNELS_TRAINING_STALENESS_H_
#define KERNELS_TRAINING_STALENESS_H_

#include "kernels/kernel_registry.h"

namespace millrace {

void RegisterStalenessKernels(KernelRegistry& registry);

}  // namespace millrace

#endif  // KERNELS_TRAINING_STALENESS_H_
