// SPDX-License-Identifier: Apache-2.0
#include "kernels/custom/custom_kernels.h"

#include <absl/container/inlined_vector.h>

#include <memory>
#include <utility>

#include "base/cancellation.h"
#include "base/errors.h"
#include "base/exceptions.h"
#include "base/status_macros.h"
#include "kernels/kernel_context.h"
#include "millrace/custom_op.h"
#include "ops/custom/custom_ops.h"

namespace millrace {
namespace {

// One execution, as the library sees it. What the library gets wrong becomes an error of the step.
class ContextOfLibrary final : public CustomKernelContext {
 public:
  ContextOfLibrary(KernelContext& ctx, std::span<const DataType> types)
      : ctx_(ctx), types_(types), set_(types.size(), false) {}

  const std::string& node_name() const override { return ctx_.node_name(); }
  int num_inputs() const override { return ctx_.num_inputs(); }
  int num_outputs() const override { return ctx_.num_outputs(); }
  const Tensor& input(int i) const override {
    return i >= 0 && i < ctx_.num_inputs() ? ctx_.input(i) : none_;
  }
  DataType output_type(int i) const override {
    return i >= 0 && i < ctx_.num_outputs() ? types_[i] : DataType::kInvalid;
  }

  StatusOr<Tensor*> AllocateOutput(int i, const Shape& shape) override {
    MR_RETURN_IF_ERROR(CheckOutput(i));
    if (!shape.is_valid()) {
      return errors::InvalidArgument("output ", i, " cannot have the shape ", shape.DebugString());
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx_.AllocateOutput(i, shape));
    set_[i] = true;
    return out;
  }

  Status SetOutput(int i, Tensor value) override {
    MR_RETURN_IF_ERROR(CheckOutput(i));
    if (!value.IsInitialized() || value.dtype() != types_[i]) {
      return errors::InvalidArgument("output ", i, " is of type ", DataTypeName(types_[i]),
                                     " and cannot be ", value.DebugString(/*max_entries=*/3));
    }
    ctx_.SetOutput(i, std::move(value));
    set_[i] = true;
    return OkStatus();
  }

  void ParallelFor(int64_t n, double cost,
                   const std::function<void(int64_t, int64_t)>& body) override {
    if (n > 0) ctx_.ParallelFor(n, cost, body);
  }

  bool cancelled() const override {
    return ctx_.cancellation() != nullptr && ctx_.cancellation()->IsCancelled();
  }

  // Whether the kernel made all that its op promises.
  Status CheckAllSet() const {
    for (std::size_t i = 0; i < set_.size(); ++i) {
      if (!set_[i]) {
        return errors::Internal("its kernel returned OK without setting output ", i,
                                ": every output has to be set");
      }
    }
    return OkStatus();
  }

 private:
  Status CheckOutput(int i) const {
    if (i >= 0 && i < ctx_.num_outputs()) return OkStatus();
    return errors::InvalidArgument("there is no output ", i, ": the op has ", ctx_.num_outputs());
  }

  KernelContext& ctx_;
  const std::span<const DataType> types_;
  absl::InlinedVector<bool, 8> set_;
  const Tensor none_;
};

class KernelOfLibrary final : public Kernel {
 public:
  KernelOfLibrary(const KernelConstruction& c, std::unique_ptr<CustomKernel> kernel)
      : Kernel(c),
        kernel_(std::move(kernel)),
        types_(c.output_types().begin(), c.output_types().end()) {}

  Status Compute(KernelContext& ctx) override {
    ContextOfLibrary context(ctx, types_);
    MR_RETURN_IF_ERROR(kernel_->Compute(context));
    return context.CheckAllSet();
  }

 private:
  const std::unique_ptr<CustomKernel> kernel_;
  const std::vector<DataType> types_;
};

std::unique_ptr<Kernel> MakeCustomKernel(KernelConstruction& c) {
  const CustomOp* const op = FindCustomOp(c.def().name());
  const AttrsOfNode attrs(c.attrs());
  StatusOr<std::unique_ptr<CustomKernel>> made = Guarded([&] { return op->kernel(attrs); });
  if (made.ok() && *made == nullptr) {
    made = errors::Internal("the library of op ", op->name, " made no kernel");
  }
  if (!made.ok()) {
    c.SetError(made.status());
    return nullptr;
  }
  return std::make_unique<KernelOfLibrary>(c, *std::move(made));
}

}  // namespace

void RegisterCustomKernels(KernelRegistry& registry) {
  for (const CustomOp& op : CustomOpsOfProcess()) {
    if (op.kernel != nullptr) registry.Register(KernelDef(op.name), &MakeCustomKernel);
  }
}

}  // namespace millrace
