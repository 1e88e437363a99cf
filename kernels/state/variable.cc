// SPDX-License-Identifier: Apache-2.0
#include "kernels/state/variable.h"

#include <algorithm>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/element_copy.h"

namespace millrace {

std::string VariableState::DebugString() const {
  auto* self = const_cast<VariableState*>(this);
  MutexLock lock(&self->mu);
  return StrCat("variable ", DataTypeName(value.dtype()), " ", value.shape().DebugString());
}

StatusOr<const ResourceHandle*> InputHandle(KernelContext& ctx, int i) {
  const Tensor& input = ctx.input(i);
  if (input.dtype() != kResource || input.num_elements() != 1) {
    return errors::InvalidArgument("input ", i, " must be one resource handle, got ",
                                   input.DebugString(1));
  }
  return &input.scalar<ResourceHandle>();
}

StatusOr<RefPtr<ResourceVariable>> FindVariable(KernelContext& ctx, const ResourceHandle& handle) {
  StatusOr<RefPtr<ResourceVariable>> found =
      ctx.resources()->Lookup<ResourceVariable>(handle.container, handle.name);
  if (found.ok()) return found;
  return errors::FailedPrecondition(
      "Could not find variable ", handle.name,
      ". This could mean that the variable has been deleted. In TF1, it can also mean the "
      "variable is uninitialized. Debug info: container=",
      handle.container, ", device=", handle.device,
      ", status error message=", Message(found.status()));
}

void CopyElements(const Tensor& from, Tensor* to) {
  // Elements that are objects are counted, and never copied as bytes.
  CopyRange(from, 0, to, 0, from.num_elements());
}

Status MakeExclusive(Allocator* allocator, Tensor* value) {
  if (value->num_elements() == 0 || value->OwnsBufferAlone()) return OkStatus();
  MR_ASSIGN_OR_RETURN(Tensor copy, Tensor::Allocate(allocator, value->dtype(), value->shape()));
  CopyElements(*value, &copy);
  *value = std::move(copy);
  return OkStatus();
}

Status AssignValue(Allocator* allocator, const Tensor& source, Tensor* value) {
  // A small piece of a large buffer would keep the whole of it alive.
  if (source.OwnsBufferAlone() && source.buffer()->space() == MemorySpace::kHost &&
      source.buffer()->size() <= 2 * source.num_bytes() + 4096) {
    *value = source;
    return OkStatus();
  }
  // The host cannot copy it, nor does it have to: an update copies what others share.
  if (source.buffer() != nullptr && source.buffer()->space() == MemorySpace::kDevice) {
    *value = source;
    return OkStatus();
  }
  if (value->dtype() == source.dtype() && value->num_elements() == source.num_elements() &&
      value->OwnsBufferAlone() && IsMemcpyable(source.dtype())) {
    CopyElements(source, value);
    if (!(value->shape() == source.shape())) {
      MR_ASSIGN_OR_RETURN(*value, value->Reshaped(source.shape()));
    }
    return OkStatus();
  }
  MR_ASSIGN_OR_RETURN(Tensor copy, Tensor::Allocate(allocator, source.dtype(), source.shape()));
  CopyElements(source, &copy);
  *value = std::move(copy);
  return OkStatus();
}

// The set of locks is known at run time only: beyond what the analysis can follow.
LockedVariables::~LockedVariables() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  for (int i = locked_; i-- > 0;) mutexes_[i]->Unlock();
}

Status LockedVariables::Lock(KernelContext& ctx, int count,
                             DataType dtype) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  count_ = count;
  for (int i = 0; i < count; ++i) {
    if (ctx.input_is_ref(i)) {
      values_[i] = ctx.input_ref(i);
      mutexes_[i] = ctx.input_ref_mutex(i);
    } else {
      MR_ASSIGN_OR_RETURN(const ResourceHandle* handle, InputHandle(ctx, i));
      MR_ASSIGN_OR_RETURN(held_[i], FindVariable(ctx, *handle));
      values_[i] = &held_[i]->value;
      mutexes_[i] = &held_[i]->mu;
    }
  }
  std::sort(mutexes_.begin(), mutexes_.begin() + count);
  const auto end = std::unique(mutexes_.begin(), mutexes_.begin() + count);
  const int unique = static_cast<int>(end - mutexes_.begin());
  for (; locked_ < unique; ++locked_) mutexes_[locked_]->Lock();
  for (int i = 0; i < count; ++i) {
    if (!values_[i]->IsInitialized()) {
      return errors::FailedPrecondition("Attempting to use uninitialized variable in input ", i,
                                        " of ", ctx.node_name());
    }
    if (values_[i]->dtype() != dtype) {
      return errors::InvalidArgument("the variable in input ", i, " is of type ",
                                     DataTypeName(values_[i]->dtype()), ", expected ",
                                     DataTypeName(dtype));
    }
  }
  return OkStatus();
}

Status LockedVariables::MakeExclusive(KernelContext& ctx) {
  for (int i = 0; i < count_; ++i) {
    MR_RETURN_IF_ERROR(millrace::MakeExclusive(ctx.allocator(), values_[i]));
  }
  return OkStatus();
}

void AddTo(KernelContext& ctx, const Tensor& operand, bool subtract, Tensor* value) {
  DispatchType(NumberTypes(), operand.dtype(), [&]<typename T>() {
    using C = ComputeType<T>;
    T* to = value->data<T>();
    const T* by = operand.data<T>();
    ctx.ParallelFor(value->num_elements(), 0.5, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const C a = static_cast<C>(to[i]), b = static_cast<C>(by[i]);
        to[i] = static_cast<T>(subtract ? a - b : a + b);
      }
    });
  });
}

}  // namespace millrace
