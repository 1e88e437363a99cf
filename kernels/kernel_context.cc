// SPDX-License-Identifier: Apache-2.0
#include "kernels/kernel_context.h"

#include <utility>

#include "base/errors.h"
#include "base/thread_pool.h"
#include "tensor/allocator.h"

namespace millrace {

Tensor KernelContext::locked_input(int i) const {
  const EdgeValue& v = in(i);
  if (v.kind != EdgeValue::Kind::kRef) return v.value;
  MutexLock lock(v.ref_mu);
  return *v.ref;
}

StatusOr<Tensor*> KernelContext::AllocateOutput(int i, const Shape& shape) {
  const DataType dtype = BaseType(values_.output_types[i]);
  EdgeValue& to = out(i);
  const int64_t count = shape.num_elements();
  int64_t bytes = 0;
  RefPtr<Buffer> buffer;
  if (IsMemcpyable(dtype) && count > 0 &&
      !__builtin_mul_overflow(static_cast<std::size_t>(count), DataTypeSize(dtype), &bytes)) {
    buffer = allocator_->Allocate(bytes);
  }
  if (buffer) [[likely]] {
    void* const data = buffer->data();
    to.value = Tensor(dtype, shape, std::move(buffer), data);
  } else {  // no elements, elements with constructors, or an error to be worded
    StatusOr<Tensor> tensor = Tensor::Allocate(allocator_, dtype, shape);
    if (!tensor.ok()) return std::move(tensor).status();
    to.value = *std::move(tensor);
  }
  to.kind = EdgeValue::Kind::kValue;
  return &to.value;
}

StatusOr<Tensor*> KernelContext::ForwardOrAllocateOutput(std::initializer_list<int> candidates,
                                                         int i, const Shape& shape) {
  const DataType dtype = BaseType(values_.output_types[i]);
  for (int c : candidates) {
    EdgeValue& from = in(c);
    if (from.kind != EdgeValue::Kind::kValue || !IsLastReader(c) || !from.value.OwnsBufferAlone()) {
      continue;
    }
    Tensor& value = from.value;
    const bool same_bytes =
        value.dtype() == dtype || (IsMemcpyable(dtype) && IsMemcpyable(value.dtype()) &&
                                   DataTypeSize(dtype) == DataTypeSize(value.dtype()));
    if (!same_bytes || value.num_elements() != shape.num_elements() ||
        value.buffer()->space() != allocator_->space()) {
      continue;
    }
    // The kernel works in place, element by element: the input stays readable as a view of what
    // the output owns from now on. Taking the share over costs no atomic operation.
    EdgeValue& to = out(i);
    void* const data = value.raw_data();
    if (value.dtype() == dtype && value.shape() == shape) {
      to.value = std::move(value);
      value = Tensor(dtype, to.value.shape(), nullptr, data);
    } else {
      to.value = Tensor(dtype, shape, RefPtr<Buffer>::Share(value.buffer()), data);
      value = Tensor(value.dtype(), Shape(value.shape()), nullptr, data);
    }
    to.kind = EdgeValue::Kind::kValue;
    return &to.value;
  }
  return AllocateOutput(i, shape);
}

StatusOr<Tensor> KernelContext::AllocateTemp(DataType dtype, const Shape& shape) {
  return Tensor::Allocate(allocator(), dtype, shape);
}

void KernelContext::SetOutput(int i, Tensor value) {
  EdgeValue& to = out(i);
  to.value = std::move(value);
  to.kind = EdgeValue::Kind::kValue;
}

void KernelContext::SetOutputRef(int i, Mutex* mu, Tensor* ref) {
  EdgeValue& to = out(i);
  to.ref = ref;
  to.ref_mu = mu;
  to.kind = EdgeValue::Kind::kRef;
}

void KernelContext::ForwardRef(int input, int i) {
  SetOutputRef(i, in(input).ref_mu, in(input).ref);
}

void KernelContext::ParallelFor(int64_t n, double cost_per_unit,
                                absl::FunctionRef<void(int64_t, int64_t)> body) const {
  if (n <= 0) return;
  if (ThreadPool* pool = intra_op_pool(); pool != nullptr) {
    pool->ParallelFor(n, cost_per_unit, body);
  } else {
    body(0, n);
  }
}

}  // namespace millrace
