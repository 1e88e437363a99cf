#include "runtime/registries.h"

#include "device/fake/fake_device.h"
#include "frontend/graph_builder.h"
#include "jit/accelerator_fused_kernel.h"
#include "jit/fused_kernel.h"
#include "kernels/all_kernels.h"
#include "kernels/custom/custom_kernels.h"
#include "kernels/fake/fake_kernels.h"
#include "runtime/gpu.h"

namespace millrace {

const OpRegistry& AllOps() { return BuiltinOps(); }

const KernelRegistry& AllKernels() {
  static const KernelRegistry* const kernels = [] {
    auto* registry = new KernelRegistry;
    RegisterAllKernels(*registry);
    RegisterFusedKernels(*registry);
    RegisterCustomKernels(*registry);
    RegisterFakeKernels(AllOps(), *registry);  // made of those above
    RegisterFakeFusedKernels(AllOps(), *registry);
    RegisterGpuKernels(AllOps(), *registry);
    return registry;
  }();
  return *kernels;
}

DeviceFactories AllDeviceFactories() { return {FakeDeviceFactory()}; }

}  // namespace millrace
