// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda_launcher.h"
#include "kernels/gpu/loops/update_loops.h"

namespace millrace::gpu {

template Outcome RunUpdate<CudaLauncher>(Queue, const UpdateParams&);
template Outcome RunSparseUpdate<CudaLauncher>(Queue, const UpdateParams&);

}  // namespace millrace::gpu
