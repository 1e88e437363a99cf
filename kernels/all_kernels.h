// SPDX-License-Identifier: Apache-2.0
// Every family of kernels, by the function that registers it. A new family adds its call in
// all_kernels.cc, and its line here unless it has a header of its own.
#ifndef KERNELS_ALL_KERNELS_H_
#define KERNELS_ALL_KERNELS_H_

#include "kernels/kernel_registry.h"

namespace millrace {

// Mathematics, elementwise.
void RegisterElementwiseUnaryKernels(KernelRegistry& registry);
void RegisterElementwiseFunctionKernels(KernelRegistry& registry);
void RegisterElementwiseBinaryKernels(KernelRegistry& registry);
void RegisterElementwiseDivisionKernels(KernelRegistry& registry);
void RegisterElementwiseCompareKernels(KernelRegistry& registry);
void RegisterCastKernels(KernelRegistry& registry);
void RegisterAddNKernels(KernelRegistry& registry);
void RegisterSelectKernels(KernelRegistry& registry);

// Mathematics along axes.
void RegisterReductionKernels(KernelRegistry& registry);
void RegisterArgReduceKernels(KernelRegistry& registry);
void RegisterScanKernels(KernelRegistry& registry);
void RegisterSegmentKernels(KernelRegistry& registry);
void RegisterSparseSegmentKernels(KernelRegistry& registry);
void RegisterEinsumKernels(KernelRegistry& registry);

// Values and shapes.
void RegisterConstantKernels(KernelRegistry& registry);
void RegisterIdentityKernels(KernelRegistry& registry);
void RegisterShapeKernels(KernelRegistry& registry);
void RegisterSequenceKernels(KernelRegistry& registry);

// Moving elements.
void RegisterConcatSplitKernels(KernelRegistry& registry);
void RegisterSliceKernels(KernelRegistry& registry);
void RegisterLayoutKernels(KernelRegistry& registry);
void RegisterGatherKernels(KernelRegistry& registry);
void RegisterScatterKernels(KernelRegistry& registry);
void RegisterDataFormatKernels(KernelRegistry& registry);
void RegisterDiagonalKernels(KernelRegistry& registry);
void RegisterInPlaceKernels(KernelRegistry& registry);
void RegisterSpaceToBatchKernels(KernelRegistry& registry);
void RegisterResizeKernels(KernelRegistry& registry);

// Random numbers, messages, text.
void RegisterRandomKernels(KernelRegistry& registry);
void RegisterStatelessRandomKernels(KernelRegistry& registry);
void RegisterLoggingKernels(KernelRegistry& registry);
void RegisterStringKernels(KernelRegistry& registry);

// Layers of networks.
void RegisterMatMulKernels(KernelRegistry& registry);
void RegisterBiasKernels(KernelRegistry& registry);
void RegisterActivationKernels(KernelRegistry& registry);
void RegisterSoftmaxKernels(KernelRegistry& registry);
void RegisterConvKernels(KernelRegistry& registry);
void RegisterPoolKernels(KernelRegistry& registry);
void RegisterBatchNormKernels(KernelRegistry& registry);
void RegisterTopKKernels(KernelRegistry& registry);

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
