// SPDX-License-Identifier: Apache-2.0
#include "model/layers/layer_util.h"

#include <algorithm>
#include <cctype>

#include "base/errors.h"
#include "base/strings.h"

namespace millrace::layers {

std::string SnakeCase(std::string_view kind) {
  const auto upper = [&](std::size_t i) {
    return i < kind.size() && std::isupper(static_cast<unsigned char>(kind[i])) != 0;
  };
  const auto lower = [&](std::size_t i) {
    return i < kind.size() && std::islower(static_cast<unsigned char>(kind[i])) != 0;
  };
  std::string name;
  for (std::size_t i = 0; i < kind.size(); ++i) {
    // A word begins at a capital that a small letter follows, or that follows one.
    if (i > 0 && upper(i) && (lower(i + 1) || lower(i - 1))) name += '_';
    name += static_cast<char>(std::tolower(static_cast<unsigned char>(kind[i])));
  }
  return name;
}

std::string PlaceOf(std::source_location where) {
  std::string_view file = where.file_name();
  file.remove_prefix(file.rfind('/') + 1);
  return StrCat(file, ":", where.line());
}

Output ReadNow(const Scope& scope, const Variable& variable) {
  return variable.is_resource() ? ops::ReadVariableOp(scope, variable.handle, variable.dtype())
                                : ops::Identity(scope, variable.handle);
}

Tensor Ints(std::span<const int64_t> values) {
  const std::vector<int32_t> small(values.begin(), values.end());
  return Tensor::FromValues<int32_t>(small, Shape({static_cast<int64_t>(small.size())}));
}

std::vector<int64_t> DimsOf(const Output& x, int first) {
  const PartialShape shape = x.shape();
  std::vector<int64_t> dims;
  for (int i = first; i < shape.rank(); ++i) dims.push_back(shape.dim(i));
  return dims;
}

int AxisOf(const Output& x, int axis) {
  const int rank = x.shape().rank();
  const int from_front = axis < 0 ? axis + rank : axis;
  return from_front >= 0 && from_front < rank ? from_front : -1;
}

int64_t DimOf(const Output& x, int axis) {
  const int i = AxisOf(x, axis);
  return i < 0 ? -1 : x.shape().dim(i);
}

Output RunDim(const Scope& scope, const Output& x, int axis) {
  const int32_t i = AxisOf(x, axis);
  return ops::StridedSlice(scope, ops::Shape(scope, x), Tensor::FromValues<int32_t>({i}),
                           Tensor::FromValues<int32_t>({i + 1}), Tensor::FromValues<int32_t>({1}),
                           {.shrink_axis_mask = 1});
}

Output ShapeLike(const Scope& scope, const Output& x, std::span<const int64_t> dims) {
  if (std::find(dims.begin(), dims.end(), -1) == dims.end()) return Constant(scope, Ints(dims));
  std::vector<Input> sizes;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] >= 0) {
      sizes.emplace_back(static_cast<int32_t>(dims[i]));
    } else {
      sizes.emplace_back(RunDim(scope, x, static_cast<int>(i)));
    }
  }
  return ops::Pack(scope, sizes);
}

Output ReshapeLike(const Scope& scope, const Output& y, const Output& x,
                   std::span<const int64_t> dims) {
  if (std::count(dims.begin(), dims.end(), -1) <= 1) return ReshapeTo(scope, y, dims);
  return ops::Reshape(scope, y, ShapeLike(scope, x, dims));
}

Output ReshapeTo(const Scope& scope, const Output& x, std::span<const int64_t> dims) {
  return ops::Reshape(scope, x, Ints(dims));
}

StatusOr<DataType> ComputeTypeOf(std::string_view policy) {
  if (policy == "float32") return kFloat;
  if (policy == "mixed_bfloat16") return kBfloat16;
  if (policy == "mixed_float16") return kHalf;
  return errors::InvalidArgument("there is no precision '", policy,
                                 "'; there are float32, mixed_bfloat16, mixed_float16");
}

bool IsSmallFloat(DataType dtype) { return dtype == kHalf || dtype == kBfloat16; }

Output CastTo(const Scope& scope, const Output& x, DataType dtype) {
  return !x.valid() || x.dtype() == dtype ? x : ops::Cast(scope, x, dtype);
}

initializers::Initializer Or(const initializers::Initializer& given,
                             initializers::Initializer otherwise) {
  return given ? given : otherwise;
}

}  // namespace millrace::layers
