// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/element_copy.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/variant.h"
#include "tensor/allocator.h"

namespace millrace {

void CopyRange(const Tensor& from, int64_t from_at, Tensor* to, int64_t to_at, int64_t n) {
  if (n <= 0) return;
  if (from.dtype() == kString) {
    std::copy_n(from.data<std::string>() + from_at, n, to->data<std::string>() + to_at);
  } else if (from.dtype() == kResource) {
    std::copy_n(from.data<ResourceHandle>() + from_at, n, to->data<ResourceHandle>() + to_at);
  } else if (from.dtype() == kVariant) {
    std::copy_n(from.data<Variant>() + from_at, n, to->data<Variant>() + to_at);
  } else {
    const std::size_t size = DataTypeSize(from.dtype());
    std::memcpy(static_cast<char*>(to->raw_data()) + to_at * size,
                static_cast<const char*>(from.raw_data()) + from_at * size, n * size);
  }
}

void ClearRange(Tensor* to, int64_t at, int64_t n) {
  if (n <= 0) return;
  if (to->dtype() == kString) {
    std::fill_n(to->data<std::string>() + at, n, std::string());
  } else if (to->dtype() == kResource) {
    std::fill_n(to->data<ResourceHandle>() + at, n, ResourceHandle());
  } else if (to->dtype() == kVariant) {
    std::fill_n(to->data<Variant>() + at, n, Variant());
  } else {
    const std::size_t size = DataTypeSize(to->dtype());
    std::memset(static_cast<char*>(to->raw_data()) + at * size, 0, n * size);
  }
}

StatusOr<Tensor> ZeroTensor(Allocator* allocator, DataType dtype, const Shape& shape) {
  MR_ASSIGN_OR_RETURN(Tensor zeros, Tensor::Allocate(allocator, dtype, shape));
  ClearRange(&zeros, 0, shape.num_elements());
  return zeros;
}

StatusOr<Tensor> StackTensors(Allocator* allocator, DataType dtype, const Shape& element,
                              std::span<const Tensor> parts) {
  Dims dims = {static_cast<int64_t>(parts.size())};
  dims.insert(dims.end(), element.dims().begin(), element.dims().end());
  MR_ASSIGN_OR_RETURN(const Shape shape, MakeShape(dims));
  MR_ASSIGN_OR_RETURN(Tensor whole, Tensor::Allocate(allocator, dtype, shape));
  const int64_t row = element.num_elements();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    CopyRange(parts[i], 0, &whole, static_cast<int64_t>(i) * row, row);
  }
  return whole;
}

StatusOr<Tensor> CopyOfRow(Allocator* allocator, const Tensor& whole, int64_t row) {
  const Shape element(whole.shape().dims().subspan(1));
  MR_ASSIGN_OR_RETURN(Tensor copy, Tensor::Allocate(allocator, whole.dtype(), element));
  const int64_t n = element.num_elements();
  CopyRange(whole, row * n, &copy, 0, n);
  return copy;
}

StatusOr<Tensor> AddTensors(Allocator* allocator, const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || !(a.shape() == b.shape())) {
    return errors::InvalidArgument("cannot add ", a.shape().DebugString(), " and ",
                                   b.shape().DebugString());
  }
  MR_ASSIGN_OR_RETURN(Tensor sum, Tensor::Allocate(allocator, a.dtype(), a.shape()));
  const bool known = DispatchType(NumberTypes(), a.dtype(), [&]<typename T>() {
    using C = ComputeType<T>;
    const T *x = a.data<T>(), *y = b.data<T>();
    T* out = sum.data<T>();
    for (int64_t i = 0; i < sum.num_elements(); ++i) {
      out[i] = static_cast<T>(static_cast<C>(x[i]) + static_cast<C>(y[i]));
    }
  });
  if (!known) return errors::InvalidArgument("cannot add tensors of ", DataTypeName(a.dtype()));
  return sum;
}

}  // namespace millrace
