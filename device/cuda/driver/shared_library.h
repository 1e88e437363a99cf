// SPDX-License-Identifier: Apache-2.0
// Libraries that are looked for at run time: NVIDIA's, which a machine has or does not have.
#ifndef DEVICE_CUDA_DRIVER_SHARED_LIBRARY_H_
#define DEVICE_CUDA_DRIVER_SHARED_LIBRARY_H_

#include <string>
#include <string_view>
#include <vector>

#include "millrace/status.h"

namespace millrace {

// A library that was opened, and is never closed. A value.
class SharedLibrary {
 public:
  // Looks for `name` ("libcublas.so.13") in the folders of MILLRACE_CUDA_LIBRARY_PATH, then where
  // the system looks, then in lib64, lib and extras/CUPTI/lib64 of CUDA_HOME and of
  // /usr/local/cuda. NotFound with what was tried and why it failed, and with `what_to_do`
  // ("install NVIDIA's driver").
  static StatusOr<SharedLibrary> Open(const std::string& name, std::string_view what_to_do);

  // Null if it has no such function.
  void* Find(const char* function) const;
  // The error for a function that it should have.
  Status Lacks(std::string_view function) const;
  const std::string& path() const { return path_; }

 private:
  SharedLibrary(std::string path, void* handle) : path_(std::move(path)), handle_(handle) {}
  std::string path_;
  void* handle_;
};

}  // namespace millrace

#endif  // DEVICE_CUDA_DRIVER_SHARED_LIBRARY_H_
