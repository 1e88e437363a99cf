// SPDX-License-Identifier: Apache-2.0
// The entry of libmillrace_cuda.so.
#include "kernels/cuda/loops_component.h"

namespace millrace::gpu {

class CudaLauncher;

namespace {
constexpr Loops kLoops = MakeLoops<CudaLauncher>();
}  // namespace

}  // namespace millrace::gpu

extern "C" __attribute__((visibility("default"))) const millrace::gpu::Loops* millrace_cuda_loops(
    uint64_t version) {
  return version == millrace::gpu::CudaLoopsVersion() ? &millrace::gpu::kLoops : nullptr;
}
