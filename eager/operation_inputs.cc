// SPDX-License-Identifier: Apache-2.0
#include "eager/operation_inputs.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "ops/op_registry.h"
#include "tensor/tensor_proto.h"

namespace millrace {
namespace {

// The device that the handle of a resource names, if the context has it; "" for any other input,
// and for one that is not here to be looked at.
std::string HomeOfResource(const EagerContext& context, const pb::Operation::Input& input,
                           const std::string& given) {
  const bool is_here = input.has_tensor() || TaskOfDevice(given) == context.task();
  const pb::DataType type =
      input.has_tensor() ? input.tensor().dtype() : input.remote_handle().dtype();
  if (!is_here || type != pb::DT_RESOURCE) return "";
  const pb::RemoteTensorHandle& handle = input.remote_handle();
  const StatusOr<Tensor> value = input.has_tensor()
                                     ? TensorFromProto(input.tensor())
                                     : context.handles().Get(handle.op_id(), handle.output_num());
  if (!value.ok() || value->dtype() != kResource || value->num_elements() != 1) return "";
  const std::string& home = value->data<ResourceHandle>()->device;
  return context.HasDevice(home) ? home : "";
}

}  // namespace

StatusOr<AttrMap> OperationAttrs(const pb::Operation& operation) {
  AttrMap attrs;
  for (const auto& [name, proto] : operation.attrs()) {
    StatusOr<AttrValue> value = AttrFromProto(proto);
    if (!value.ok()) {
      return Annotate(value.status(), StrCat(" (attr '", name, "' of ", operation.name(), ")"));
    }
    attrs.Set(name, *std::move(value));
  }
  return attrs;
}

StatusOr<FunctionName> OperationFunction(const pb::Operation& operation) {
  MR_ASSIGN_OR_RETURN(const AttrMap attrs, OperationAttrs(operation));
  FunctionName function{operation.name(), {}};
  for (const auto& [name, value] : attrs) {
    if (name != "config_proto" && name != "executor_type") function.attrs[name] = value;
  }
  return function;
}

std::vector<std::string> InputDevices(const EagerContext& context, const pb::Operation& operation,
                                      const std::string& device) {
  std::vector<std::string> devices;
  for (const pb::Operation::Input& input : operation.op_inputs()) {
    const bool is_handle = input.has_remote_handle() && !input.remote_handle().device().empty();
    const std::string& given = is_handle ? input.remote_handle().device() : device;
    std::string home = HomeOfResource(context, input, given);
    devices.push_back(home.empty() ? given : std::move(home));
  }
  return devices;
}

pb::Operation::Input InputForTask(const EagerContext& context, const pb::Operation& operation,
                                  int number, const std::string& task) {
  const pb::Operation::Input& input = operation.op_inputs(number);
  if (input.has_tensor() || TaskOfDevice(input.remote_handle().device()) == task) return input;
  const pb::RemoteTensorHandle& handle = input.remote_handle();
  const StatusOr<Tensor> value = context.handles().Get(handle.op_id(), handle.output_num());
  // Whoever has it may be asked for it.
  if (!value.ok()) return input;
  pb::Operation::Input by_value;
  TensorToProto(*value, by_value.mutable_tensor());
  return by_value;
}

bool HasPackedInputs(const EagerContext& context, const pb::Operation& operation) {
  return std::any_of(operation.op_inputs().begin(), operation.op_inputs().end(),
                     [&](const pb::Operation::Input& input) {
                       return input.has_remote_handle() &&
                              context.FindPacked(input.remote_handle().op_id()) != nullptr;
                     });
}

std::vector<int> UnpackInputs(const EagerContext& context, pb::Operation* operation) {
  if (!HasPackedInputs(context, *operation)) return {};
  std::vector<int> widths;
  google::protobuf::RepeatedPtrField<pb::Operation::Input> inputs;
  for (pb::Operation::Input& input : *operation->mutable_op_inputs()) {
    const auto packed =
        input.has_remote_handle() ? context.FindPacked(input.remote_handle().op_id()) : nullptr;
    if (packed == nullptr) {
      inputs.Add()->Swap(&input);
      widths.push_back(1);
      continue;
    }
    for (const auto& handle : packed->handles()) {
      if (handle.has_local_handle()) {
        *inputs.Add()->mutable_tensor() = handle.local_handle().tensor();
      } else {
        *inputs.Add()->mutable_remote_handle() = handle.remote_handle();
      }
    }
    widths.push_back(packed->handles_size());
  }
  operation->mutable_op_inputs()->Swap(&inputs);
  return widths;
}

StatusOr<std::vector<Tensor>> TakeInputs(EagerContext* context, const pb::Operation& operation,
                                         std::span<const int> numbers) {
  std::vector<Tensor> values;
  for (const int number : numbers) {
    if (number < 0 || number >= operation.op_inputs_size()) {
      return errors::Internal(operation.name(), " has no input ", number);
    }
    const pb::Operation::Input& input = operation.op_inputs(number);
    if (input.has_tensor()) {
      MR_ASSIGN_OR_RETURN(values.emplace_back(), TensorFromProto(input.tensor()));
      continue;
    }
    const pb::RemoteTensorHandle& handle = input.remote_handle();
    MR_ASSIGN_OR_RETURN(values.emplace_back(),
                        context->handles()->Get(handle.op_id(), handle.output_num()));
  }
  return values;
}

StatusOr<std::vector<Tensor>> TakeInputs(EagerContext* context, const pb::Operation& operation) {
  return TakeInputs(context, operation,
                    FirstNumbers(static_cast<std::size_t>(operation.op_inputs_size())));
}

Status StoreOutputs(EagerContext* context, int64_t op_id, std::span<const int> outputs,
                    std::span<const Tensor> values) {
  if (op_id < 0) return OkStatus();
  for (std::size_t i = 0; i < values.size(); ++i) {
    Status stored = context->handles()->Put(op_id, outputs[i], values[i]);
    if (stored.ok()) continue;
    while (i-- > 0) (void)context->handles()->Drop(op_id, outputs[i]);
    return stored;
  }
  return OkStatus();
}

std::vector<int> FirstNumbers(std::size_t count) {
  std::vector<int> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

}  // namespace millrace
