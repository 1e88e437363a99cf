// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda_launcher.h"
#include "kernels/gpu/loops/random_loops.h"

namespace millrace::gpu {

template Outcome RunRandom<CudaLauncher>(Queue, const RandomParams&);

}  // namespace millrace::gpu
