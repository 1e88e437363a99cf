// SPDX-License-Identifier: Apache-2.0
// Every op and kernel of the engine.
#ifndef RUNTIME_REGISTRIES_H_
#define RUNTIME_REGISTRIES_H_

#include "device/device_factory.h"
#include "kernels/kernel_registry.h"
#include "ops/op_registry.h"

namespace millrace {

// Filled at the first call, constant afterwards but for AddDeviceType, never destroyed.
// Thread-safe. The ops are those that graphs are built of, not another copy.
const OpRegistry& AllOps();
const KernelRegistry& AllKernels();
// Of every device that is not a CPU, nor a GPU (runtime/gpu.h): of the types that were added.
DeviceFactories AllDeviceFactories();

// Adds a type of device that not every program has, with its kernels, to both. For the start of a
// program: no other thread may use what AllKernels() returns meanwhile, and tasks that were made
// before have none of these devices.
void AddDeviceType(const DeviceFactory* factory,
                   void (*register_kernels)(const OpRegistry& ops, KernelRegistry& registry));

}  // namespace millrace

#endif  // RUNTIME_REGISTRIES_H_
