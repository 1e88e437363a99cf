#include "runtime/registries.h"

#include "base/log.h"
#include "kernels/all_kernels.h"
#include "ops/all_ops.h"

namespace millrace {

const OpRegistry& AllOps() {
  static const OpRegistry* const ops = [] {
    auto* registry = new OpRegistry;
    const Status registered = RegisterAllOps(*registry);
    MR_CHECK(registered.ok());
    return registry;
  }();
  return *ops;
}

const KernelRegistry& AllKernels() {
  static const KernelRegistry* const kernels = [] {
    auto* registry = new KernelRegistry;
    RegisterAllKernels(*registry);
    return registry;
  }();
  return *kernels;
}

}  // namespace millrace
