// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda_launcher.h"
#include "kernels/gpu/loops/image_loops.h"

namespace millrace::gpu {

template Outcome RunMirrorPad<CudaLauncher>(Queue, const MirrorParams&);
template Outcome RunMirrorPadGrad<CudaLauncher>(Queue, const MirrorParams&);
template Outcome RunLrn<CudaLauncher>(Queue, const LrnParams&);
template Outcome RunLrnGrad<CudaLauncher>(Queue, const LrnParams&);

}  // namespace millrace::gpu
