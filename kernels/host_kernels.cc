// SPDX-License-Identifier: Apache-2.0
#include "kernels/host_kernels.h"

namespace millrace {

void RegisterHostKernels(KernelRegistry& registry) {
  RegisterStackKernels(registry);
  RegisterTensorArrayKernels(registry);
  RegisterTensorListKernels(registry);
  RegisterOptionalKernels(registry);
  RegisterLookupKernels(registry);
  RegisterBarrierKernels(registry);
  RegisterStagingKernels(registry);
  RegisterStagingMapKernels(registry);
  RegisterSessionTensorKernels(registry);
  RegisterVariablePartKernels(registry);
  RegisterRearrangeKernels(registry);
  RegisterMirrorPadKernels(registry);
  RegisterSamplingKernels(registry);
  RegisterLinearAlgebraKernels(registry);
  RegisterFingerprintKernels(registry);
  RegisterTextKernels(registry);
  RegisterUnicodeKernels(registry);
  RegisterParseKernels(registry);
  RegisterParseExampleKernels(registry);
  RegisterReaderKernels(registry);
  RegisterFileKernels(registry);
  RegisterSummaryKernels(registry);
  RegisterSparseKernels(registry);
  RegisterImageSummaryKernels(registry);
  RegisterDecodeImageKernels(registry);
  RegisterEncodeImageKernels(registry);
  RegisterImageColorKernels(registry);
  RegisterImageRegionKernels(registry);
  RegisterCountingKernels(registry);
  RegisterSparseMathKernels(registry);
  RegisterPackedSparseKernels(registry);
  RegisterGeneratorStateKernels(registry);
  RegisterAudioSummaryKernels(registry);
  RegisterDecodeCompressedKernels(registry);
  RegisterLockKernels(registry);
}

}  // namespace millrace
