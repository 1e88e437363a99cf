// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda_launcher.h"
#include "kernels/gpu/loops/cast_loops.h"

namespace millrace::gpu {

template Outcome RunCast<CudaLauncher>(Queue, const CastParams&);

}  // namespace millrace::gpu
