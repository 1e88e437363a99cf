// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda_launcher.h"
#include "kernels/gpu/loops/arg_loops.h"
#include "kernels/gpu/loops/scan_loops.h"

namespace millrace::gpu {

template Outcome RunArg<CudaLauncher>(Queue, const ArgParams&);
template Outcome RunScan<CudaLauncher>(Queue, const ScanParams&);

}  // namespace millrace::gpu
