// SPDX-License-Identifier: Apache-2.0
// Devices "/device:GPU:N".
#ifndef DEVICE_CUDA_MACHINE_CUDA_DEVICE_H_
#define DEVICE_CUDA_MACHINE_CUDA_DEVICE_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "device/cuda/machine/machine.h"
#include "device/device_factory.h"
#include "device/gpu_options.h"
#include "millrace/status.h"

namespace millrace {

// What the environment decides (docs/gpu.md). InvalidArgument for a value that means nothing.
struct CudaEnvironment {
  CudaMathOptions math;
  bool blocking = false;      // MILLRACE_CUDA_BLOCKING
  bool exact_memory = false;  // MILLRACE_CUDA_EXACT_MEMORY
};
StatusOr<CudaEnvironment> CudaEnvironmentOf(const std::function<const char*(const char*)>& getenv);

// The GPUs of a driver, as devices. Machines are shared by all tasks of the process that ask the
// same Cuda: device memory is taken once, in the way that the first of them wants. Thread-safe.
class CudaDevices {
 public:
  // `activities`: what traces hold of the devices; null: nothing.
  CudaDevices(CudaDriver* driver, const CudaHandles& handles, CudaActivities* activities = nullptr);
  ~CudaDevices();

  // How many devices there are with these options. InvalidArgument for options that cannot be.
  StatusOr<int> Count(const AcceleratorOptions& options) const;
  // Opens them with these options; lives as long as this.
  const DeviceFactory* Factory(const AcceleratorOptions& options);

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

// "device: 0, name: NVIDIA H200, pci bus id: 0000:1b:00.0, compute capability: 9.0".
std::string Describe(const CudaProperties& gpu);
// Of all that the driver knows.
StatusOr<std::vector<CudaProperties>> FindGpus(CudaDriver* driver);

}  // namespace millrace

#endif  // DEVICE_CUDA_MACHINE_CUDA_DEVICE_H_
