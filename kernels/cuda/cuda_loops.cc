// The table of what nvcc compiled.
#include "kernels/cuda/cuda_kernels.h"

namespace millrace::gpu {

class CudaLauncher;

const Loops& CudaLoops() {
  static constexpr Loops kLoops = MakeLoops<CudaLauncher>();
  return kLoops;
}

}  // namespace millrace::gpu
