// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda_launcher.h"
#include "kernels/gpu/loops/window_loops.h"

namespace millrace::gpu {

template Outcome RunConv<CudaLauncher>(Queue, const ConvParams&);
template Outcome RunMatMul<CudaLauncher>(Queue, const MatMulParams&);

}  // namespace millrace::gpu
