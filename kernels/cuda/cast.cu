#include "kernels/cuda/cuda_launcher.h"
#include "kernels/gpu/cast_loops.h"

namespace millrace::gpu {

template Outcome RunCast<CudaLauncher>(Queue, const CastParams&);

}  // namespace millrace::gpu
