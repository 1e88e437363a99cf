// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/kernel_util.h"

#include <limits>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/dtype_dispatch.h"

namespace millrace {

StatusOr<Dims> IntVector(const Tensor& t, std::string_view what, bool vector_only) {
  if (t.rank() > 1 || (vector_only && t.rank() != 1)) {
    return errors::InvalidArgument(what, " must be ", vector_only ? "" : "a scalar or ",
                                   "a vector of integers, got shape ", t.shape().DebugString());
  }
  Dims out(t.num_elements());
  const bool known =
      DispatchType(TypeList<int32_t, int64_t, int16_t, int8_t, uint8_t, uint16_t, uint32_t>(),
                   t.dtype(), [&]<typename T>() {
                     const T* values = t.data<T>();
                     for (std::size_t i = 0; i < out.size(); ++i) {
                       out[i] = static_cast<int64_t>(values[i]);
                     }
                   });
  if (!known) {
    return errors::InvalidArgument(what, " must be integers, got ", DataTypeName(t.dtype()));
  }
  return out;
}

StatusOr<int64_t> IntScalar(const Tensor& t, std::string_view what) {
  if (t.rank() != 0) {
    return errors::InvalidArgument(what, " must be a scalar, got shape ", t.shape().DebugString());
  }
  MR_ASSIGN_OR_RETURN(const Dims values, IntVector(t, what));
  return values[0];
}

StatusOr<Shape> ShapeFromTensor(const Tensor& t, std::string_view what) {
  MR_ASSIGN_OR_RETURN(const Dims dims, IntVector(t, what));
  for (int64_t d : dims) {
    if (d < 0) return errors::InvalidArgument(what, " must not have negative sizes, got ", d);
  }
  return MakeShape(std::span<const int64_t>(dims.data(), dims.size()));
}

StatusOr<int> NormalizeAxis(int64_t axis, int rank, std::string_view what) {
  if (axis < -rank || axis >= rank) {
    return errors::InvalidArgument(what, " must be in the range [", -rank, ", ", rank, "), got ",
                                   axis);
  }
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

Status CheckFits(DataType dtype, std::span<const int64_t> values) {
  if (dtype != DataType::kInt32) return OkStatus();
  for (int64_t v : values) {
    if (v > std::numeric_limits<int32_t>::max()) {
      return errors::InvalidArgument("the value ", v, " does not fit in int32");
    }
  }
  return OkStatus();
}

Tensor IndexTensor(DataType dtype, std::span<const int64_t> values) {
  // Bounded: by the values, which are in memory.
  Tensor out(dtype, Shape({static_cast<int64_t>(values.size())}));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (dtype == DataType::kInt32) {
      out.data<int32_t>()[i] = static_cast<int32_t>(values[i]);
    } else {
      out.data<int64_t>()[i] = values[i];
    }
  }
  return out;
}

}  // namespace millrace
