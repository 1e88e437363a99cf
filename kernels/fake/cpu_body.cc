// SPDX-License-Identifier: Apache-2.0
#include "kernels/fake/cpu_body.h"

#include <cstring>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/cancellation.h"
#include "base/errors.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "device/fake/fake_device.h"
#include "kernels/accelerator/accelerator_kernels.h"
#include "kernels/accelerator/computing_ops.h"
#include "kernels/kernel_context.h"
#include "kernels/run_kernel.h"
#include "kernels/state/variable.h"

namespace millrace {
namespace {

// The CPU's counts are the ranks of outputs and their sizes.
constexpr int kMostAxes = 12;
constexpr int kCountsPerOutput = 1 + kMostAxes;

// The elements at the address where the machine's thread may touch them; nobody's share.
Tensor AliasOf(const Tensor& value) {
  if (value.num_elements() == 0) return value;
  return Tensor(value.dtype(), value.shape(), nullptr, FakeAlias(value.raw_data()));
}

using Variables = std::vector<StreamCall::Variable>;

// The same as a variable's value, which a kernel may change in place.
Tensor OwnedAliasOf(const Tensor& value) {
  if (value.num_elements() == 0) return value;
  void* const data = FakeAlias(value.raw_data());
  return Tensor(value.dtype(), value.shape(), WrapBuffer(data, value.num_bytes(), nullptr, nullptr),
                data);
}

// What a kernel is given for a variable, if that is a reference.
struct Reference {
  Mutex mu;
  Tensor value;
};

// If `made`, a variable's new value, is elsewhere than `value`, its elements.
Status KeepValue(const Tensor& made, const Tensor& value, std::string_view name) {
  if (value.num_elements() == 0) return OkStatus();
  void* const data = FakeAlias(value.raw_data());
  if (made.raw_data() == data) return OkStatus();
  if (!(made.shape() == value.shape())) {
    return errors::Internal("the update of ", name, " changed its shape");
  }
  std::memcpy(data, made.raw_data(), value.num_bytes());
  return OkStatus();
}

Status AddVariables(const Variables& variables, ResourceManager* scratch) {
  for (const StreamCall::Variable& variable : variables) {
    if (variable.is_reference) continue;
    if (scratch->Lookup<ResourceVariable>(variable.handle.container, variable.handle.name).ok()) {
      continue;  // the same one twice
    }
    RefPtr<ResourceVariable> shadow = MakeRef<ResourceVariable>();
    shadow->value = OwnedAliasOf(variable.value);
    MR_RETURN_IF_ERROR(
        scratch->Create(variable.handle.container, variable.handle.name, std::move(shadow)));
  }
  return OkStatus();
}

Status KeepVariables(const Variables& variables, ResourceManager* scratch) {
  for (const StreamCall::Variable& variable : variables) {
    if (variable.is_reference) continue;
    MR_ASSIGN_OR_RETURN(
        RefPtr<ResourceVariable> shadow,
        scratch->Lookup<ResourceVariable>(variable.handle.container, variable.handle.name));
    MR_RETURN_IF_ERROR(KeepValue(shadow->value, variable.value, variable.handle.name));
  }
  return OkStatus();
}

class CpuBody final : public StreamBody {
 public:
  CpuBody(const KernelConstruction& c, std::unique_ptr<Kernel> kernel, TwinOf twin)
      : kernel_(std::move(kernel)), twin_(twin), counts_(CountsFirst(c.def().name())) {
    for (const DataType type : c.output_types()) output_types_.push_back(BaseType(type));
  }

  // The CPU's kernel has it.
  RecordedState recorded_state() const override { return RecordedState::kMovesOn; }

  // What it computes twice, then, as nothing of the first time is kept.
  int64_t num_counts() const override {
    return counts_ ? static_cast<int64_t>(output_types_.size()) * kCountsPerOutput : 0;
  }
  Status Count(const StreamCall& call) const override {
    std::vector<EdgeValue> out(output_types_.size());
    MR_RETURN_IF_ERROR(Compute(call, out));
    auto* to = static_cast<int64_t*>(AliasOf(call.counts).raw_data());
    for (const EdgeValue& output : out) {
      const Shape& shape = output.value.shape();
      if (shape.rank() > kMostAxes) return errors::Unimplemented("outputs of so many axes");
      to[0] = shape.rank();
      for (int i = 0; i < kMostAxes; ++i) to[1 + i] = i < shape.rank() ? shape.dim(i) : 0;
      to += kCountsPerOutput;
    }
    return OkStatus();
  }
  StatusOr<std::vector<Shape>> CountedShapes(const StreamCall& call) const override {
    std::vector<Shape> shapes(output_types_.size());
    const int64_t* from = call.counted.data();
    for (Shape& shape : shapes) {
      for (int64_t i = 0; i < from[0]; ++i) shape.AddDim(from[1 + i]);
      from += kCountsPerOutput;
    }
    return shapes;
  }
  Status Run(const StreamCall& call) const override {
    std::vector<EdgeValue> out(output_types_.size());
    MR_RETURN_IF_ERROR(Compute(call, out));
    return KeepOutputs(call, out);
  }

 private:
  // With the CPU's kernel; changes variables in place.
  Status Compute(const StreamCall& call, std::span<EdgeValue> out) const {
    std::vector<EdgeValue> in(call.inputs.size());
    for (std::size_t i = 0; i < in.size(); ++i) {
      in[i].value = call.input_on_device[i] ? AliasOf(call.inputs[i]) : call.inputs[i];
      in[i].kind = EdgeValue::Kind::kValue;
    }
    std::vector<Reference> references(call.variables.size());
    for (std::size_t i = 0; i < references.size(); ++i) {
      if (!call.variables[i].is_reference) continue;
      references[i].value = OwnedAliasOf(call.variables[i].value);
      in[i].ref = &references[i].value;
      in[i].ref_mu = &references[i].mu;
      in[i].kind = EdgeValue::Kind::kRef;
    }
    Device* const twin = twin_(call.machine);
    ResourceManager* const scratch = twin->resource_manager();
    MR_RETURN_IF_ERROR(AddVariables(call.variables, scratch));
    CancellationManager cancellation;
    StepEnv env;
    env.cancellation = &cancellation;
    KernelContext ctx(kernel_.get(), twin, &env, in, out, output_types_);
    Status status = RunKernel(kernel_.get(), ctx);
    if (status.ok() && !call.variables.empty()) status = KeepVariables(call.variables, scratch);
    for (std::size_t i = 0; status.ok() && i < references.size(); ++i) {
      if (!call.variables[i].is_reference) continue;
      status = KeepValue(references[i].value, call.variables[i].value, kernel_->name());
    }
    if (!call.variables.empty()) scratch->Clear();
    return status;
  }

  static Status KeepOutputs(const StreamCall& call, const std::vector<EdgeValue>& out) {
    // None for an output that is a reference.
    for (std::size_t i = 0; i < call.outputs.size(); ++i) {
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
  const bool counts_;
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
