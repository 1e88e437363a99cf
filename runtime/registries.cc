// SPDX-License-Identifier: Apache-2.0
#include "runtime/registries.h"

#include "base/mutex.h"
#include "frontend/graph_builder.h"
#include "jit/fused_kernel.h"
#include "kernels/all_kernels.h"
#include "kernels/custom/custom_kernels.h"
#include "runtime/gpu.h"

namespace millrace {
namespace {

KernelRegistry& TheKernels() {
  static KernelRegistry* const kernels = [] {
    auto* registry = new KernelRegistry;
    RegisterAllKernels(*registry);
    RegisterFusedKernels(*registry);
    RegisterCustomKernels(*registry);
    RegisterGpuKernels(AllOps(), *registry);  // made of those above
    return registry;
  }();
  return *kernels;
}

struct AddedTypes {
  Mutex mu;
  DeviceFactories factories ABSL_GUARDED_BY(mu);
};

AddedTypes& Added() {
  static auto* const added = new AddedTypes;
  return *added;
}

}  // namespace

const OpRegistry& AllOps() { return BuiltinOps(); }

const KernelRegistry& AllKernels() { return TheKernels(); }

DeviceFactories AllDeviceFactories() {
  MutexLock lock(&Added().mu);
  return Added().factories;
}

void AddDeviceType(const DeviceFactory* factory,
                   void (*register_kernels)(const OpRegistry& ops, KernelRegistry& registry)) {
  register_kernels(AllOps(), TheKernels());
  MutexLock lock(&Added().mu);
  Added().factories.push_back(factory);
}

}  // namespace millrace
