// SPDX-License-Identifier: Apache-2.0
// How many insertions, deletions and replacements make one sequence of another.
#ifndef KERNELS_SPARSE_EDIT_DISTANCE_H_
#define KERNELS_SPARSE_EDIT_DISTANCE_H_

#include "kernels/kernel_registry.h"

namespace millrace {

void RegisterEditDistanceKernels(KernelRegistry& registry);

}  // namespace millrace

#endif  // KERNELS_SPARSE_EDIT_DISTANCE_H_
