// SPDX-License-Identifier: Apache-2.0
// The table of what nvcc compiled, out of its component.
#include <dlfcn.h>

#include <cstdlib>
#include <string>

#include "base/component_file.h"
#include "base/errors.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/loops_component.h"

namespace millrace::gpu {
namespace {

constexpr char kPathVariable[] = "MILLRACE_CUDA_LOOPS";

StatusOr<const Loops*> Load() {
  if (const char* const named = std::getenv(kPathVariable); named != nullptr && *named != '\0') {
    return LoadCudaLoops(named);
  }
  const std::string path = FindComponentFile(kCudaLoopsLibrary, "kernels/cuda");
  if (path.empty()) {
    return errors::NotFound("there is no ", kCudaLoopsLibrary,
                            ", which holds the kernels of GPUs, beside the program or in ../lib: ",
                            "copy it there, or name it in ", kPathVariable);
  }
  return LoadCudaLoops(path);
}

}  // namespace

StatusOr<const Loops*> LoadCudaLoops(const std::string& path) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return errors::NotFound("the kernels of GPUs could not be loaded: ", dlerror());
  }
  const auto get = reinterpret_cast<GetCudaLoops>(dlsym(library, kCudaLoopsEntry));
  const Loops* const loops = get == nullptr ? nullptr : get(CudaLoopsVersion());
  if (loops == nullptr) {
    return errors::FailedPrecondition(path, " is of another version than this program: build, or ",
                                      "copy, both together");
  }
  return loops;
}

StatusOr<const Loops*> LoadedCudaLoops() {
  static const auto* const loops = new StatusOr<const Loops*>(Load());
  return *loops;
}

}  // namespace millrace::gpu
