#include "kernels/fake/stream_kernel.h"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/cancellation.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "device/copy.h"
#include "device/fake/fake_device.h"
#include "kernels/accelerator/accelerator_kernels.h"
#include "kernels/kernel_context.h"
#include "kernels/kernel_source.h"
#include "kernels/variable.h"
#include "ops/shape_inference.h"
#include "rendezvous/device_rendezvous.h"

namespace millrace {
namespace {

// The elements at the address where the machine's thread may touch them; nobody's share.
Tensor AliasOf(const Tensor& value) {
  if (value.num_elements() == 0) return value;
  return Tensor(value.dtype(), value.shape(), nullptr, FakeAlias(value.raw_data()));
}

// What an enqueued operation works on: device memory by address, as it is freed in the order of
// the stream; host memory by a share.
Tensor Operand(const Tensor& value) {
  if (!InDeviceMemory(value)) return value;
  return Tensor(value.dtype(), value.shape(), nullptr, value.raw_data());
}

struct Variable {
  ResourceHandle handle;
  Tensor value;  // an operand
};

struct Call {
  std::shared_ptr<Kernel> kernel;
  FakeMachine* machine = nullptr;
  std::vector<Tensor> inputs, outputs;  // operands
  std::vector<bool> input_on_device;
  std::vector<DataType> output_types;
  std::vector<Variable> variables;

  Status Run();

 private:
  Status AddVariables(ResourceManager* scratch);
  Status KeepVariables(ResourceManager* scratch);
};

Status Call::AddVariables(ResourceManager* scratch) {
  for (const Variable& variable : variables) {
    if (scratch->Lookup<ResourceVariable>(variable.handle.container, variable.handle.name).ok()) {
      continue;  // the same one twice
    }
    RefPtr<ResourceVariable> shadow = MakeRef<ResourceVariable>();
    const Tensor& value = variable.value;
    if (value.num_elements() == 0) {
      shadow->value = value;
    } else {
      void* const data = FakeAlias(value.raw_data());
      shadow->value = Tensor(value.dtype(), value.shape(),
                             WrapBuffer(data, value.num_bytes(), nullptr, nullptr), data);
    }
    MR_RETURN_IF_ERROR(
        scratch->Create(variable.handle.container, variable.handle.name, std::move(shadow)));
  }
  return OkStatus();
}

Status Call::KeepVariables(ResourceManager* scratch) {
  for (const Variable& variable : variables) {
    MR_ASSIGN_OR_RETURN(
        RefPtr<ResourceVariable> shadow,
        scratch->Lookup<ResourceVariable>(variable.handle.container, variable.handle.name));
    const Tensor& value = variable.value;
    if (value.num_elements() == 0) continue;
    void* const data = FakeAlias(value.raw_data());
    if (shadow->value.raw_data() == data) continue;
    if (!(shadow->value.shape() == value.shape())) {
      return errors::Internal("the update of ", variable.handle.name, " changed its shape");
    }
    std::memcpy(data, shadow->value.raw_data(), value.num_bytes());
  }
  return OkStatus();
}

Status Call::Run() {
  std::vector<EdgeValue> in(inputs.size()), out(outputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    in[i].value = input_on_device[i] ? AliasOf(inputs[i]) : inputs[i];
    in[i].kind = EdgeValue::Kind::kValue;
  }
  ResourceManager* const scratch = machine->twin()->resource_manager();
  MR_RETURN_IF_ERROR(AddVariables(scratch));
  CancellationManager cancellation;
  StepEnv env;
  env.cancellation = &cancellation;
  KernelContext ctx(kernel.get(), machine->twin(), &env, in, out, output_types);
  Status status = kernel->Compute(ctx);
  if (status.ok() && !variables.empty()) status = KeepVariables(scratch);
  if (!variables.empty()) scratch->Clear();
  MR_RETURN_IF_ERROR(status);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Tensor& made = out[i].value;
    Tensor to = AliasOf(outputs[i]);
    if (out[i].kind != EdgeValue::Kind::kValue || made.dtype() != to.dtype() ||
        !(made.shape() == to.shape())) {
      return errors::Internal("output ", i, " has shape ", made.shape().DebugString(),
                              " where the op's shape function said ", to.shape().DebugString());
    }
    if (to.num_elements() > 0) std::memcpy(to.raw_data(), made.raw_data(), to.num_bytes());
  }
  return OkStatus();
}

class StreamKernel final : public Kernel {
 public:
  StreamKernel(KernelConstruction& c, std::shared_ptr<Kernel> inner)
      : Kernel(c), op_(*CurrentKernelOp()), attrs_(c.attrs()), inner_(std::move(inner)) {
    for (const DataType type : c.output_types()) output_types_.push_back(BaseType(type));
    for (const DataType type : c.input_types()) {
      if (type != kResource) break;
      ++num_variables_;
    }
    variable_type_ = attrs_.GetOr<DataType>("T", attrs_.GetOr<DataType>("dtype", kFloat));
    updates_ = num_variables_ > 0 && output_types_.empty();
  }
  bool IsExpensive() const override { return false; }

