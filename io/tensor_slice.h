// SPDX-License-Identifier: Apache-2.0
// Parts of tensors, as checkpoints name them: one range per axis.
#ifndef IO_TENSOR_SLICE_H_
#define IO_TENSOR_SLICE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/shape.h"
#include "millrace/status.h"
#include "millrace/tensor.h"
#include "proto/tensor_slice.pb.h"

namespace millrace {

// A range of every axis of some shape. A length of -1 is the whole axis; a range written in
// numbers keeps its numbers even where they span the axis.
struct TensorSlice {
  struct Extent {
    int64_t start = 0;
    int64_t length = -1;
    friend bool operator==(const Extent&, const Extent&) = default;
  };
  std::vector<Extent> extents;

  static TensorSlice Whole(int rank) { return {std::vector<Extent>(rank)}; }
  static TensorSlice FromProto(const pb::TensorSliceProto& proto);
  void ToProto(pb::TensorSliceProto* proto) const;

  // The same with every extent in numbers. InvalidArgument if the ranks differ, Internal
  // "Extent in dimension D out of bounds" if a range leaves the shape.
  StatusOr<TensorSlice> ResolvedIn(const Shape& shape) const;
  // The shape of the part. Errors as ResolvedIn.
  StatusOr<Shape> ShapeIn(const Shape& shape) const;
  // True if it is all of a tensor of this shape.
  bool IsWhole(const Shape& shape) const;
  // "-:0,2"
  std::string DebugString() const;
  friend bool operator==(const TensorSlice&, const TensorSlice&) = default;
};

// "4 3 0,2:-": the shape of the whole and the part. InvalidArgument if malformed.
Status ParseShapeAndSlice(std::string_view text, Shape* shape, TensorSlice* slice);

// The key of a stored part of tensor `name` in a checkpoint's index.
std::string EncodeSliceKey(std::string_view name, const TensorSlice& slice);

// Copies the elements that both parts of one whole have, from a tensor that holds part `from`
// to one that holds part `to`; both slices resolved. Returns how many there are.
int64_t CopyIntersection(const TensorSlice& from, const Tensor& source, const TensorSlice& to,
                         Tensor* target);

}  // namespace millrace

#endif  // IO_TENSOR_SLICE_H_
