// SPDX-License-Identifier: Apache-2.0
// A build with CUDA; the machine it runs on may have none.
#include "base/errors.h"
#include "base/status_macros.h"
#include "device/cuda/driver/cuda_libraries.h"
#include "device/cuda/machine/cuda_device.h"
#include "device/cuda/machine/cuda_handles.h"
#include "device/cuda/trace/cuda_activity.h"
#include "jit/cuda_grid.h"
#include "kernels/cuda/cuda_kernels.h"
#include "runtime/gpu.h"

namespace millrace {
namespace {

StatusOr<CudaDevices*> Devices() {
  static const auto* const devices = new StatusOr<CudaDevices*>([]() -> StatusOr<CudaDevices*> {
    MR_ASSIGN_OR_RETURN(CudaDriver* const driver, LoadedCudaDriver());
    MR_RETURN_IF_ERROR(gpu::LoadedCudaLoops().status());
    return new CudaDevices(driver, LoadedCudaHandles(), LoadedCudaActivities());
  }());
  return *devices;
}

StatusOr<int> Count(const AcceleratorOptions& options) {
  MR_ASSIGN_OR_RETURN(CudaDevices* const devices, Devices());
  return devices->Count(options);
}

const DeviceFactory* Factory(const AcceleratorOptions& options) {
  const StatusOr<CudaDevices*> devices = Devices();
  return devices.ok() ? (*devices)->Factory(options) : nullptr;
}

void RegisterKernels(const OpRegistry& ops, KernelRegistry& registry) {
  RegisterCudaKernels(ops, registry);
  RegisterGpuFusedKernels(ops, registry);
}

}  // namespace

StatusOr<std::vector<GpuInfo>> FindGpus() {
  MR_ASSIGN_OR_RETURN(CudaDriver* const driver, LoadedCudaDriver());
  MR_ASSIGN_OR_RETURN(const std::vector<CudaProperties> gpus, FindGpus(driver));
  if (gpus.empty()) return errors::NotFound("NVIDIA's driver knows no GPU");
  // Without these there are GPUs, but no kernels.
  MR_RETURN_IF_ERROR(gpu::LoadedCudaLoops().status());
  MR_RETURN_IF_ERROR(GetCublasLt().status());
  MR_RETURN_IF_ERROR(GetCudnn().status());
  std::vector<GpuInfo> found;
  for (const CudaProperties& gpu : gpus) found.push_back({Describe(gpu), gpu.memory});
  return found;
}

const GpuSupport& BuiltInGpuSupport() {
  static constexpr GpuSupport kCuda = {&Count, &Factory, &RegisterKernels};
  return kCuda;
}

}  // namespace millrace