  Status Compute(KernelContext& ctx) override {
    DeviceWork* const work = WorkOf(ctx.rendezvous());
    if (work == nullptr) return errors::Internal("the step keeps no account of its device's work");
    auto call = std::make_shared<Call>();
    call->kernel = inner_;
    call->machine = static_cast<FakeMachine*>(AcceleratorOf(ctx.device()));
    call->output_types = output_types_;
    LockedVariables locked;  // until it is enqueued: the streams see updates in this order
    if (num_variables_ > 0) {
      MR_RETURN_IF_ERROR(locked.Lock(ctx, num_variables_, variable_type_));
      MR_RETURN_IF_ERROR(TakeVariables(ctx, work, locked, call.get()));
    }
    MR_RETURN_IF_ERROR(TakeOutputs(ctx, locked, call.get()));
    for (int i = 0; i < ctx.num_inputs(); ++i) {
      call->inputs.push_back(Operand(ctx.input(i)));
      call->input_on_device.push_back(InDeviceMemory(ctx.input(i)));
    }
    call->machine->stream(StreamKind::kCompute)
        ->Enqueue({RefPtr<DeviceWork>::Share(work), name(), [call] { return call->Run(); }});
    return OkStatus();
  }

 private:
  Status TakeVariables(KernelContext& ctx, DeviceWork* work, const LockedVariables& locked,
                       Call* call) {
    for (int i = 0; i < num_variables_; ++i) {
      Tensor* const value = locked.value(i);
      if (updates_ && value->num_elements() > 0 && !value->OwnsBufferAlone()) {
        MR_ASSIGN_OR_RETURN(
            *value, CopyOnDevice(call->machine, call->machine->allocator(), *value, work, name()));
      }
      MR_ASSIGN_OR_RETURN(const ResourceHandle* handle, InputHandle(ctx, i));
      call->variables.push_back({*handle, Operand(*value)});
    }
    return OkStatus();
  }

  Status TakeOutputs(KernelContext& ctx, const LockedVariables& locked, Call* call) {
    std::vector<InferenceContext::Input> inputs(ctx.num_inputs());
    std::vector<Tensor> host(ctx.num_inputs());
    std::vector<HandleShape> handles(num_variables_);
    for (int i = 0; i < ctx.num_inputs(); ++i) {
      const Tensor& value = ctx.input(i);
      inputs[i].shape = PartialShape(value.shape());
      if (!InDeviceMemory(value)) inputs[i].constant = &value;
      if (i >= num_variables_) continue;
      handles[i] = {locked.value(i)->dtype(), PartialShape(locked.value(i)->shape())};
      inputs[i].handle = &handles[i];
    }
    InferenceContext shapes(op_.def, attrs_, inputs, ctx.num_outputs());
    if (op_.shape_fn != nullptr) MR_RETURN_IF_ERROR(op_.shape_fn(shapes));
    for (int i = 0; i < ctx.num_outputs(); ++i) {
      const auto shape = shapes.output(i).AsShape();
      if (!shape) {
        return errors::Unimplemented(
            "the shape of output ", i, " of ", def().name(),
            " is not known before it is computed: ", shapes.output(i).DebugString());
      }
      MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(i, *shape));
      call->outputs.push_back(Operand(*out));
    }
    return OkStatus();
  }

  const OpInfo& op_;
  const AttrMap attrs_;
  const std::shared_ptr<Kernel> inner_;
  std::vector<DataType> output_types_;
  int num_variables_ = 0;
  DataType variable_type_ = kFloat;
  bool updates_ = false;
};

}  // namespace

std::unique_ptr<Kernel> MakeStreamKernel(KernelConstruction& c) {
  std::shared_ptr<Kernel> inner = MakeCpuKernel(c);
  if (inner == nullptr || !c.status().ok()) return nullptr;
  return std::make_unique<StreamKernel>(c, std::move(inner));
}

}  // namespace millrace
