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
  Shape(std::initializer_list<int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const int64_t> dims);

  int rank() const { return static_cast<int>(dims_.size()); }
  int64_t dim(int i) const { return dims_[i]; }
  std::span<const int64_t> dims() const { return {dims_.data(), dims_.size()}; }
  // -1 if it is not valid.
  int64_t num_elements() const { return num_elements_; }
  bool is_valid() const { return num_elements_ >= 0; }

  void AddDim(int64_t size);
  void SetDim(int i, int64_t size);
  void RemoveDim(int i);
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
  PartialShape(std::initializer_list<int64_t> dims)
      : known_rank_(true), dims_(dims.begin(), dims.end()) {}
  explicit PartialShape(std::span<const int64_t> dims)
      : known_rank_(true), dims_(dims.begin(), dims.end()) {}
  PartialShape(const Shape& shape)  // NOLINT: every Shape is a PartialShape
      : PartialShape(shape.dims()) {}

  bool has_rank() const { return known_rank_; }
  // -1 if the rank is unknown.
  int rank() const { return known_rank_ ? static_cast<int>(dims_.size()) : -1; }
  int64_t dim(int i) const { return dims_[i]; }
  std::span<const int64_t> dims() const { return {dims_.data(), dims_.size()}; }
  void AddDim(int64_t size) { dims_.push_back(size); }
  void SetDim(int i, int64_t size) { dims_[i] = size; }

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
