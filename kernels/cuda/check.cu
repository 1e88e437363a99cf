// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda_launcher.h"
#include "kernels/gpu/loops/check_loops.h"

namespace millrace::gpu {

template Outcome RunCheck<CudaLauncher>(Queue, const CheckParams&);

}  // namespace millrace::gpu
