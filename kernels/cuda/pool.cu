// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda_launcher.h"
#include "kernels/gpu/loops/pool_loops.h"

namespace millrace::gpu {

template Outcome RunPool<CudaLauncher>(Queue, const PoolParams&);

}  // namespace millrace::gpu
