// SPDX-License-Identifier: Apache-2.0
// The ops on data sets, by family; see kernels/all_kernels.h.
#ifndef KERNELS_DATA_DATA_KERNELS_H_
#define KERNELS_DATA_DATA_KERNELS_H_

#include "kernels/kernel_registry.h"

namespace millrace {

void RegisterSourceDatasets(KernelRegistry& registry);
void RegisterLocalGeneratorDatasets(KernelRegistry& registry);
void RegisterTransformDatasets(KernelRegistry& registry);
void RegisterShuffleDatasets(KernelRegistry& registry);
void RegisterSamplingDatasets(KernelRegistry& registry);
void RegisterAnonymousDataKernels(KernelRegistry& registry);
void RegisterBatchDatasets(KernelRegistry& registry);
void RegisterFunctionDatasets(KernelRegistry& registry);
void RegisterDatasetGraphs(KernelRegistry& registry);
void RegisterGeneratorDatasets(KernelRegistry& registry);
void RegisterMultiDeviceIterators(KernelRegistry& registry);
void RegisterDistributedDatasets(KernelRegistry& registry);
void RegisterDatasetChecks(KernelRegistry& registry);
void RegisterUniqueDatasets(KernelRegistry& registry);
void RegisterWindowDatasets(KernelRegistry& registry);
void RegisterIteratorKernels(KernelRegistry& registry);

inline void RegisterDataKernels(KernelRegistry& registry) {
  RegisterSourceDatasets(registry);
  RegisterLocalGeneratorDatasets(registry);
  RegisterTransformDatasets(registry);
  RegisterShuffleDatasets(registry);
  RegisterSamplingDatasets(registry);
  RegisterAnonymousDataKernels(registry);
  RegisterBatchDatasets(registry);
  RegisterFunctionDatasets(registry);
  RegisterDatasetGraphs(registry);
  RegisterGeneratorDatasets(registry);
  RegisterMultiDeviceIterators(registry);
  RegisterDistributedDatasets(registry);
  RegisterDatasetChecks(registry);
  RegisterUniqueDatasets(registry);
  RegisterWindowDatasets(registry);
  RegisterIteratorKernels(registry);
}

}  // namespace millrace

#endif  // KERNELS_DATA_DATA_KERNELS_H_
