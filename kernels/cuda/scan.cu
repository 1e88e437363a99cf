#include "kernels/cuda/cuda_launcher.h"
#include "kernels/gpu/scan_loops.h"

namespace millrace::gpu {

template Outcome RunArg<CudaLauncher>(Queue, const ArgParams&);
template Outcome RunScan<CudaLauncher>(Queue, const ScanParams&);

}  // namespace millrace::gpu
