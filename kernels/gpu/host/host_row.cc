// SPDX-License-Identifier: Apache-2.0
#include "kernels/gpu/host/host_launcher.h"
#include "kernels/gpu/loops/batch_norm_loops.h"
#include "kernels/gpu/loops/row_loops.h"
#include "kernels/gpu/loops/top_k_loops.h"

namespace millrace::gpu {

template Outcome RunSoftmax<HostLauncher>(Queue, const SoftmaxParams&);
template Outcome RunCrossEntropy<HostLauncher>(Queue, const CrossEntropyParams&);
template Outcome RunInTopK<HostLauncher>(Queue, const InTopKParams&);
template Outcome RunTopK<HostLauncher>(Queue, const TopKParams&);
template Outcome RunBatchNorm<HostLauncher>(Queue, const BatchNormParams&);
template Outcome RunBatchNormGrad<HostLauncher>(Queue, const BatchNormParams&);
template Outcome RunSpread<HostLauncher>(Queue, const SpreadParams&);

}  // namespace millrace::gpu
