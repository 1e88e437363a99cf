// SPDX-License-Identifier: Apache-2.0
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

// What SessionOptions and ServerOptions say of GPUs, in fields of the same names.
struct GpuFields {
  int num_gpu_devices = -1;
  double gpu_memory_fraction = 0;
  bool gpu_allow_growth = false;
  std::string visible_gpus{};
  friend bool operator==(const GpuFields&, const GpuFields&) = default;
};
template <typename Options>
GpuFields GpuFieldsOf(const Options& options) {
  return {options.num_gpu_devices, options.gpu_memory_fraction, options.gpu_allow_growth,
          options.visible_gpus};
}
// As device_count["GPU"] and gpu_options of `config`; fields that say nothing change nothing there.
// InvalidArgument, with the name of the field, for what would be right on no machine, in a build
// without CUDA too.
Status ToConfig(const GpuFields& fields, pb::ConfigProto* config);

// The kernels of GPUs; after those of the CPU. Nothing in a build without CUDA.
void RegisterGpuKernels(const OpRegistry& ops, KernelRegistry& registry);

// What builds differ in.
struct GpuSupport {
  // How many GPUs there are with these options; the error says what is missing.
  StatusOr<int> (*count)(const AcceleratorOptions& options);
  // After `count` was OK.
  const DeviceFactory* (*factory)(const AcceleratorOptions& options);
  void (*register_kernels)(const OpRegistry& ops, KernelRegistry& registry);
};
const GpuSupport& BuiltInGpuSupport();
// Instead of what is built in, from now on; null: again that. Kernels are registered once.
void SetGpuSupportForTest(const GpuSupport* support);

}  // namespace millrace

#endif  // RUNTIME_GPU_H_
