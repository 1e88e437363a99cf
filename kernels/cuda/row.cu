// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda_launcher.h"
#include "kernels/gpu/loops/batch_norm_loops.h"
#include "kernels/gpu/loops/row_loops.h"
#include "kernels/gpu/loops/top_k_loops.h"

namespace millrace::gpu {

template Outcome RunSoftmax<CudaLauncher>(Queue, const SoftmaxParams&);
template Outcome RunCrossEntropy<CudaLauncher>(Queue, const CrossEntropyParams&);
template Outcome RunInTopK<CudaLauncher>(Queue, const InTopKParams&);
template Outcome RunTopK<CudaLauncher>(Queue, const TopKParams&);
template Outcome RunBatchNorm<CudaLauncher>(Queue, const BatchNormParams&);
template Outcome RunBatchNormGrad<CudaLauncher>(Queue, const BatchNormParams&);
template Outcome RunSpread<CudaLauncher>(Queue, const SpreadParams&);

}  // namespace millrace::gpu
