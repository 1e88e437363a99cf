#include "millrace/shape.h"

#include <algorithm>

#include "base/errors.h"
#include "base/strings.h"

namespace millrace {
namespace {

constexpr std::size_t kMaxRank = 254;  // as TensorFlow's

int64_t Product(std::span<const int64_t> dims) {
  int64_t product = 1;
  for (const int64_t dim : dims) product *= dim;
  return product;
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
  num_elements_ *= size;
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
  num_elements_ *= size;
}

std::string Shape::DebugString() const { return DimsText(dims()); }

StatusOr<Shape> MakeShape(std::span<const int64_t> dims) {
  if (dims.size() > kMaxRank) {
    return errors::InvalidArgument("a shape may have at most ", kMaxRank, " dimensions, not ",
                                   dims.size());
  }
  // Without the zeros as well: a later reshape must not overflow where this did not.
  int64_t product = 1;
  for (const int64_t dim : dims) {
    if (dim < 0) {
      return errors::InvalidArgument("shape ", DimsText(dims), " has a negative size ", dim);
    }
    if (dim > 0 && __builtin_mul_overflow(product, dim, &product)) {
      return errors::InvalidArgument("shape ", DimsText(dims),
                                     " has more elements than fit in 63 bits");
    }
  }
  return Shape(dims);
}

bool PartialShape::IsFullyDefined() const {
  return known_rank_ && std::all_of(dims_.begin(), dims_.end(), [](int64_t d) { return d >= 0; });
}

std::optional<Shape> PartialShape::AsShape() const {
  if (!IsFullyDefined()) return std::nullopt;
  return Shape(dims());
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
    return errors::InvalidArgument("shapes ", DebugString(), " and ", other.DebugString(),
                                   " are not compatible");
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
