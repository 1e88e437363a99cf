// SPDX-License-Identifier: Apache-2.0
// What the kernels of every accelerator have in common: those that steer, carry or hand on
// values, whose work is on the host. Only the kernels that compute differ from one kind of device
// to the next.
#ifndef KERNELS_ACCELERATOR_ACCELERATOR_KERNELS_H_
#define KERNELS_ACCELERATOR_ACCELERATOR_KERNELS_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/string_map.h"
#include "kernels/kernel_registry.h"
#include "ops/op_registry.h"

namespace millrace {

// How an op's CPU registrations are taken over by a device.
struct Adoption {
  std::string device_type;
  KernelFactory factory = nullptr;
  std::vector<std::string> host_args;  // inputs and outputs in host memory; {"*"}: all
  // What the attributes that are types may be; those that `attr` is not are left as they are.
  std::vector<DataType> types;
  std::string attr;  // "": every attribute that is a type
  // For some attributes; the others of them, unless `types` says something, are left as they are.
  std::vector<std::pair<std::string, std::vector<DataType>>> types_of = {};
};

// The CPU's registrations, by op.
using CpuKernels = StringMap<std::vector<KernelDef>>;
CpuKernels FindCpuKernels(const KernelRegistry& registry);

// One registration for each that the CPU has, with as many types as both allow.
void Adopt(const OpRegistry& ops, const CpuKernels& cpu, const std::string& op,
           const Adoption& adoption, KernelRegistry& registry);

// For devices of that type: transfers, constants, variables' handles, reads and assignments,
// control flow, changes of shape, what is known from shapes alone, and int32 arithmetic, which
// (as in TensorFlow) stays in host memory because shapes and indices are computed by it.
void RegisterAcceleratorKernels(const OpRegistry& ops, const CpuKernels& cpu,
                                const std::string& device_type, KernelRegistry& registry);

// The CPU's kernel for the node, made for the construction's own device; null with an error
// recorded if there is none. Its allocations are host memory.
std::unique_ptr<Kernel> MakeCpuKernel(KernelConstruction& c);
// That kernel, run by the executor's thread: it must look at no element in device memory.
std::unique_ptr<Kernel> MakeHostRunKernel(KernelConstruction& c);

// All types that a device can hold.
std::vector<DataType> DeviceTypes();

}  // namespace millrace

#endif  // KERNELS_ACCELERATOR_ACCELERATOR_KERNELS_H_
