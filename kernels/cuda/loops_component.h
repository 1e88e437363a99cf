// SPDX-License-Identifier: Apache-2.0
// How a program and libmillrace_cuda.so, which holds everything that nvcc compiled, meet: code for
// several architectures is large, and is loaded by whoever opens a GPU.
#ifndef KERNELS_CUDA_LOOPS_COMPONENT_H_
#define KERNELS_CUDA_LOOPS_COMPONENT_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/gpu/loops/loops.h"
#include "millrace/status.h"

namespace millrace::gpu {

inline constexpr char kCudaLoopsLibrary[] = "libmillrace_cuda.so";
inline constexpr char kCudaLoopsEntry[] = "millrace_cuda_loops";

// Null for another version.
using GetCudaLoops = const Loops* (*)(uint64_t version);

// Of the parameters of all loops: a component and a program that were built of different ones do
// not work together. (FNV-1a.)
constexpr uint64_t CudaLoopsVersion() {
  uint64_t hash = 0xcbf29ce484222325;
  const auto mix = [&hash](uint64_t value) { hash = (hash ^ value) * 0x100000001b3; };
  mix(1);  // of what a size does not tell
#define MR_GPU_MIX(Name, Params)                                                   \
  for (const char c : std::string_view(#Name)) mix(static_cast<unsigned char>(c)); \
  mix(sizeof(Params));
  MR_GPU_LOOPS(MR_GPU_MIX)
#undef MR_GPU_MIX
  return hash;
}

// What the component at `path` holds, for the life of the process. NotFound if it cannot be loaded,
// FailedPrecondition if it is something else.
StatusOr<const Loops*> LoadCudaLoops(const std::string& path);

}  // namespace millrace::gpu

#endif  // KERNELS_CUDA_LOOPS_COMPONENT_H_
