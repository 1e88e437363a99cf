// SPDX-License-Identifier: Apache-2.0
// Kernels of the CPU that run on behalf of an accelerator, and how they are registered.
#include <algorithm>
#include <string_view>
#include <utility>

#include "base/errors.h"
#include "kernels/accelerator/accelerator_kernels.h"
#include "kernels/capturable_kernel.h"
#include "kernels/kernel_context.h"
#include "kernels/kernel_source.h"
#include "tensor/allocator.h"

namespace millrace {
namespace {

// Of the ops with state, those that only look at where a variable lies and what its shape is.
bool OnlyRefersToVariables(std::string_view op) {
  return op == "VarHandleOp" || op == "ReadVariableOp" || op == "VariableShape";
}

class HostRunKernel final : public Kernel, public CapturableKernel {
 public:
  HostRunKernel(const KernelConstruction& c, std::unique_ptr<Kernel> inner)
      : Kernel(c), inner_(std::move(inner)) {}
  bool IsExpensive() const override { return inner_->IsExpensive(); }
  Traits capture_traits() const override {
    const bool keeps_state = def().is_stateful() && !OnlyRefersToVariables(def().name());
    return {.obstacle = keeps_state ? "it has a state, or an effect, on the host" : nullptr};
  }
  Status Compute(KernelContext& ctx) override {
    Allocator* const before = ctx.allocator();
    ctx.set_allocator(HostAllocator());
    Status status = inner_->Compute(ctx);
    ctx.set_allocator(before);
    return status;
  }

 private:
  const std::unique_ptr<Kernel> inner_;
};

bool IsTypeAttr(const std::string& kind) { return kind == "type" || kind == "list(type)"; }

std::vector<DataType> Common(const std::vector<DataType>& a, const std::vector<DataType>& b) {
  std::vector<DataType> both;
  for (const DataType type : a) {
    if (std::find(b.begin(), b.end(), type) != b.end()) both.push_back(type);
  }
  return both;
}

// Null: the attribute is left as it is.
const std::vector<DataType>* TypesFor(const Adoption& adoption, const std::string& attr) {
  for (const auto& [name, types] : adoption.types_of) {
    if (name == attr) return &types;
  }
  if (adoption.types.empty()) return nullptr;
  return adoption.attr.empty() || adoption.attr == attr ? &adoption.types : nullptr;
}

}  // namespace

std::vector<DataType> DeviceTypes() {
  std::vector<DataType> types;
  for (int i = 1; i < 64; ++i) {
    const auto type = static_cast<DataType>(i);
    if (DataTypeSize(type) > 0 && IsMemcpyable(type)) types.push_back(type);
  }
  return types;
}

std::unique_ptr<Kernel> MakeCpuKernel(KernelConstruction& c) {
  const KernelDef* const def = CurrentKernelRegistry()->Find(c.def().name(), "CPU", c.attrs());
  if (def == nullptr) {
    c.SetError(errors::NotFound("the CPU has no kernel for ", c.def().name()));
    return nullptr;
  }
  std::unique_ptr<Kernel> kernel = def->factory(c);
  if (kernel != nullptr && kernel->IsAsync()) {
    c.SetError(errors::Unimplemented("the CPU's kernel for ", c.def().name(),
                                     " is asynchronous: no device can have it run on the host"));
  }
  return kernel;
}

std::unique_ptr<Kernel> MakeHostRunKernel(KernelConstruction& c) {
  std::unique_ptr<Kernel> inner = MakeCpuKernel(c);
  if (inner == nullptr) return nullptr;
  return std::make_unique<HostRunKernel>(c, std::move(inner));
}

CpuKernels FindCpuKernels(const KernelRegistry& registry) {
  CpuKernels found;
  for (const KernelDef* def : registry.All()) {
    if (def->device_type == "CPU") found[def->op].push_back(*def);
  }
  return found;
}

void Adopt(const OpRegistry& ops, const CpuKernels& cpu, const std::string& op,
           const Adoption& adoption, KernelRegistry& registry) {
  const OpInfo* const info = ops.Find(op);
  const auto found = cpu.find(op);
  if (info == nullptr || found == cpu.end()) return;
  for (KernelDef def : found->second) {
    def.device_type = adoption.device_type;
    def.host_memory_args = adoption.host_args;
    if (adoption.host_args == std::vector<std::string>{"*"}) {
      def.host_memory_args.clear();
      for (const auto& arg : info->def.input_arg()) def.HostMemory(arg.name());
      for (const auto& arg : info->def.output_arg()) def.HostMemory(arg.name());
    }
    bool possible = true;
    for (const auto& attr : info->def.attr()) {
      if (!IsTypeAttr(attr.type())) continue;
      const std::vector<DataType>* const types = TypesFor(adoption, attr.name());
      if (types == nullptr) continue;
      const auto known =
          std::find_if(def.constraints.begin(), def.constraints.end(),
                       [&](const auto& constraint) { return constraint.first == attr.name(); });
      if (known == def.constraints.end()) {
        def.Types(attr.name(), *types);
        continue;
      }
      known->second = Common(known->second, *types);
      possible = possible && !known->second.empty();
    }
    if (possible) registry.Register(def, adoption.factory);
  }
}

}  // namespace millrace
