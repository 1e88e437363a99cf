// SPDX-License-Identifier: Apache-2.0
// Variables behind handles: VarHandleOp and the ops that read and write through it.
#include <algorithm>
#include <cstdint>
#include <string>
#include <typeinfo>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/array/gather_plan.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/slice_indices.h"
#include "kernels/kernel.h"
#include "kernels/kernel_context.h"
#include "kernels/kernel_registry.h"
#include "kernels/state/variable.h"
#include "kernels/state/variable_plan.h"

namespace millrace {
namespace {

class VarHandleKernel : public Kernel {
 public:
  explicit VarHandleKernel(KernelConstruction& c) : Kernel(c), handle_(kResource, Shape()) {
    ResourceHandle& handle = handle_.data<ResourceHandle>()[0];
    handle.device = c.device()->name();
    handle.container = c.attrs().GetOr<std::string>("container", "");
    if (handle.container.empty()) handle.container = kDefaultContainer;
    handle.name = c.attrs().GetOr<std::string>("shared_name", "");
    if (handle.name.empty()) handle.name = name();
    handle.hash_code = typeid(ResourceVariable).hash_code();
    handle.type_name = "Variable";
    handle.dtypes_and_shapes = {{c.attr<DataType>("dtype"), c.attr<PartialShape>("shape")}};
  }
  bool IsExpensive() const override { return false; }
  Status Compute(KernelContext& ctx) override {
    ctx.SetOutput(0, handle_);
    return OkStatus();
  }

 private:
  Tensor handle_;
};

class ReadVariableKernel : public Kernel {
 public:
  explicit ReadVariableKernel(KernelConstruction& c)
      : Kernel(c), dtype_(c.attr<DataType>("dtype")) {}
  bool IsExpensive() const override { return false; }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const ResourceHandle* handle, InputHandle(ctx, 0));
    MR_ASSIGN_OR_RETURN(RefPtr<ResourceVariable> variable, FindVariable(ctx, *handle));
    MutexLock lock(&variable->mu);
    if (variable->value.dtype() != dtype_) {
      return errors::InvalidArgument("Trying to read variable ", handle->name,
                                     " with wrong dtype. Expected ", DataTypeName(dtype_), " got ",
                                     DataTypeName(variable->value.dtype()));
    }
    ctx.SetOutput(0, variable->value);
    return OkStatus();
  }

 private:
  const DataType dtype_;
};

class AssignVariableKernel : public Kernel {
 public:
  explicit AssignVariableKernel(KernelConstruction& c)
      : Kernel(c),
        dtype_(c.attr<DataType>("dtype")),
        validate_shape_(c.attrs().GetOr<bool>("validate_shape", false)) {}

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const ResourceHandle* handle, InputHandle(ctx, 0));
    Tensor read;
    if (ctx.input_is_ref(1)) read = ctx.locked_input(1);
    const Tensor& source = ctx.input_is_ref(1) ? read : ctx.input(1);
    if (!handle->dtypes_and_shapes.empty()) {
      const DataType dtype = handle->dtypes_and_shapes[0].first;
      if (dtype != dtype_) {
        return errors::InvalidArgument("Variable and value dtypes don't match; respectively, ",
                                       DataTypeName(dtype), " and ", DataTypeName(dtype_));
      }
    }
    MR_ASSIGN_OR_RETURN(
        RefPtr<ResourceVariable> variable,
        ctx.resources()->LookupOrCreate<ResourceVariable>(handle->container, handle->name, []() {
          return StatusOr<RefPtr<ResourceVariable>>(MakeRef<ResourceVariable>());
        }));
    MutexLock lock(&variable->mu);
    const bool first = variable->value.dtype() == DataType::kInvalid;
    if (!first && variable->value.dtype() != dtype_) {
      return errors::InvalidArgument(
          "Trying to assign variable ", handle->name, " with wrong dtype. Expected ",
          DataTypeName(variable->value.dtype()), " got ", DataTypeName(dtype_));
    }
    // The first value may have any shape: what the handle declares is a promise to shape inference.
    if (!first && validate_shape_ && !(variable->value.shape() == source.shape())) {
      return WrongShape(*handle, variable->value.shape(), source);
    }
    return AssignValue(ctx.allocator(), source, &variable->value);
  }

 private:
  static Status WrongShape(const ResourceHandle& handle, const Shape& expected,
                           const Tensor& source) {
    return errors::InvalidArgument("Trying to assign to variable ", handle.name,
                                   " a tensor with wrong shape. Expected ", expected.DebugString(),
                                   " got ", source.shape().DebugString());
  }

  const DataType dtype_;
  const bool validate_shape_;
};

// AssignAddVariableOp and AssignSubVariableOp.
class UpdateVariableKernel : public Kernel {
 public:
  explicit UpdateVariableKernel(KernelConstruction& c)
      : Kernel(c), add_(c.def().name() == "AssignAddVariableOp") {}

  Status Compute(KernelContext& ctx) override {
    const Tensor operand = ctx.locked_input(1);
    LockedVariables variable;
    MR_RETURN_IF_ERROR(variable.Lock(ctx, 1, operand.dtype()));
    Tensor* value = variable.value(0);
    MR_RETURN_IF_ERROR(CheckVariableUpdate(value->shape(), operand.shape()));
    MR_RETURN_IF_ERROR(variable.MakeExclusive(ctx));
    AddTo(ctx, operand, /*subtract=*/!add_, value);
    return OkStatus();
  }

 private:
  const bool add_;
};

