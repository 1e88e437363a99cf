#include "kernels/cuda/cuda_launcher.h"
#include "kernels/gpu/random_loops.h"

namespace millrace::gpu {

template Outcome RunRandom<CudaLauncher>(Queue, const RandomParams&);

}  // namespace millrace::gpu
