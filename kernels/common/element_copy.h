// SPDX-License-Identifier: Apache-2.0
// Moving elements of any type between tensors, and putting tensors together along their first
// axis. Everything here is pure and checks nothing that the caller could not know.
#ifndef KERNELS_COMMON_ELEMENT_COPY_H_
#define KERNELS_COMMON_ELEMENT_COPY_H_

#include <cstdint>
#include <span>

#include "millrace/dtype.h"
#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {

// Copies elements [from_at, from_at + n) of `from` to [to_at, ...) of `to`. Types are equal,
// ranges are valid and the buffers do not overlap.
void CopyRange(const Tensor& from, int64_t from_at, Tensor* to, int64_t to_at, int64_t n);

// Sets elements [at, at + n) to zero, false or empty.
void ClearRange(Tensor* to, int64_t at, int64_t n);

// A tensor of zeros.
StatusOr<Tensor> ZeroTensor(Allocator* allocator, DataType dtype, const Shape& shape);

// `parts`, all of shape `element`, along a new first axis.
StatusOr<Tensor> StackTensors(Allocator* allocator, DataType dtype, const Shape& element,
                              std::span<const Tensor> parts);

// Element `row` of the first axis, in a buffer of its own: it does not keep the whole alive.
StatusOr<Tensor> CopyOfRow(Allocator* allocator, const Tensor& whole, int64_t row);

// a + b element by element into a new tensor. InvalidArgument if the shapes differ or the type
// is not a number.
StatusOr<Tensor> AddTensors(Allocator* allocator, const Tensor& a, const Tensor& b);

}  // namespace millrace

#endif  // KERNELS_COMMON_ELEMENT_COPY_H_
