// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/bad_slice.h"

#include <string>

#include "base/errors.h"
#include "base/strings.h"

namespace millrace {
namespace {

int64_t IndexAt(const Tensor& indices, int64_t i) {
  switch (indices.dtype()) {
    case kInt16:
      return indices.data<int16_t>()[i];
    case kInt32:
      return indices.data<int32_t>()[i];
    default:
      return indices.data<int64_t>()[i];
  }
}

}  // namespace

Status BadSlice(const Tensor& indices, int64_t row, std::string_view what, const Shape& shape) {
  const int last = indices.rank() - 1;
  const int64_t depth = indices.dim(last);
  std::string index;
  for (int64_t k = 0; k < depth; ++k) {
    index = StrCat(index, k == 0 ? "" : ", ", IndexAt(indices, row * depth + k));
  }
  std::string place;
  for (int axis = last - 1; axis >= 0; row /= indices.dim(axis--)) {
    place = StrCat(row % indices.dim(axis), place.empty() ? "" : ",", place);
  }
  return errors::InvalidArgument("indices[", place, "] = [", index, "] does not index into ", what,
                                 " ", shape.DebugString());
}

}  // namespace millrace
