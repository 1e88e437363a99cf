// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda_launcher.h"
#include "kernels/gpu/loops/unary_loops.h"

namespace millrace::gpu {

template Outcome RunUnary<CudaLauncher>(Queue, const UnaryParams&);

}  // namespace millrace::gpu
