// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda_launcher.h"
#include "kernels/gpu/loops/binary_loops.h"

namespace millrace::gpu {

template Outcome RunBinary<CudaLauncher>(Queue, const BinaryParams&);
template Outcome RunCompare<CudaLauncher>(Queue, const BinaryParams&);
template Outcome RunBinaryGrad<CudaLauncher>(Queue, const BinaryParams&);

}  // namespace millrace::gpu
