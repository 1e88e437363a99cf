#include "runtime/registries.h"

#include "graph/graph_builder.h"
#include "jit/fused_kernel.h"
#include "kernels/all_kernels.h"

namespace millrace {

const OpRegistry& AllOps() { return BuiltinOps(); }

const KernelRegistry& AllKernels() {
  static const KernelRegistry* const kernels = [] {
    auto* registry = new KernelRegistry;
    RegisterAllKernels(*registry);
    RegisterFusedKernels(*registry);
    return registry;
  }();
  return *kernels;
}

}  // namespace millrace
