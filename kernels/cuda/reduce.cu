#include "kernels/cuda/cuda_launcher.h"
#include "kernels/gpu/reduce_loops.h"

namespace millrace::gpu {

template Outcome RunReduce<CudaLauncher>(Queue, const ReduceParams&);
template Outcome RunArg<CudaLauncher>(Queue, const ArgParams&);
template Outcome RunScan<CudaLauncher>(Queue, const ScanParams&);

}  // namespace millrace::gpu
