// Every family of kernels, by the function that registers it. A new family adds its call in
// all_kernels.cc, and its line here unless it has a header of its own.
#ifndef KERNELS_ALL_KERNELS_H_
#define KERNELS_ALL_KERNELS_H_

#include "kernels/kernel_registry.h"

namespace millrace {

// Layers of networks.
void RegisterMatMulKernels(KernelRegistry& registry);
void RegisterBiasKernels(KernelRegistry& registry);
void RegisterActivationKernels(KernelRegistry& registry);
void RegisterSoftmaxKernels(KernelRegistry& registry);

// Variables and their updates.
void RegisterStateKernels(KernelRegistry& registry);
void RegisterResourceVariableKernels(KernelRegistry& registry);
void RegisterVariableScatterKernels(KernelRegistry& registry);
void RegisterTrainingKernels(KernelRegistry& registry);

// Where steps meet; checkpoints.
void RegisterQueueKernels(KernelRegistry& registry);
void RegisterAccumulatorKernels(KernelRegistry& registry);
void RegisterSaveRestoreKernels(KernelRegistry& registry);

// All of them.
void RegisterAllKernels(KernelRegistry& registry);

}  // namespace millrace

#endif  // KERNELS_ALL_KERNELS_H_
