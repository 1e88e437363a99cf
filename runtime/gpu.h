// GPUs, as far as this build has to do with them: gpu_cuda.cc with --config=cuda, gpu_none.cc
// without.
#ifndef RUNTIME_GPU_H_
#define RUNTIME_GPU_H_

#include <map>
#include <string>

#include "device/device_factory.h"
#include "device/gpu_options.h"
#include "kernels/kernel_registry.h"
#include "millrace/gpu.h"
#include "ops/op_registry.h"
#include "proto/config.pb.h"

namespace millrace {

// For a task whose configuration is `config`: adds the factory of devices "GPU", and in `counts`
// how many of them there are for it: at most what device_count["GPU"] says, or else GpuOptions,
// or else all. None without a driver, or in a build without CUDA. InvalidArgument for options that
// cannot be.
Status AddGpus(const pb::ConfigProto& config, DeviceFactories* factories,
               std::map<std::string, int>* counts);

// ---- what differs ----

// How many GPUs there are with these options; the error says what is missing.
StatusOr<int> CountGpus(const AcceleratorOptions& options);
// Null in a build without CUDA. After CountGpus was OK.
const DeviceFactory* GpuDeviceFactory(const AcceleratorOptions& options);
// Their kernels; after those of the CPU. Nothing in a build without CUDA.
void RegisterGpuKernels(const OpRegistry& ops, KernelRegistry& registry);

}  // namespace millrace

#endif  // RUNTIME_GPU_H_
