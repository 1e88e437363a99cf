// SPDX-License-Identifier: Apache-2.0
// Which kernels exist, for which op, element types and device type.
#ifndef KERNELS_KERNEL_REGISTRY_H_
#define KERNELS_KERNEL_REGISTRY_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/string_map.h"
#include "kernels/kernel.h"

namespace millrace {

using KernelFactory = std::unique_ptr<Kernel> (*)(KernelConstruction& c);

template <typename K>
std::unique_ptr<Kernel> MakeKernel(KernelConstruction& c) {
  return std::make_unique<K>(c);
}

// One registration; built as a chain: KernelDef("MatMul").Device("CPU").Type<float>("T").
struct KernelDef {
  explicit KernelDef(std::string op_name) : op(std::move(op_name)) {}
  KernelDef& Device(std::string type) {
    device_type = std::move(type);
    return *this;
  }
  template <typename T>
  KernelDef& Type(std::string attr) {
    return Types(std::move(attr), {DataTypeOf<T>()});
  }
  KernelDef& Types(std::string attr, std::vector<DataType> allowed) {
    constraints.emplace_back(std::move(attr), std::move(allowed));
    return *this;
  }
  KernelDef& HostMemory(std::string arg) {
    host_memory_args.push_back(std::move(arg));
    return *this;
  }
  KernelDef& Priority(int p) {
    priority = p;
    return *this;
  }
  KernelDef& Label(std::string text) {
    label = std::move(text);
    return *this;
  }

  std::string op, device_type = "CPU", label;
  std::vector<std::pair<std::string, std::vector<DataType>>> constraints;
  std::vector<std::string> host_memory_args;
  int priority = 0;
  KernelFactory factory = nullptr;
};

// Filled once at start, then read-only and safe to share.
class KernelRegistry {
 public:
  void Register(KernelDef def, KernelFactory factory);

  // The registration of highest priority that fits; null if there is none.
  const KernelDef* Find(std::string_view op, std::string_view device_type,
                        const AttrMap& attrs) const;
  // NotFound "No OpKernel was registered to support Op 'X'..." listing what is registered.
  StatusOr<std::unique_ptr<Kernel>> Create(Device* device, const OpInfo* op,
                                           std::string_view node_name, const AttrMap& attrs,
                                           std::span<const DataType> input_types,
                                           std::span<const DataType> output_types) const;
  // For messages: "  device='CPU'; T in [DT_FLOAT]" per line, "  <no registered kernels>".
  std::string DescribeKernels(std::string_view op) const;
  std::vector<const KernelDef*> All() const;

 private:
  StringMap<std::vector<KernelDef>> kernels_;
};

}  // namespace millrace

#endif  // KERNELS_KERNEL_REGISTRY_H_
