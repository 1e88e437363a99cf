// SPDX-License-Identifier: Apache-2.0
#include "millrace/shape.h"

#include <algorithm>

#include "base/errors.h"
#include "base/strings.h"

namespace millrace {
namespace {

constexpr std::size_t kMaxRank = 254;  // as TensorFlow's

// -1 if no tensor can have these sizes. The zeros are left out at first: a later reshape, or the
// loops over the other axes, must not overflow where this did not.
int64_t Product(std::span<const int64_t> dims) {
  if (dims.size() > kMaxRank) return -1;
  int64_t product = 1;
  bool empty = false;
  for (const int64_t dim : dims) {
    if (dim < 0) return -1;
    if (dim == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(product, dim, &product)) {
      return -1;
    }
  }
  return empty ? 0 : product;
}

std::string DimsText(std::span<const int64_t> dims) {
  std::string out = "[";
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (i > 0) out += ',';
    if (dims[i] < 0) {
      out += '?';
    } else {
      StrAppend(&out, dims[i]);
    }
  }
  out += ']';
  return out;
}

}  // namespace

Shape::Shape(std::span<const int64_t> dims)
    : dims_(dims.begin(), dims.end()), num_elements_(Product(dims)) {}

void Shape::AddDim(int64_t size) {
  dims_.push_back(size);
  num_elements_ = Product(dims());
}

void Shape::SetDim(int i, int64_t size) {
  dims_[i] = size;
  num_elements_ = Product(dims());
}

void Shape::RemoveDim(int i) {
  dims_.erase(dims_.begin() + i);
  num_elements_ = Product(dims());
}

void Shape::InsertDim(int i, int64_t size) {
  dims_.insert(dims_.begin() + i, size);
  num_elements_ = Product(dims());
}

std::string Shape::DebugString() const { return DimsText(dims()); }

StatusOr<Shape> MakeShape(std::span<const int64_t> dims) {
  if (dims.size() > kMaxRank) {
    return errors::InvalidArgument("a shape may have at most ", kMaxRank, " dimensions, not ",
                                   dims.size());
  }
  Shape shape(dims);
  if (shape.is_valid()) return shape;
  for (const int64_t dim : dims) {
    if (dim < 0) {
      return errors::InvalidArgument("shape ", DimsText(dims), " has a negative size ", dim);
    }
  }
  int64_t count = 1, product;
  for (const int64_t dim : dims) {
    if (__builtin_mul_overflow(count, dim, &product)) {
      return errors::InvalidArgument("Encountered overflow when multiplying ", count, " with ", dim,
                                     ", result: -1: shape ", DimsText(dims),
                                     " has more elements than fit in 63 bits");
    }
    count = product;
  }
  return errors::InvalidArgument("shape ", DimsText(dims), " is not valid");
}

bool PartialShape::IsFullyDefined() const {
  return known_rank_ && std::all_of(dims_.begin(), dims_.end(), [](int64_t d) { return d >= 0; });
}

std::optional<Shape> PartialShape::AsShape() const {
  if (!IsFullyDefined()) return std::nullopt;
  Shape shape(dims());
  if (!shape.is_valid()) return std::nullopt;
  return shape;
}

bool PartialShape::IsCompatibleWith(const PartialShape& other) const {
  if (!known_rank_ || !other.known_rank_) return true;
  if (dims_.size() != other.dims_.size()) return false;
  for (std::size_t i = 0; i < dims_.size(); ++i) {
    if (dims_[i] >= 0 && other.dims_[i] >= 0 && dims_[i] != other.dims_[i]) return false;
  }
  return true;
}

StatusOr<PartialShape> PartialShape::MergeWith(const PartialShape& other) const {
  if (!IsCompatibleWith(other)) {
    // known ranks, both
    if (rank() != other.rank()) {
      return errors::InvalidArgument(
          "PartialTensorShape: Incompatible ranks during merge: ", rank(), " vs. ", other.rank(),
          " (", DebugString(), " and ", other.DebugString(), ")");
    }
    return errors::InvalidArgument("PartialTensorShape: Incompatible shapes during merge: ",
                                   DebugString(), " vs. ", other.DebugString());
  }
  if (!known_rank_) return other;
  PartialShape merged = *this;
  if (other.known_rank_) {
    for (int i = 0; i < rank(); ++i) {
      if (merged.dim(i) < 0) merged.SetDim(i, other.dim(i));
    }
  }
  return merged;
}

std::string PartialShape::DebugString() const {
  return known_rank_ ? DimsText(dims()) : "<unknown>";
}

}  // namespace millrace
