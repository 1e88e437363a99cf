// Every op and kernel of the engine.
#ifndef RUNTIME_REGISTRIES_H_
#define RUNTIME_REGISTRIES_H_

#include "device/device_factory.h"
#include "kernels/kernel_registry.h"
#include "ops/op_registry.h"

namespace millrace {

// Filled at the first call, constant afterwards, never destroyed. Thread-safe. The ops are
// those that graphs are built of, not another copy.
const OpRegistry& AllOps();
const KernelRegistry& AllKernels();
// Of every device that is not a CPU, nor a GPU (runtime/gpu.h).
DeviceFactories AllDeviceFactories();

}  // namespace millrace

#endif  // RUNTIME_REGISTRIES_H_
