// SPDX-License-Identifier: Apache-2.0
#include "training/checkpoint/save_nodes.h"

#include <map>

#include "base/random.h"
#include "base/strings.h"
#include "device/device_name.h"
#include "io/tensor_slice.h"
#include "millrace/distributed_values.h"
#include "millrace/math.h"
#include "millrace/ops.h"
#include "training/checkpoint/file_sizes.h"

namespace millrace {
namespace {

Tensor Texts(const std::vector<std::string>& texts) {
  return Tensor::FromValues<std::string>(texts, Shape({static_cast<int64_t>(texts.size())}));
}

template <typename Item, typename DeviceOf>
std::map<std::string, std::vector<Item>> ByDevice(std::span<const Item> items, DeviceOf device_of) {
  std::map<std::string, std::vector<Item>> parts;
  for (const Item& item : items) parts[FileDevice(device_of(item))].push_back(item);
  return parts;
}

// The `i`th of the nodes of one name, and what is named after it.
std::string Nth(const char* op, int i) { return i == 0 ? op : StrCat(op, "_", i); }

Output TextsFor(const Scope& scope, const std::string& op, const char* argument,
                const std::vector<std::string>& texts) {
  return Constant(scope.WithOpName(StrCat(op, "/", argument)), Texts(texts));
}

Operation WriteItems(const Scope& scope, int part, const Output& prefix,
                     std::span<const SaveItem> items) {
  std::vector<std::string> keys, slices;
  std::vector<Input> values;
  for (const SaveItem& item : items) {
    keys.push_back(item.key);
    slices.push_back(item.slice);
    values.emplace_back(item.value);
  }
  const std::string op = Nth("SaveV2", part);
  const Output names = TextsFor(scope, op, "tensor_names", keys);
  return ops::SaveV2(scope, prefix, names, TextsFor(scope, op, "shape_and_slices", slices), values);
}

// A copy of a name that is there when `ops` are done.
Output NameAfter(const Scope& scope, const Output& name, std::vector<Operation> ops) {
  return ops::Identity(scope.WithControlDependencies(ops), name);
}

// What one task writes into one file.
struct WritePart {
  std::string device;
  std::vector<SaveItem> items;
};

std::vector<WritePart> PartsOf(const Scope& scope, std::span<const SaveItem> items,
                               const CheckpointLayout& layout) {
  std::vector<WritePart> parts;
  for (const auto& [device, of_device] :
       ByDevice<SaveItem>(items, [](const SaveItem& i) { return i.device; })) {
    const std::string& writer = layout.io_device.empty() ? device : layout.io_device;
    if (layout.max_file_bytes == 0) {
      parts.push_back({writer, of_device});
      continue;
    }
    for (std::vector<SaveItem>& file : SplitBySize(scope, of_device, layout.max_file_bytes)) {
      parts.push_back({writer, std::move(file)});
    }
  }
  return parts;
}

Output SaveInParts(const Scope& scope, const Output& filename, std::span<const SaveItem> items,
                   const CheckpointLayout& layout, std::string* folder) {
  const std::vector<WritePart> parts = PartsOf(scope, items, layout);
  const Scope cpu = scope.WithDevice("/device:CPU:*");
  // Savers of other jobs that write under the same prefix do not meet in one folder.
  *folder = StrCat("_temp_", Hex16(RandomId()), Hex16(RandomId()));
  const Output part_prefix = ops::StringJoin(cpu, {filename, Input(StrCat(*folder, "/part"))});
  const Output num_parts = Constant(scope.WithOpName("num_shards"),
                                    Tensor::Scalar<int32_t>(static_cast<int32_t>(parts.size())));
  std::vector<Input> names;
  std::vector<Operation> written;
  int part = 0;
  for (const auto& [device, of_device] : parts) {
    const Scope here = scope.WithDevice(device);
    const Output number = Constant(here.WithOpName(StrCat(Nth("ShardedFilename", part), "/shard")),
                                   Tensor::Scalar<int32_t>(part));
    const Output name = ops::ShardedFilename(here, part_prefix, number, num_parts);
    const Operation write = WriteItems(here, part++, name, of_device);
    written.push_back(
        NameAfter(here.WithOpName("control_dependency").ColocateWith(name), name, {write}));
    names.emplace_back(name);
  }
  const Scope last = scope.WithDevice(parts.empty() ? "" : parts.back().device);
  const Output prefixes = ops::Pack(
      last.WithOpName("MergeV2Checkpoints/checkpoint_prefixes").WithControlDependencies(written),
      names);
  const Operation merge = ops::MergeV2Checkpoints(last, prefixes, filename);
  written.push_back(merge);
  return NameAfter(last, filename, written);
}

// What is given to the variable instead of the tensor as it was read.
Output Fitting(const Scope& scope, const Variable& variable, const Output& read, bool reshape) {
  const auto shape = variable.shape().AsShape();
  if (!reshape || !shape) return read;
  const std::vector<int32_t> dims(shape->dims().begin(), shape->dims().end());
  return ops::Reshape(scope, read, Tensor::FromValues<int32_t>(dims, Shape({shape->rank()})));
}

Operation Give(const Scope& scope, const Variable& variable, const Output& read, bool reshape) {
  const Scope beside = scope.ColocateWith(variable.handle);
  const Output value = Fitting(scope, variable, read, reshape);
  if (!CopiesOf(variable).empty()) return AssignWhole(scope, variable, value);
  if (!variable.is_resource()) return ops::Assign(beside, variable.handle, value);
  // A resource that has no value yet would take any shape.
  const Output checked = ops::EnsureShape(
      scope.WithDevice(FileDevice(variable.handle.op().device())), value, variable.shape());
  return ops::AssignVariableOp(beside, variable.handle, checked);
}

// What a task reads, before any of it is given to variables.
struct ReadPart {
  std::string device;
  std::vector<SavedVariable> variables;
  std::vector<Output> values;
};

ReadPart ReadItems(const Scope& reading, int part, const Output& filename,
                   std::span<const SavedVariable> variables) {
  std::vector<std::string> keys, slices;
  std::vector<DataType> dtypes;
  for (const SavedVariable& v : variables) {
    keys.push_back(v.key);
    slices.push_back(v.slice);
    dtypes.push_back(v.variable.dtype());
  }
  const std::string op = Nth("RestoreV2", part);
  const Output names = TextsFor(reading, op, "tensor_names", keys);
  return {"",
          {variables.begin(), variables.end()},
          ops::RestoreV2(reading, filename, names,
                         TextsFor(reading, op, "shape_and_slices", slices), dtypes)};
}

std::vector<Operation> GiveAll(const Scope& scope, const ReadPart& part, bool reshape) {
  std::vector<Operation> given;
  for (std::size_t i = 0; i < part.values.size(); ++i) {
    given.push_back(Give(scope, part.variables[i].variable, part.values[i], reshape));
  }
  return given;
}

Operation AllOf(const Scope& scope, const char* name, std::span<const Operation> ops) {
  return ::millrace::Group(scope.WithOpName(name), ops);
}

}  // namespace

std::string FileDevice(const std::string& device) {
  StatusOr<DeviceName> name = DeviceName::Parse(device);
  if (!name.ok()) return device;
  name->type = "CPU";
  name->id = 0;
  return name->ToString();
}

SaveItem ItemOf(const SavedVariable& v) {
  Output value = v.variable.is_resource() ? v.variable.read : v.variable.handle;
  if (!CopiesOf(v.variable).empty()) value = WholeValue(RootScopeOf(value), v.variable);
  return {v.key, v.slice, value, v.variable.handle.op().device(), v.variable.shape()};
}

Output MakeFilename(const Scope& scope, const std::string& filename) {
  const Output input = Constant(scope.WithOpName("filename/input"), Tensor::String(filename));
  const Output name =
      ops::PlaceholderWithDefault(scope.WithOpName("filename"), input, PartialShape(Shape()));
  return ops::PlaceholderWithDefault(scope.WithOpName("Const"), name, PartialShape(Shape()));
}

Output MakeSave(const Scope& scope, const Output& filename, std::span<const SaveItem> items,
                bool sharded, std::string* folder, const CheckpointLayout& layout) {
  if (sharded) return SaveInParts(scope, filename, items, layout, folder);
  const Operation write = WriteItems(scope, 0, filename, items);
  return NameAfter(scope.WithOpName("control_dependency").ColocateWith(filename), filename,
                   {write});
}

namespace {

std::vector<Operation> RestoreInTurn(const Scope& scope, const Output& filename,
                                     std::span<const SavedVariable> variables, bool reshape) {
  std::vector<Operation> all;
  Scope after = scope;
  int part = 0;
  for (const SavedVariable& v : variables) {
    const Scope reading = after.WithDevice(FileDevice(v.variable.handle.op().device()));
    const ReadPart read = ReadItems(reading, part++, filename, std::span(&v, 1));
    for (const Operation& given : GiveAll(scope, read, reshape)) {
      all.push_back(given);
      after = scope.WithControlDependencies({given});
    }
  }
  return all;
}

std::vector<Operation> RestoreInParts(const Scope& scope, const Output& filename,
                                      std::span<const SavedVariable> variables,
                                      const RestoreOptions& options) {
  const auto by_device = ByDevice<SavedVariable>(
      variables, [](const SavedVariable& v) { return v.variable.handle.op().device(); });
  std::vector<ReadPart> parts;
  std::vector<Operation> reads;
  for (const auto& [device, of_device] : by_device) {
    const std::string& reader = options.io_device.empty() ? device : options.io_device;
    parts.push_back(
        ReadItems(scope.WithDevice(reader), static_cast<int>(parts.size()), filename, of_device));
    parts.back().device = device;
    if (!parts.back().values.empty()) reads.push_back(parts.back().values[0].op());
  }
  // If one task cannot read its part, no variable of another one changes.
  const Scope giving = parts.size() > 1 ? scope.WithControlDependencies(reads) : scope;
  std::vector<Operation> all;
  for (const ReadPart& part : parts) {
    all.push_back(AllOf(scope.WithDevice(part.device), "restore_shard",
                        GiveAll(giving, part, options.reshape)));
  }
  return all;
}

}  // namespace

Operation MakeRestore(const Scope& scope, const Output& filename,
                      std::span<const SavedVariable> variables, const RestoreOptions& options) {
  std::vector<Operation> all;
  if (options.sequentially) {
    all = RestoreInTurn(scope, filename, variables, options.reshape);
  } else if (options.sharded) {
    all = RestoreInParts(scope, filename, variables, options);
  } else {
    const ReadPart read = ReadItems(scope.WithDevice("/device:CPU:0"), 0, filename, variables);
    all = GiveAll(scope, read, options.reshape);
  }
  return AllOf(scope, "restore_all", all);
}

}  // namespace millrace
