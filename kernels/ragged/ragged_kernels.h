// SPDX-License-Identifier: Apache-2.0
// Kernels of rows of different lengths.
#ifndef KERNELS_RAGGED_RAGGED_KERNELS_H_
#define KERNELS_RAGGED_RAGGED_KERNELS_H_

#include "kernels/kernel_registry.h"

namespace millrace {

void RegisterRaggedGatherKernels(KernelRegistry& registry);
void RegisterRaggedConversionKernels(KernelRegistry& registry);  // to sparse tensors, counts
void RegisterRaggedTensorKernels(KernelRegistry& registry);      // to padded tensors
void RegisterRaggedVariantKernels(KernelRegistry& registry);
void RegisterNGramKernels(KernelRegistry& registry);

}  // namespace millrace

#endif  // KERNELS_RAGGED_RAGGED_KERNELS_H_
