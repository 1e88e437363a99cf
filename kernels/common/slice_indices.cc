// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/slice_indices.h"

#include "base/errors.h"
#include "base/strings.h"

namespace millrace {

std::string IndexText(const Shape& shape, int64_t flat) {
  std::string text;
  for (int k = shape.rank() - 1; k >= 0; --k) {
    text = StrCat(flat % shape.dim(k), text.empty() ? "" : ",", text);
    flat /= shape.dim(k);
  }
  return text;
}

Status BadIndex(const Shape& indices, int64_t flat, int64_t value, int64_t limit) {
  const std::string place = IndexText(indices, flat);
  return errors::InvalidArgument("indices", place.empty() ? "" : StrCat("[", place, "]"), " = ",
                                 value, " is not in [0, ", limit, ")");
}

Status BadSlice(const Tensor& indices, int64_t row, std::string_view what, const Shape& shape) {
  Shape places = indices.shape();
  const int64_t depth = places.dim(places.rank() - 1);
  places.RemoveDim(places.rank() - 1);
  std::string index;
  for (int64_t k = 0; k < depth; ++k) {
    index = StrCat(index, k == 0 ? "" : ", ", IndexAt(indices, row * depth + k));
  }
  return errors::InvalidArgument("indices[", IndexText(places, row), "] = [", index,
                                 "] does not index into ", what, " ", shape.DebugString());
}

}  // namespace millrace
