// SPDX-License-Identifier: Apache-2.0
#include "tests/hostile_kernels/hostile_case.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <string_view>
#include <utility>

#include "base/cancellation.h"
#include "base/errors.h"
#include "base/notification.h"
#include "base/strings.h"
#include "device/resource_manager.h"
#include "kernels/kernel_context.h"
#include "kernels/run_kernel.h"
#include "ops/shape_inference.h"
#include "tests/hostile_kernels/hostile_values.h"

namespace millrace::testing {
namespace {

constexpr std::chrono::milliseconds kPatience(20);
constexpr std::chrono::seconds kMostPatience(20);

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// The op that makes what the input of type resource of another is a handle of.
const char* MakerOfHandles(std::string_view op) {
  struct Maker {
    std::string_view part;
    const char* op;
  };
  static constexpr Maker kMakers[] = {{"Queue", "FIFOQueueV2"},
                                      {"Table", "MutableHashTableOfTensorsV2"},
                                      {"TensorArray", "TensorArrayV3"},
                                      {"Stack", "StackV2"},
                                      {"Accumulator", "ResourceConditionalAccumulator"},
                                      {"MultiDeviceIterator", "MultiDeviceIterator"},
                                      {"Iterator", "IteratorV2"},
                                      {"Reader", "IdentityReaderV2"}};
  for (const Maker& maker : kMakers) {
    if (Contains(op, maker.part)) return maker.op;
  }
  return "VarHandleOp";
}

// What a run leaves.
struct Outcome {
  Notification done;
  Status status;
  static void Record(void* arg, Status status) {
    auto* self = static_cast<Outcome*>(arg);
    self->status = std::move(status);
    self->done.Notify();
  }
};

Status RunNode(const HostileWorld& world, const HostileCase& node,
               const std::function<void(const std::string&)>& fault,
               std::vector<EdgeValue>* outputs) {
  const auto made = world.kernels->Create(world.device, node.op, "node", node.attrs,
                                          node.input_types, node.output_types);
  if (!made.ok()) return made.status();
  Kernel* const kernel = made->get();
  std::vector<EdgeValue> inputs(node.inputs.size());
  std::vector<Tensor> variables = node.inputs;
  std::vector<Mutex> locks(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (IsRefType(node.input_types[i])) {
      inputs[i].ref = &variables[i];
      inputs[i].ref_mu = &locks[i];
      inputs[i].kind = EdgeValue::Kind::kRef;
    } else {
      inputs[i].value = node.inputs[i];
      inputs[i].kind = EdgeValue::Kind::kValue;
    }
  }
  outputs->resize(node.output_types.size());
  CancellationManager cancellation;
  StepEnv env;
  env.step_id = 1;
  env.step_container = "__per_step_1";
  env.cancellation = &cancellation;
  KernelContext ctx(kernel, world.device, &env, inputs, *outputs, node.output_types);
  ctx.set_allocator(world.memory);
  Status status;
  if (kernel->IsAsync()) {
    Outcome outcome;
    RunKernelAsync(kernel, ctx, {&Outcome::Record, &outcome});
    if (!outcome.done.WaitUntil(DeadlineAfter(kPatience))) {
      cancellation.StartCancel(errors::Cancelled("the case has waited long enough"));
      if (!outcome.done.WaitUntil(DeadlineAfter(kMostPatience))) {
        fault("the kernel does not end when it is cancelled");
        std::abort();  // it holds what is in this frame
      }
    }
    status = outcome.status;
  } else {
    status = RunKernel(kernel, ctx);
  }
  for (EdgeValue& output : *outputs) {
    if (output.kind != EdgeValue::Kind::kRef || output.ref == nullptr) continue;
    output.value = *output.ref;  // the variable may be of this frame
    output.ref = nullptr;
  }
  return status;
}

// A handle, or a list or data set, that another op makes; nothing if it refuses to.
Tensor MakeByOp(const HostileWorld& world, const std::string& maker, const HostileCase& reader,
                HostileValues* values) {
  const OpInfo* const op = world.ops->Find(maker);
  HostileCase made;
  for (int tries = 0; op != nullptr && tries < 4; ++tries) {
    if (!MakeHostileCase(world, *op, values->Next(), &made)) continue;
    // What both are of the same type in.
    for (const char* name : {"dtype", "T", "element_dtype", "key_dtype", "value_dtype"}) {
      const AttrValue* const type = reader.attrs.Find(name);
      if (type == nullptr || type->get_if<DataType>() == nullptr) continue;
      for (const char* own : {"dtype", "element_dtype", "elem_type"}) {
        if (made.attrs.Has(own)) made.attrs.Set(own, *type);
      }
      if (made.attrs.Has(name)) made.attrs.Set(name, *type);
    }
    if (made.attrs.Has("shared_name")) made.attrs.Set("shared_name", StrCat("r", values->Below(3)));
    if (!ExpandTypes(op->def, made.attrs, &made.input_types, &made.output_types).ok()) continue;
    for (std::size_t i = 0; i < made.inputs.size(); ++i) {
      if (made.inputs[i].dtype() != BaseType(made.input_types[i])) {
        made.inputs[i] = values->TensorOf(BaseType(made.input_types[i]));
      }
    }
    std::vector<EdgeValue> outputs;
    if (!RunNode(world, made, [](const std::string&) {}, &outputs).ok()) continue;
    if (outputs.empty() || !outputs[0].value.IsInitialized()) continue;
    Tensor handle = outputs[0].value;
    const OpInfo* const assign = world.ops->Find("AssignVariableOp");
    const AttrValue* const type = made.attrs.Find("dtype");
    if (maker == "VarHandleOp" && assign != nullptr && type != nullptr && !values->OneIn(8)) {
      HostileCase first;
      first.op = assign;
      first.attrs.Set("dtype", *type);
      AddDefaultAttrs(assign->def, &first.attrs);
      if (ExpandTypes(assign->def, first.attrs, &first.input_types, &first.output_types).ok()) {
        first.inputs = {handle, values->TensorOf(*type->get_if<DataType>())};
        RunNode(world, first, [](const std::string&) {}, &outputs).IgnoreError();
      }
    }
    return handle;
  }
  return Tensor();
}

Tensor MakeOperand(const HostileWorld& world, const HostileCase& reader, DataType type,
                   HostileValues* values) {
  const std::string& op = reader.op->def.name();
  Tensor made;
  if (type == kResource) made = MakeByOp(world, MakerOfHandles(op), reader, values);
  if (type == kVariant && Contains(op, "TensorList")) {
    made = MakeByOp(world, values->OneIn(2) ? "TensorListFromTensor" : "TensorListReserve", reader,
                    values);
  }
  if (type == kVariant && Contains(op, "Dataset")) {
    made =
        MakeByOp(world, values->OneIn(2) ? "RangeDataset" : "TensorSliceDataset", reader, values);
  }
  return made.IsInitialized() ? made : values->TensorOf(type);
}

DataType AnyType(const pb::OpDef::AttrDef& attr, const KernelDef& kernel, HostileValues* values) {
  for (const auto& [name, types] : kernel.constraints) {
    if (name == attr.name() && !types.empty()) return values->OneOf(types);
  }
  std::vector<DataType> types;
  for (const int type : attr.allowed_values().list().type()) {
    types.push_back(static_cast<DataType>(type));
  }
  if (types.empty()) types = {kFloat, kInt32, kInt64, kString, kBool, kDouble, kUint8};
  return values->OneOf(types);
}

AttrValue AnyAttr(const pb::OpDef::AttrDef& attr, const KernelDef& kernel, HostileValues* values) {
  const std::string& type = attr.type();
  const int64_t length = values->OneIn(4) ? values->Below(6) : values->OneIn(2) ? 4 : 2;
  const auto list = [&](auto one) {
    std::vector<decltype(one())> made;
    for (int64_t i = 0; i < length; ++i) made.push_back(one());
    return AttrValue(std::move(made));
  };
  const auto text = [&] {
    const auto& allowed = attr.allowed_values().list().s();
    if (allowed.empty()) return values->Text();
    return allowed[static_cast<int>(values->Below(allowed.size()))];
  };
  if (type == "type") return AnyType(attr, kernel, values);
  if (type == "list(type)") return list([&] { return AnyType(attr, kernel, values); });
  if (type == "int") {
    const bool counts = attr.name() == "N" || attr.name().starts_with("num_") ||
                        attr.name() == "k";  // often of operands
    return counts ? 1 + values->Below(3) : values->Integer();
  }
  if (type == "list(int)") return list([&] { return values->OneIn(3) ? 1 : values->Integer(); });
  if (type == "float") return values->Real();
  if (type == "list(float)") return list([&] { return values->Real(); });
  if (type == "bool") return values->OneIn(2);
  if (type == "string") return text();
  if (type == "list(string)") return list(text);
  if (type == "shape") return values->AnyShape();
  if (type == "list(shape)") return list([&] { return values->AnyShape(); });
  if (type == "tensor") return values->TensorOf(values->OneIn(2) ? kFloat : kInt32);
  return AttrValue();
}

void Describe(HostileCase* hostile) {
  hostile->text = hostile->op->def.name();
  for (const auto& [name, value] : hostile->attrs) {
    StrAppend(&hostile->text, "\n  ", name, " = ", value.DebugString());
  }
  for (const Tensor& input : hostile->inputs) {
    StrAppend(&hostile->text, "\n  ", input.DebugString(12));
  }
}

// Bytes that are read for their own sake.
void Read(const Tensor& tensor) {
  if (!IsMemcpyable(tensor.dtype()) || tensor.num_elements() == 0) return;
  const auto* const bytes = static_cast<const volatile uint8_t*>(tensor.raw_data());
  const std::size_t size = tensor.num_bytes(), step = std::max<std::size_t>(1, size / 4096);
  for (std::size_t i = 0; i < size; i += step) (void)bytes[i];
  (void)bytes[size - 1];
}

}  // namespace

const char* WhyNotTried(const OpInfo& op) {
  const std::string& name = op.def.name();
  if (name.starts_with("_")) return "it is of the engine's own graphs";
  for (const auto& attr : op.def.attr()) {
    if (attr.type() == "func" || attr.type() == "list(func)") return "it calls functions";
  }
  for (const char* part : {"Collective", "Send", "Recv", "Nccl"}) {
    if (Contains(name, part)) return "it talks to other tasks";
  }
  for (const char* part : {"Save", "WriteFile", "MergeV2Checkpoints", "Print", "Dump"}) {
    if (Contains(name, part)) return "it writes files";
  }
  for (const char* part : {"SessionHandle", "SessionTensor", "Rpc"}) {
    if (Contains(name, part)) return "it needs a session";
  }
  return nullptr;
}

bool MakeHostileCase(const HostileWorld& world, const OpInfo& op, uint64_t seed,
                     HostileCase* hostile) {
  HostileValues values(seed, world.memory);
  std::vector<const KernelDef*> kernels;
  for (const KernelDef* def : world.kernels->All()) {
    if (def->op == op.def.name() && def->device_type == "CPU" && def->label.empty()) {
      kernels.push_back(def);
    }
  }
  if (kernels.empty()) return false;
  const KernelDef& kernel = *values.OneOf(kernels);
  *hostile = HostileCase();
  hostile->op = &op;
  for (const auto& attr : op.def.attr()) {
    // Defaults lead further than what is random, and only some of it at a time.
    if (attr.has_default_value() && attr.type() != "type" && !values.OneIn(3)) continue;
    if (attr.type() == "func" || attr.type() == "list(func)") return false;
    hostile->attrs.Set(attr.name(), AnyAttr(attr, kernel, &values));
  }
  AddDefaultAttrs(op.def, &hostile->attrs);
  if (!ValidateAttrs(op.def, hostile->attrs).ok() ||
      !ExpandTypes(op.def, hostile->attrs, &hostile->input_types, &hostile->output_types).ok()) {
    return false;
  }
  if (hostile->input_types.size() > 64 || hostile->output_types.size() > 64) return false;
  for (const DataType type : hostile->input_types) {
    hostile->inputs.push_back(MakeOperand(world, *hostile, BaseType(type), &values));
  }
  Describe(hostile);
  return true;
}

Status RunHostileCase(const HostileWorld& world, const HostileCase& hostile,
                      const std::function<void(const std::string&)>& fault) {
  std::vector<InferenceContext::Input> operands(hostile.inputs.size());
  for (std::size_t i = 0; i < operands.size(); ++i) {
    operands[i].shape = PartialShape(hostile.inputs[i].shape());
    if (IsMemcpyable(hostile.inputs[i].dtype())) operands[i].constant = &hostile.inputs[i];
  }
  const int num_outputs = static_cast<int>(hostile.output_types.size());
  InferenceContext shapes(hostile.op->def, hostile.attrs, operands, num_outputs);
  // A graph that it finds wrong is refused; the kernel is asked all the same, as an operand that
  // is not constant is not seen there.
  if (hostile.op->shape_fn != nullptr) hostile.op->shape_fn(shapes).IgnoreError();
  std::vector<EdgeValue> outputs;
  Status status = RunNode(world, hostile, fault, &outputs);
  for (int i = 0; status.ok() && i < num_outputs; ++i) {
    const Tensor& value = outputs[i].value;
    if (outputs[i].kind != EdgeValue::Kind::kValue) continue;
    if (!value.shape().is_valid()) {
      fault(StrCat("output ", i, " has a shape that no tensor has: ", value.shape().DebugString()));
    } else if (value.num_elements() > 0 &&
               (value.raw_data() == nullptr ||
                (value.buffer() != nullptr && value.buffer()->size() < value.num_bytes()))) {
      fault(StrCat("output ", i, " of shape ", value.shape().DebugString(),
                   " is larger than its memory"));
    } else {
      Read(value);
    }
  }
  outputs.clear();
  world.device->resource_manager()->Clear();
  return status;
}

}  // namespace millrace::testing
