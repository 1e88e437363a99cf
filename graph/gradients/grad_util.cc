// SPDX-License-Identifier: Apache-2.0
#include "graph/gradients/grad_util.h"

#include <algorithm>
#include <complex>

#include "graph/gradients/grad_families.h"

namespace millrace {
namespace {

Tensor Int32Vector(const std::vector<int32_t>& values) {
  return Tensor::FromValues<int32_t>(values, Shape({static_cast<int64_t>(values.size())}));
}
// Sizes may need 64 bits.
Tensor SizesOf(const Shape& shape) {
  const std::vector<int64_t> dims(shape.dims().begin(), shape.dims().end());
  return Tensor::FromValues<int64_t>(dims, Shape({shape.rank()}));
}

// The axes of `full` along which a tensor of shape `own` was repeated.
std::vector<int32_t> RepeatedAxes(const Shape& own, const Shape& full) {
  std::vector<int32_t> axes;
  const int missing = full.rank() - own.rank();
  for (int i = 0; i < full.rank(); ++i) {
    if (i < missing || (own.dim(i - missing) == 1 && full.dim(i) != 1)) axes.push_back(i);
  }
  return axes;
}

Output ReduceTo(const Scope& scope, const Output& gradient, const Shape& own, const Shape& full) {
  const std::vector<int32_t> axes = RepeatedAxes(own, full);
  Output result = gradient;
  if (!axes.empty()) result = ops::Sum(scope, result, Int32Vector(axes));
  if (own.rank() + static_cast<int>(axes.size()) != full.rank()) {
    result = ops::Reshape(scope, result, SizesOf(own));
  }
  return result;
}

}  // namespace

void SetBroadcastGradients(GradContext& c, int x_index, Output dx, int y_index, Output dy) {
  const Output x = c.x(x_index), y = c.x(y_index);
  const auto x_shape = x.shape().AsShape(), y_shape = y.shape().AsShape();
  const auto full = c.y().shape().AsShape();
  if (x_shape && y_shape && full) {
    if (dx.valid()) c.set_dx(x_index, ReduceTo(c.scope(), dx, *x_shape, *full));
    if (dy.valid()) c.set_dx(y_index, ReduceTo(c.scope(), dy, *y_shape, *full));
    return;
  }
  const Output sx = ops::Shape(c.scope(), x), sy = ops::Shape(c.scope(), y);
  const auto axes = ops::BroadcastGradientArgs(c.scope(), sx, sy);
  if (dx.valid()) {
    c.set_dx(x_index, ops::Reshape(c.scope(), ops::Sum(c.scope(), dx, axes.r0), sx));
  }
  if (dy.valid()) {
    c.set_dx(y_index, ops::Reshape(c.scope(), ops::Sum(c.scope(), dy, axes.r1), sy));
  }
}

void SetReducedGradient(GradContext& c, int index, const Output& dx) {
  const Scope& s = c.scope();
  const auto own = c.x(index).shape().AsShape(), full = c.y().shape().AsShape();
  if (own && full && *own == *full) return c.set_dx(index, dx);
  const Output shape = ops::Shape(s, c.x(index));
  const auto axes = ops::BroadcastGradientArgs(s, shape, ops::Shape(s, c.y()));
  c.set_dx(index, ops::Reshape(s, ops::Sum(s, dx, axes.r0), shape));
}

bool IsComplexOutput(const Output& x) {
  const DataType type = BaseType(x.dtype());
  return type == kComplex64 || type == kComplex128;
}

Output Conjugate(const Scope& scope, const Output& x) {
  return IsComplexOutput(x) ? Output(ops::Conj(scope, x)) : x;
}

Output ConstantLike(const Scope& scope, const Output& like, double value) {
  switch (BaseType(like.dtype())) {
    case DataType::kDouble:
      return ops::Const(scope, Tensor::Scalar<double>(value), kDouble);
    case DataType::kHalf:
      return ops::Const(scope, Tensor::Scalar(Half(static_cast<float>(value))), kHalf);
    case DataType::kBfloat16:
      return ops::Const(scope, Tensor::Scalar(BFloat16(static_cast<float>(value))), kBfloat16);
    case DataType::kComplex64:
      return ops::Const(scope,
                        Tensor::Scalar<std::complex<float>>({static_cast<float>(value), 0.0f}),
                        kComplex64);
    case DataType::kComplex128:
      return ops::Const(scope, Tensor::Scalar<std::complex<double>>({value, 0.0}), kComplex128);
    default:
      return ops::Const(scope, Tensor::Scalar<float>(static_cast<float>(value)), kFloat);
  }
}

Output ZerosFor(const Scope& scope, const Output& x, DataType dtype) {
  if (BaseType(x.dtype()) != kResource) return ops::ZerosLike(scope, x);
  return ops::ZerosLike(scope, ops::ReadVariableOp(scope, x, BaseType(dtype)));
}

}  // namespace millrace
