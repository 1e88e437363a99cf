// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda_launcher.h"
#include "kernels/gpu/loops/index_loops.h"

namespace millrace::gpu {

template Outcome RunGather<CudaLauncher>(Queue, const GatherParams&);
template Outcome RunGatherNd<CudaLauncher>(Queue, const GatherNdParams&);
template Outcome RunScatter<CudaLauncher>(Queue, const ScatterParams&);
template int64_t ScatterScratchBytes<CudaLauncher>(int64_t);

}  // namespace millrace::gpu
