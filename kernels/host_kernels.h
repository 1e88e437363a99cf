// SPDX-License-Identifier: Apache-2.0
// The families that keep, find, read and write rather than calculate; see all_kernels.h. A
// header of its own: the loops over numbers need not be compiled again when a family comes.
#ifndef KERNELS_HOST_KERNELS_H_
#define KERNELS_HOST_KERNELS_H_

#include "kernels/kernel_registry.h"

namespace millrace {

void RegisterStackKernels(KernelRegistry& registry);
void RegisterTensorArrayKernels(KernelRegistry& registry);
void RegisterTensorListKernels(KernelRegistry& registry);
void RegisterOptionalKernels(KernelRegistry& registry);
void RegisterVariantMathKernels(KernelRegistry& registry);
void RegisterLookupKernels(KernelRegistry& registry);
void RegisterBarrierKernels(KernelRegistry& registry);
void RegisterStagingKernels(KernelRegistry& registry);
void RegisterStagingMapKernels(KernelRegistry& registry);
void RegisterSessionTensorKernels(KernelRegistry& registry);
void RegisterVariablePartKernels(KernelRegistry& registry);
void RegisterRearrangeKernels(KernelRegistry& registry);
void RegisterMirrorPadKernels(KernelRegistry& registry);
void RegisterSamplingKernels(KernelRegistry& registry);
void RegisterLinearAlgebraKernels(KernelRegistry& registry);
void RegisterFingerprintKernels(KernelRegistry& registry);
void RegisterTextKernels(KernelRegistry& registry);
void RegisterUnicodeKernels(KernelRegistry& registry);
void RegisterParseKernels(KernelRegistry& registry);
void RegisterParseExampleKernels(KernelRegistry& registry);
void RegisterReaderKernels(KernelRegistry& registry);
void RegisterFileKernels(KernelRegistry& registry);
void RegisterSummaryKernels(KernelRegistry& registry);
void RegisterSparseKernels(KernelRegistry& registry);
void RegisterImageSummaryKernels(KernelRegistry& registry);
void RegisterDecodeImageKernels(KernelRegistry& registry);
void RegisterEncodeImageKernels(KernelRegistry& registry);
void RegisterImageColorKernels(KernelRegistry& registry);
void RegisterImageRegionKernels(KernelRegistry& registry);
void RegisterCountingKernels(KernelRegistry& registry);
void RegisterSparseMathKernels(KernelRegistry& registry);
void RegisterPackedSparseKernels(KernelRegistry& registry);
void RegisterGeneratorStateKernels(KernelRegistry& registry);
void RegisterAudioSummaryKernels(KernelRegistry& registry);
void RegisterDecodeCompressedKernels(KernelRegistry& registry);
void RegisterLockKernels(KernelRegistry& registry);

// All of the above.
void RegisterHostKernels(KernelRegistry& registry);

}  // namespace millrace

#endif  // KERNELS_HOST_KERNELS_H_
