// SPDX-License-Identifier: Apache-2.0
#include "kernels/lists/optional.h"

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/kernel_util.h"
#include "kernels/host_kernels.h"
#include "kernels/kernel_context.h"

namespace millrace {
namespace {

StatusOr<const Optional*> InputOptional(KernelContext& ctx, const std::string& op) {
  const auto* optional = ctx.input(0).rank() == 0 ? VariantCast<Optional>(ctx.input(0)) : nullptr;
  if (optional != nullptr) return optional;
  return errors::InvalidArgument("Input to ", op,
                                 " must be a scalar tensor containing an OptionalVariant object.");
}

class OptionalFromValueKernel : public Kernel {
 public:
  using Kernel::Kernel;
  bool IsExpensive() const override { return false; }
  Status Compute(KernelContext& ctx) override {
    std::vector<Tensor> components;
    for (int i = 0; i < ctx.num_inputs(); ++i) components.push_back(ctx.locked_input(i));
    MR_ASSIGN_OR_RETURN(Tensor optional, OptionalOf(std::move(components)));
    ctx.SetOutput(0, std::move(optional));
    return OkStatus();
  }
};

class OptionalNoneKernel : public Kernel {
 public:
  using Kernel::Kernel;
  bool IsExpensive() const override { return false; }
  Status Compute(KernelContext& ctx) override {
    ctx.SetOutput(0, VariantTensor(MakeRef<Optional>()));
    return OkStatus();
  }
};

class OptionalHasValueKernel : public Kernel {
 public:
  using Kernel::Kernel;
  bool IsExpensive() const override { return false; }
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const Optional* optional, InputOptional(ctx, "OptionalHasValue"));
    const bool has_value = optional->has_value;
    MR_ASSIGN_OR_RETURN(Tensor* const out, ctx.AllocateOutput(0, Shape()));
    out->data<bool>()[0] = has_value;
    return OkStatus();
  }
};

class OptionalGetValueKernel : public Kernel {
 public:
  explicit OptionalGetValueKernel(KernelConstruction& c)
      : Kernel(c),
        types_(c.attr<std::vector<DataType>>("output_types")),
        shapes_(c.attr<std::vector<PartialShape>>("output_shapes")) {
    if (types_.size() == shapes_.size()) return;
    c.SetError(errors::InvalidArgument("output_types and output_shapes must be same length, got:\n",
                                       "output_types: ", types_.size(),
                                       "\noutput_shapes: ", shapes_.size()));
  }
  bool IsExpensive() const override { return false; }
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const Optional* optional, InputOptional(ctx, "OptionalGetValue"));
    if (!optional->has_value) {
      return errors::InvalidArgument("The given optional does not have a value.");
    }
    const std::vector<Tensor>& components = optional->components;
    if (components.size() != types_.size()) {
      return errors::InvalidArgument("The given optional has ", components.size(),
                                     " components, expected ", types_.size());
    }
    for (std::size_t i = 0; i < components.size(); ++i) {
      if (components[i].dtype() != types_[i]) {
        return errors::InvalidArgument(
            "The given optional does not match the expected type for component ", i,
            ". Expected: ", DataTypeName(types_[i]),
            ". Actual: ", DataTypeName(components[i].dtype()), ".");
      }
      if (!shapes_[i].IsCompatibleWith(components[i].shape())) {
        return errors::InvalidArgument(
            "The given optional does not match the expected shape for component ", i,
            ". Expected: ", shapes_[i].DebugString(),
            ". Actual: ", components[i].shape().DebugString(), ".");
      }
      ctx.SetOutput(static_cast<int>(i), components[i]);
    }
    return OkStatus();
  }

 private:
  const std::vector<DataType> types_;
  const std::vector<PartialShape> shapes_;
};

}  // namespace

StatusOr<Tensor> OptionalOf(std::vector<Tensor> components) {
  auto optional = MakeRef<Optional>();
  optional->has_value = true;
  for (const Tensor& component : components) {
    MR_RETURN_IF_ERROR(CheckNesting(component));
    optional->within = std::max(optional->within, NestingWithin(component));
  }
  optional->components = std::move(components);
  return VariantTensor(std::move(optional));
}

void RegisterOptionalKernels(KernelRegistry& r) {
  RegisterCpu<OptionalFromValueKernel>(r, "OptionalFromValue");
  RegisterCpu<OptionalNoneKernel>(r, "OptionalNone");
  RegisterCpu<OptionalHasValueKernel>(r, "OptionalHasValue");
  RegisterCpu<OptionalGetValueKernel>(r, "OptionalGetValue");
}

}  // namespace millrace
