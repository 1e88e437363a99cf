// SPDX-License-Identifier: Apache-2.0
// Shapes: of tensors (Shape, every dimension known) and of graph outputs before they
// are computed (PartialShape).
#ifndef MILLRACE_SHAPE_H_
#define MILLRACE_SHAPE_H_

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>

#include "millrace/dims.h"
#include "millrace/status.h"

namespace millrace {

// A fully known shape. A default Shape is a scalar's: rank 0, one element. Sizes that no tensor can
// have (negative ones, a product without the zeros that does not fit in an int64, more than 254 of
// them) make it invalid: whatever allocates or reshapes refuses it. MakeShape says why.
class Shape {
 public:
  Shape() = default;
  // Sizes of all dimensions: Shape({2, 3}).
  Shape(std::initializer_list<int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}
  // Sizes of which there may be any number.
  explicit Shape(std::span<const int64_t> dims);

  // The number of dimensions.
  int rank() const { return static_cast<int>(dims_.size()); }
  // The size of dimension i, counted from 0, which must exist.
  int64_t dim(int i) const { return dims_[i]; }
  // All sizes; valid until the shape is changed or gone.
  std::span<const int64_t> dims() const { return {dims_.data(), dims_.size()}; }
  // The product of the sizes, 1 for a scalar; -1 if it is not valid.
  int64_t num_elements() const { return num_elements_; }
  // Whether a tensor can have it.
  bool is_valid() const { return num_elements_ >= 0; }

  // Appends a dimension.
  void AddDim(int64_t size);
  // Changes the size of dimension i, which must exist.
  void SetDim(int i, int64_t size);
  // Removes dimension i, which must exist.
  void RemoveDim(int i);
  // Inserts a dimension before dimension i; i may be the rank.
  void InsertDim(int i, int64_t size);

  // "[2,3]"; "[]" for a scalar.
  std::string DebugString() const;
  friend bool operator==(const Shape& a, const Shape& b) { return a.dims_ == b.dims_; }

 private:
  Dims dims_;
  int64_t num_elements_ = 1;
};

// A shape from untrusted sizes. InvalidArgument if a size is negative, the rank exceeds
// 254 or the product does not fit in an int64.
StatusOr<Shape> MakeShape(std::span<const int64_t> dims);

// A shape in which the rank or single dimensions may be unknown (-1).
class PartialShape {
 public:
  // Unknown rank.
  PartialShape() : known_rank_(false) {}
  // Sizes, of which -1 are unknown: PartialShape({-1, 784}).
  PartialShape(std::initializer_list<int64_t> dims)
      : known_rank_(true), dims_(dims.begin(), dims.end()) {}
  // Sizes, of which -1 are unknown.
  explicit PartialShape(std::span<const int64_t> dims)
      : known_rank_(true), dims_(dims.begin(), dims.end()) {}
  // A shape that is known.
  PartialShape(const Shape& shape)  // NOLINT: every Shape is a PartialShape
      : PartialShape(shape.dims()) {}

  // Whether the number of dimensions is known.
  bool has_rank() const { return known_rank_; }
  // -1 if the rank is unknown.
  int rank() const { return known_rank_ ? static_cast<int>(dims_.size()) : -1; }
  // The size of dimension i, which must exist; -1 if unknown.
  int64_t dim(int i) const { return dims_[i]; }
  // All sizes, -1 for unknown ones; none if the rank is unknown.
  std::span<const int64_t> dims() const { return {dims_.data(), dims_.size()}; }
  // Appends a dimension; the rank must be known.
  void AddDim(int64_t size) { dims_.push_back(size); }
  // Changes the size of dimension i, which must exist.
  void SetDim(int i, int64_t size) { dims_[i] = size; }

  // Whether rank and all sizes are known.
  bool IsFullyDefined() const;
  // The Shape, if fully defined and valid.
  std::optional<Shape> AsShape() const;
  // True if no dimension known in both differs.
  bool IsCompatibleWith(const PartialShape& other) const;
  // Union of what both know; InvalidArgument if they contradict.
  StatusOr<PartialShape> MergeWith(const PartialShape& other) const;

  // "<unknown>" or "[?,784]".
  std::string DebugString() const;
  friend bool operator==(const PartialShape& a, const PartialShape& b) {
    return a.known_rank_ == b.known_rank_ && a.dims_ == b.dims_;
  }

 private:
  bool known_rank_;
  Dims dims_;
};

}  // namespace millrace

#endif  // MILLRACE_SHAPE_H_
