// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda_launcher.h"
#include "kernels/gpu/loops/reduce_loops.h"

namespace millrace::gpu {

template Outcome RunReduce<CudaLauncher>(Queue, const ReduceParams&);

}  // namespace millrace::gpu
