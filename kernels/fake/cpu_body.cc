#include "kernels/fake/cpu_body.h"

#include <cstring>
#include <utility>
#include <vector>

#include "base/cancellation.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "device/fake/fake_device.h"
#include "kernels/accelerator/accelerator_kernels.h"
#include "kernels/kernel_context.h"
#include "kernels/variable.h"

namespace millrace {
namespace {

// The elements at the address where the machine's thread may touch them; nobody's share.
Tensor AliasOf(const Tensor& value) {
  if (value.num_elements() == 0) return value;
  return Tensor(value.dtype(), value.shape(), nullptr, FakeAlias(value.raw_data()));
}

using Variables = std::vector<StreamCall::Variable>;

Status AddVariables(const Variables& variables, ResourceManager* scratch) {
  for (const StreamCall::Variable& variable : variables) {
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

Status KeepVariables(const Variables& variables, ResourceManager* scratch) {
  for (const StreamCall::Variable& variable : variables) {
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

class CpuBody final : public StreamBody {
 public:
  CpuBody(const KernelConstruction& c, std::unique_ptr<Kernel> kernel, TwinOf twin)
      : kernel_(std::move(kernel)), twin_(twin) {
    for (const DataType type : c.output_types()) output_types_.push_back(BaseType(type));
  }

  // The CPU's kernel has it.
  RecordedState recorded_state() const override { return RecordedState::kMovesOn; }

  Status Run(const StreamCall& call) const override {
    std::vector<EdgeValue> in(call.inputs.size()), out(call.outputs.size());
    for (std::size_t i = 0; i < in.size(); ++i) {
      in[i].value = call.input_on_device[i] ? AliasOf(call.inputs[i]) : call.inputs[i];
      in[i].kind = EdgeValue::Kind::kValue;
    }
    Device* const twin = twin_(call.machine);
    ResourceManager* const scratch = twin->resource_manager();
    MR_RETURN_IF_ERROR(AddVariables(call.variables, scratch));
    CancellationManager cancellation;
    StepEnv env;
    env.cancellation = &cancellation;
    KernelContext ctx(kernel_.get(), twin, &env, in, out, output_types_);
    Status status = kernel_->Compute(ctx);
    if (status.ok() && !call.variables.empty()) status = KeepVariables(call.variables, scratch);
    if (!call.variables.empty()) scratch->Clear();
    MR_RETURN_IF_ERROR(status);
    return KeepOutputs(call, out);
  }

 private:
  static Status KeepOutputs(const StreamCall& call, const std::vector<EdgeValue>& out) {
    for (std::size_t i = 0; i < out.size(); ++i) {
      const Tensor& made = out[i].value;
      Tensor to = AliasOf(call.outputs[i]);
      if (out[i].kind != EdgeValue::Kind::kValue || made.dtype() != to.dtype() ||
          !(made.shape() == to.shape())) {
        return errors::Internal("output ", i, " has shape ", made.shape().DebugString(),
                                " where the op's shape function said ", to.shape().DebugString());
      }
      if (to.num_elements() > 0) std::memcpy(to.raw_data(), made.raw_data(), to.num_bytes());
    }
    return OkStatus();
  }

  const std::unique_ptr<Kernel> kernel_;
  const TwinOf twin_;
  std::vector<DataType> output_types_;
};

}  // namespace

Device* FakeTwin(Accelerator* machine) { return static_cast<FakeMachine*>(machine)->twin(); }

std::shared_ptr<StreamBody> MakeCpuBody(KernelConstruction& c, TwinOf twin) {
  std::unique_ptr<Kernel> kernel = MakeCpuKernel(c);
  if (kernel == nullptr || !c.status().ok()) return nullptr;
  return std::make_shared<CpuBody>(c, std::move(kernel), twin);
}

}  // namespace millrace
