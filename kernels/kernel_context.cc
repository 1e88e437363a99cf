#include "kernels/kernel_context.h"

#include <utility>

#include "base/errors.h"
#include "base/thread_pool.h"
#include "tensor/allocator.h"

namespace millrace {

Tensor KernelContext::locked_input(int i) const {
  const EdgeValue& v = inputs_[i];
  if (v.kind != EdgeValue::Kind::kRef) return v.value;
  MutexLock lock(v.ref_mu);
  return *v.ref;
}

StatusOr<Tensor*> KernelContext::AllocateOutput(int i, const Shape& shape) {
  StatusOr<Tensor> tensor = Tensor::Allocate(allocator(), BaseType(output_types_[i]), shape);
  if (!tensor.ok()) return std::move(tensor).status();
  EdgeValue& out = outputs_[i];
  out.value = *std::move(tensor);
  out.kind = EdgeValue::Kind::kValue;
  return &out.value;
}

StatusOr<Tensor*> KernelContext::ForwardOrAllocateOutput(std::initializer_list<int> candidates,
                                                         int i, const Shape& shape) {
  const DataType dtype = BaseType(output_types_[i]);
  for (int c : candidates) {
    const EdgeValue& in = inputs_[c];
    if (in.kind != EdgeValue::Kind::kValue || !in.value.OwnsBufferAlone()) continue;
    const bool same_bytes =
        in.value.dtype() == dtype || (IsMemcpyable(dtype) && IsMemcpyable(in.value.dtype()) &&
                                      DataTypeSize(dtype) == DataTypeSize(in.value.dtype()));
    if (!same_bytes || in.value.num_elements() != shape.num_elements() ||
        in.value.buffer()->space() != allocator()->space()) {
      continue;
    }
    // The input stays readable: the kernel works in place, element by element.
    EdgeValue& out = outputs_[i];
    out.value = Tensor(dtype, shape, RefPtr<Buffer>::Share(in.value.buffer()), in.value.raw_data());
    out.kind = EdgeValue::Kind::kValue;
    return &out.value;
  }
  return AllocateOutput(i, shape);
}

StatusOr<Tensor> KernelContext::AllocateTemp(DataType dtype, const Shape& shape) {
  return Tensor::Allocate(allocator(), dtype, shape);
}

void KernelContext::SetOutput(int i, Tensor value) {
  outputs_[i].value = std::move(value);
  outputs_[i].kind = EdgeValue::Kind::kValue;
}

void KernelContext::SetOutputRef(int i, Mutex* mu, Tensor* ref) {
  EdgeValue& out = outputs_[i];
  out.ref = ref;
  out.ref_mu = mu;
  out.kind = EdgeValue::Kind::kRef;
}

void KernelContext::ForwardRef(int input, int i) {
  SetOutputRef(i, inputs_[input].ref_mu, inputs_[input].ref);
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
