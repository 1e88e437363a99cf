// SPDX-License-Identifier: Apache-2.0
#include "kernels/kernel_registry.h"

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "base/exceptions.h"
#include "base/strings.h"

namespace millrace {
namespace {

// What Create was asked for in this thread, while it calls a factory.
thread_local const KernelRegistry* t_registry = nullptr;
thread_local const OpInfo* t_op = nullptr;

bool Allows(const std::vector<DataType>& allowed, DataType dtype) {
  return std::find(allowed.begin(), allowed.end(), dtype) != allowed.end();
}

bool Fits(const KernelDef& def, const AttrMap& attrs, const std::string& label) {
  if (def.label != label) return false;
  for (const auto& [name, allowed] : def.constraints) {
    const AttrValue* value = attrs.Find(name);
    if (value == nullptr) return false;
    if (const DataType* dtype = value->get_if<DataType>()) {
      if (!Allows(allowed, *dtype)) return false;
    } else if (const auto* list = value->get_if<std::vector<DataType>>()) {
      for (DataType dtype : *list) {
        if (!Allows(allowed, dtype)) return false;
      }
    } else if (value->get_if<AttrValue::EmptyList>() == nullptr) {
      return false;
    }
  }
  return true;
}

std::string ProtoName(DataType dtype) {
  std::string name = StrCat("DT_", DataTypeName(dtype));
  for (char& c : name) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return name;
}

std::string DescribeAttrs(const AttrMap& attrs) {
  std::vector<std::string> texts;
  for (const auto& [name, value] : attrs) {
    if (name.starts_with('_')) continue;
    const DataType* dtype = value.get_if<DataType>();
    texts.push_back(StrCat(name, "=", dtype != nullptr ? ProtoName(*dtype) : value.DebugString()));
  }
  return StrJoin(texts, ", ");
}

}  // namespace

// Used by kernels/kernel_source.h alone, which declares them.
const KernelRegistry* CurrentKernelRegistry();
const OpInfo* CurrentKernelOp();
const KernelRegistry* CurrentKernelRegistry() { return t_registry; }
const OpInfo* CurrentKernelOp() { return t_op; }

void KernelRegistry::Register(KernelDef def, KernelFactory factory) {
  def.factory = factory;
  auto it = kernels_.try_emplace(def.op).first;
  it->second.push_back(std::move(def));
}

const KernelDef* KernelRegistry::Find(std::string_view op, std::string_view device_type,
                                      const AttrMap& attrs) const {
  auto it = kernels_.find(op);
  if (it == kernels_.end()) return nullptr;
  const std::string label = attrs.GetOr<std::string>("_kernel", "");
  const KernelDef* best = nullptr;
  for (const KernelDef& def : it->second) {
    if (def.device_type != device_type || !Fits(def, attrs, label)) continue;
    if (best == nullptr || def.priority > best->priority) best = &def;
  }
  return best;
}

StatusOr<std::unique_ptr<Kernel>> KernelRegistry::Create(
    Device* device, const OpInfo* op, std::string_view node_name, const AttrMap& attrs,
    std::span<const DataType> input_types, std::span<const DataType> output_types) const {
  const std::string& op_name = op->def.name();
  const KernelDef* def = Find(op_name, device->type(), attrs);
  if (def == nullptr) {
    return errors::NotFound("No OpKernel was registered to support Op '", op_name,
                            "' used by {{node ", node_name, "}} with these attrs: [",
                            DescribeAttrs(attrs), "] on a device of type ", device->type(),
                            "\nRegistered kernels:\n", DescribeKernels(op_name));
  }
  KernelConstruction construction(device, op, node_name, &attrs, input_types, output_types);
  const KernelRegistry* const outer_registry = std::exchange(t_registry, this);
  const OpInfo* const outer_op = std::exchange(t_op, op);
  std::unique_ptr<Kernel> kernel;
  try {
    kernel = def->factory(construction);
  } catch (...) {
    construction.SetError(CaughtStatus());
  }
  t_registry = outer_registry;
  t_op = outer_op;
  if (!construction.status().ok()) {
    return Annotate(construction.status(), StrCat("\n\t [[{{node ", node_name, "}}]]"));
  }
  if (kernel == nullptr) {
    return errors::Internal("the factory of '", op_name, "' made no kernel for {{node ", node_name,
                            "}}");
  }
  return kernel;
}

std::string KernelRegistry::DescribeKernels(std::string_view op) const {
  auto it = kernels_.find(op);
  if (it == kernels_.end()) return "  <no registered kernels>\n";
  std::vector<std::string> lines;
  for (const KernelDef& def : it->second) {
    std::string line = StrCat("  device='", def.device_type, "'");
    if (!def.label.empty()) StrAppend(&line, "; label='", def.label, "'");
    for (const auto& [name, allowed] : def.constraints) {
      std::vector<std::string> types;
      for (DataType dtype : allowed) types.push_back(ProtoName(dtype));
      StrAppend(&line, "; ", name, " in [", StrJoin(types, ", "), "]");
    }
    lines.push_back(StrCat(line, "\n"));
  }
  std::sort(lines.begin(), lines.end());
  return StrJoin(lines, "");
}

std::vector<const KernelDef*> KernelRegistry::All() const {
  std::vector<const KernelDef*> all;
  for (const auto& [op, defs] : kernels_) {
    for (const KernelDef& def : defs) all.push_back(&def);
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const KernelDef* a, const KernelDef* b) { return a->op < b->op; });
  return all;
}

}  // namespace millrace