class VarIsInitializedKernel : public Kernel {
 public:
  explicit VarIsInitializedKernel(KernelConstruction& c) : Kernel(c) {}
  bool IsExpensive() const override { return false; }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const ResourceHandle* handle, InputHandle(ctx, 0));
    const auto found = ctx.resources()->Lookup<ResourceVariable>(handle->container, handle->name);
    bool initialized = false;
    if (found.ok()) {
      MutexLock lock(&(*found)->mu);
      initialized = (*found)->value.IsInitialized();
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, Shape()));
    out->data<bool>()[0] = initialized;
    return OkStatus();
  }
};

class VariableShapeKernel : public Kernel {
 public:
  explicit VariableShapeKernel(KernelConstruction& c) : Kernel(c) {}
  bool IsExpensive() const override { return false; }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const ResourceHandle* handle, InputHandle(ctx, 0));
    MR_ASSIGN_OR_RETURN(RefPtr<ResourceVariable> variable, FindVariable(ctx, *handle));
    Shape shape;
    {
      MutexLock lock(&variable->mu);
      shape = variable->value.shape();
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, Shape({shape.rank()})));
    for (int i = 0; i < shape.rank(); ++i) {
      if (out->dtype() == kInt64) {
        out->data<int64_t>()[i] = shape.dim(i);
      } else if (shape.dim(i) > INT32_MAX) {
        return errors::InvalidArgument("dimension ", i, " of ", shape.DebugString(),
                                       " does not fit in an int32");
      } else {
        out->data<int32_t>()[i] = static_cast<int32_t>(shape.dim(i));
      }
    }
    return OkStatus();
  }
};

// Of any kind of resource: the handle says which.
// Readers share a variable's tensor and writers step aside for them, so nothing is copied for a
// read anyhow.
class DisableCopyOnReadKernel : public Kernel {
 public:
  using Kernel::Kernel;
  bool IsExpensive() const override { return false; }
  Status Compute(KernelContext& ctx) override { return InputHandle(ctx, 0).status(); }
};

class DestroyResourceKernel : public Kernel {
 public:
  explicit DestroyResourceKernel(KernelConstruction& c)
      : Kernel(c), ignore_missing_(c.attr<bool>("ignore_lookup_error")) {}
  bool IsExpensive() const override { return false; }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const ResourceHandle* handle, InputHandle(ctx, 0));
    const Status status =
        ctx.resources()->DeleteByTypeHash(handle->container, handle->hash_code, handle->name);
    return ignore_missing_ && errors::IsNotFound(status) ? OkStatus() : status;
  }

 private:
  const bool ignore_missing_;
};

// Rows of a variable, without reading the whole of it.
class ResourceGatherKernel : public Kernel {
 public:
  explicit ResourceGatherKernel(KernelConstruction& c)
      : Kernel(c), batch_dims_(c.attrs().GetOr<int64_t>("batch_dims", 0)) {}

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const ResourceHandle* handle, InputHandle(ctx, 0));
    MR_ASSIGN_OR_RETURN(RefPtr<ResourceVariable> variable, FindVariable(ctx, *handle));
    Tensor params;  // a share: the rows stay as they are while they are copied
    {
      MutexLock lock(&variable->mu);
      params = variable->value;
    }
    const Tensor& indices = ctx.input(1);
    MR_ASSIGN_OR_RETURN(const GatherPlan rows,
                        PlanResourceGather(params.shape(), indices.shape(), batch_dims_));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, rows.out));
    return indices.dtype() == kInt32 ? Copy<int32_t>(rows, params, indices, out)
                                     : Copy<int64_t>(rows, params, indices, out);
  }

 private:
  template <typename Index>
  static Status Copy(const GatherPlan& r, const Tensor& params, const Tensor& indices,
                     Tensor* out) {
    const Index* index = indices.data<Index>();
    Status status;
    const auto copy = [&]<typename T>() {
      const T* from = static_cast<const T*>(params.raw_data());
      T* to = static_cast<T*>(out->raw_data());
      for (int64_t i = 0; i < r.batches * r.per_batch; ++i) {
        const Index at = index[i];
        if (at < 0 || at >= r.limit) {
          status = BadIndex(indices.shape(), i, at, r.limit);
          return;
        }
        const T* source = from + (i / r.per_batch * r.limit + at) * r.inner;
        std::copy_n(source, r.inner, to + i * r.inner);
      }
    };
    if (params.dtype() == kVariant) {
      copy.template operator()<RefPtr<RefCounted>>();
    } else {
      DispatchMovable(params.dtype(), copy);
    }
    return status;
  }

  const int64_t batch_dims_;
};

}  // namespace

void RegisterResourceVariableKernels(KernelRegistry& registry) {
  registry.Register(KernelDef("VarHandleOp"), MakeKernel<VarHandleKernel>);
  registry.Register(KernelDef("ReadVariableOp"), MakeKernel<ReadVariableKernel>);
  registry.Register(KernelDef("AssignVariableOp"), MakeKernel<AssignVariableKernel>);
  for (const char* op : {"AssignAddVariableOp", "AssignSubVariableOp"}) {
    registry.Register(KernelDef(op).Types("dtype", DataTypesOf(NumberTypes())),
                      MakeKernel<UpdateVariableKernel>);
  }
  registry.Register(KernelDef("VarIsInitializedOp"), MakeKernel<VarIsInitializedKernel>);
  registry.Register(KernelDef("VariableShape"), MakeKernel<VariableShapeKernel>);
  registry.Register(KernelDef("DisableCopyOnRead"), MakeKernel<DisableCopyOnReadKernel>);
  registry.Register(KernelDef("DestroyResourceOp"), MakeKernel<DestroyResourceKernel>);
  registry.Register(KernelDef("ResourceGather").Types("Tindices", {kInt32, kInt64}),
                    MakeKernel<ResourceGatherKernel>);
}

}  // namespace millrace
