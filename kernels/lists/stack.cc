// SPDX-License-Identifier: Apache-2.0
// Stacks of tensors that live for one step: what loops leave for their way back.
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "kernels/common/handle_kernel.h"
#include "kernels/common/kernel_util.h"
#include "kernels/common/step_resource.h"
#include "kernels/host_kernels.h"

namespace millrace {
namespace {

// Thread-safe.
class Stack : public Resource {
 public:
  Stack(DataType dtype, std::string name, int64_t max_size)
      : dtype_(dtype), name_(std::move(name)), max_size_(max_size) {}

  DataType dtype() const { return dtype_; }
  // The handle of the older ops, a reference to container and name; it lives as long as the stack.
  void SetNames(const ResourceHandle& handle) {
    MutexLock lock(&mu_);
    names_ = Tensor::FromValues<std::string>({handle.container, handle.name});
  }
  void SetAsOutput(KernelContext& ctx) { ctx.SetOutputRef(0, &mu_, &names_); }

  Status Push(Tensor value) {
    MutexLock lock(&mu_);
    MR_RETURN_IF_ERROR(CheckOpen());
    if (max_size_ >= 0 && static_cast<int64_t>(values_.size()) >= max_size_) {
      return errors::InvalidArgument("Stack[", name_, "] overflowed its max_size (", max_size_,
                                     ")");
    }
    values_.push_back(std::move(value));
    return OkStatus();
  }
  StatusOr<Tensor> Pop() {
    MutexLock lock(&mu_);
    MR_RETURN_IF_ERROR(CheckOpen());
    if (values_.empty()) {
      return errors::InvalidArgument("Stack[", name_, "] is empty when calling Pop().");
    }
    Tensor value = std::move(values_.back());
    values_.pop_back();
    return value;
  }
  void Close() {
    MutexLock lock(&mu_);
    values_.clear();
    closed_ = true;
  }
  std::string DebugString() const override {
    MutexLock lock(&mu_);
    return StrCat("Stack ", name_, ", ", values_.size(), " elements");
  }

 private:
  Status CheckOpen() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!closed_) return OkStatus();
    return errors::InvalidArgument("Stack[", name_, "] has already been closed.");
  }

  const DataType dtype_;
  const std::string name_;
  const int64_t max_size_;  // negative: no limit
  mutable Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<Tensor> values_ ABSL_GUARDED_BY(mu_);
  Tensor names_;  // guarded by mu_ where it is read, as a variable's value
};

class StackKernel : public Kernel {
 public:
  explicit StackKernel(KernelConstruction& c)
      : Kernel(c),
        dtype_(c.attr<DataType>("elem_type")),
        stack_name_(c.attrs().GetOr<std::string>("stack_name", "")) {
    if (stack_name_.empty()) stack_name_ = name();
  }
  bool IsExpensive() const override { return false; }
  Status Compute(KernelContext& ctx) override {
    int64_t max_size = -1;  // the older form has no limit, and a reference for its handle
    const bool is_ref = ctx.num_inputs() == 0;
    if (!is_ref) {
      MR_ASSIGN_OR_RETURN(max_size, IntScalar(ctx.input(0), "Stack size"));
    }
    auto stack = MakeRef<Stack>(dtype_, stack_name_, max_size);
    MR_ASSIGN_OR_RETURN(Tensor handle,
                        AddStepResource(ctx, StrCat("_stacks/", stack_name_), stack));
    if (is_ref) {
      stack->SetNames(handle.scalar<ResourceHandle>());
      stack->SetAsOutput(ctx);  // the step's container keeps the stack
    } else {
      ctx.SetOutput(0, std::move(handle));
    }
    return OkStatus();
  }

 private:
  const DataType dtype_;
  std::string stack_name_;
};

class StackPushKernel : public Kernel {
 public:
  using Kernel::Kernel;
  bool IsExpensive() const override { return false; }
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const RefPtr<Stack> stack, LookupHandle<Stack>(ctx, 0));
    Tensor value = ctx.locked_input(1);
    if (value.dtype() != stack->dtype()) {
      return errors::InvalidArgument("Must have type ", DataTypeName(stack->dtype()), " but got ",
                                     DataTypeName(value.dtype()));
    }
    ctx.SetOutput(0, value);
    return stack->Push(std::move(value));
  }
};

class StackPopKernel : public Kernel {
 public:
  explicit StackPopKernel(KernelConstruction& c)
      : Kernel(c), dtype_(c.attr<DataType>("elem_type")) {}
  bool IsExpensive() const override { return false; }
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const RefPtr<Stack> stack, LookupHandle<Stack>(ctx, 0));
    if (stack->dtype() != dtype_) {
      return errors::InvalidArgument("the stack holds ", DataTypeName(stack->dtype()),
                                     ", elem_type is ", DataTypeName(dtype_));
    }
    MR_ASSIGN_OR_RETURN(Tensor value, stack->Pop());
    ctx.SetOutput(0, std::move(value));
    return OkStatus();
  }

 private:
  const DataType dtype_;
};

class StackCloseKernel : public Kernel {
 public:
  using Kernel::Kernel;
  bool IsExpensive() const override { return false; }
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const RefPtr<Stack> stack, LookupHandle<Stack>(ctx, 0));
    stack->Close();
    return OkStatus();
  }
};

}  // namespace

void RegisterStackKernels(KernelRegistry& r) {
  for (const char* form : {"", "V2"}) {
    RegisterCpu<StackKernel>(r, StrCat("Stack", form));
    RegisterCpu<StackPushKernel>(r, StrCat("StackPush", form));
    RegisterCpu<StackPopKernel>(r, StrCat("StackPop", form));
    RegisterCpu<StackCloseKernel>(r, StrCat("StackClose", form));
  }
}

}  // namespace millrace
