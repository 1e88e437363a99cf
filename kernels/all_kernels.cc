// SPDX-License-Identifier: Apache-2.0
#include "kernels/all_kernels.h"

#include "kernels/collective/collective.h"
#include "kernels/control/control_flow.h"
#include "kernels/control/functional.h"
#include "kernels/control/send_recv.h"
#include "kernels/data/data_kernels.h"
#include "kernels/host_kernels.h"
#include "kernels/linear_algebra/cholesky_grad.h"
#include "kernels/linear_algebra/sparse_matmul.h"
#include "kernels/lists/variant_forms.h"
#include "kernels/math/elementwise_special.h"
#include "kernels/math/quantize.h"
#include "kernels/nn/ctc.h"
#include "kernels/nn/fused_pad_conv.h"
#include "kernels/nn/recurrent.h"
#include "kernels/nn/volume.h"
#include "kernels/ragged/ragged_kernels.h"
#include "kernels/random/distributions.h"
#include "kernels/signal/fft.h"
#include "kernels/sparse/edit_distance.h"
#include "kernels/training/staleness.h"

namespace millrace {
namespace {

void RegisterMathKernels(KernelRegistry& registry) {
  RegisterElementwiseUnaryKernels(registry);
  RegisterElementwiseFunctionKernels(registry);
  RegisterElementwiseBinaryKernels(registry);
  RegisterElementwiseDivisionKernels(registry);
  RegisterElementwiseCompareKernels(registry);
  RegisterElementwiseSpecialKernels(registry);
  RegisterQuantizeKernels(registry);
  RegisterFakeQuantizeKernels(registry);
  RegisterQuantizedNumberKernels(registry);
  RegisterCastKernels(registry);
  RegisterAddNKernels(registry);
  RegisterSelectKernels(registry);

  RegisterReductionKernels(registry);
  RegisterArgReduceKernels(registry);
  RegisterScanKernels(registry);
  RegisterSegmentKernels(registry);
  RegisterSparseSegmentKernels(registry);
  RegisterEinsumKernels(registry);
}

void RegisterArrayKernels(KernelRegistry& registry) {
  RegisterConstantKernels(registry);
  RegisterIdentityKernels(registry);
  RegisterShapeKernels(registry);
  RegisterSequenceKernels(registry);

  RegisterConcatSplitKernels(registry);
  RegisterSliceKernels(registry);
  RegisterLayoutKernels(registry);
  RegisterGatherKernels(registry);
  RegisterScatterKernels(registry);
  RegisterDataFormatKernels(registry);
  RegisterDiagonalKernels(registry);
  RegisterInPlaceKernels(registry);
  RegisterSpaceToBatchKernels(registry);
  RegisterResizeKernels(registry);
}

void RegisterRandomAndTextKernels(KernelRegistry& registry) {
  RegisterRandomKernels(registry);
  RegisterStatelessRandomKernels(registry);
  RegisterDistributionKernels(registry);
  RegisterBinomialKernels(registry);
  RegisterStatefulRandomKernels(registry);
  RegisterGammaGradientKernels(registry);
  RegisterTruncatedNormalKernels(registry);
  RegisterRandomCropKernels(registry);
  RegisterRaggedGatherKernels(registry);
  RegisterRaggedConversionKernels(registry);
  RegisterRaggedTensorKernels(registry);
  RegisterRaggedVariantKernels(registry);
  RegisterNGramKernels(registry);
  RegisterLoggingKernels(registry);
  RegisterStringKernels(registry);
}

void RegisterNetworkKernels(KernelRegistry& registry) {
  RegisterMatMulKernels(registry);
  RegisterBiasKernels(registry);
  RegisterActivationKernels(registry);
  RegisterSoftmaxKernels(registry);
  RegisterConvKernels(registry);
  RegisterPoolKernels(registry);
  RegisterVolumeConvKernels(registry);
  RegisterVolumePoolKernels(registry);
  RegisterBatchNormKernels(registry);
  RegisterTopKKernels(registry);
  RegisterFusedPadConvKernels(registry);
  RegisterSparseMatMulKernels(registry);
  RegisterCholeskyGradKernels(registry);
  RegisterLstmKernels(registry);
  RegisterGruKernels(registry);
  RegisterCtcLossKernels(registry);
  RegisterCtcDecodeKernels(registry);
  RegisterEditDistanceKernels(registry);
  RegisterFftKernels(registry);
}

}  // namespace

void RegisterAllKernels(KernelRegistry& registry) {
  RegisterMathKernels(registry);
  RegisterArrayKernels(registry);
  RegisterRandomAndTextKernels(registry);
  RegisterNetworkKernels(registry);

  RegisterStateKernels(registry);
  RegisterResourceVariableKernels(registry);
  RegisterVariableScatterKernels(registry);
  RegisterTrainingKernels(registry);
  RegisterStalenessKernels(registry);

  RegisterQueueKernels(registry);
  RegisterAccumulatorKernels(registry);
  RegisterSaveRestoreKernels(registry);
  RegisterHostKernels(registry);
  AddVariantForms();
  RegisterVariantMathKernels(registry);
  RegisterDataKernels(registry);

  RegisterControlFlowKernels(registry);
  RegisterCallKernels(registry);
  RegisterFunctionalKernels(registry);
  RegisterSendRecvKernels(registry);
  RegisterCollectiveKernels(registry);
}

}  // namespace millrace
