// SPDX-License-Identifier: Apache-2.0
// Steps of shape functions, and those that several families share.
#include "base/errors.h"
#include "base/status_macros.h"
#include "ops/shape_fns.h"

namespace millrace {
namespace {

Status ShapeFromInput(InferenceContext& c, int i) {
  MR_ASSIGN_OR_RETURN(PartialShape shape, c.InputAsShape(i));
  c.set_output(0, std::move(shape));
  return OkStatus();
}

Status MergeInputs(InferenceContext& c, int count) {
  PartialShape merged = c.input(0);
  for (int i = 1; i < count; ++i) {
    StatusOr<PartialShape> both = merged.MergeWith(c.input(i));
    if (!both.ok()) {
      return errors::InvalidArgument("Shapes must be equal, but input 0 has ", merged.DebugString(),
                                     " and input ", i, " has ", c.input(i).DebugString());
    }
    merged = *std::move(both);
  }
  c.set_output(0, std::move(merged));
  return OkStatus();
}

}  // namespace

PartialShape UnknownDims(int rank) {
  PartialShape shape{std::span<const int64_t>()};
  for (int i = 0; i < rank; ++i) shape.AddDim(-1);
  return shape;
}

StatusOr<int64_t> MergeDim(int64_t a, int64_t b) {
  if (a < 0) return b;
  if (b < 0 || a == b) return a;
  return errors::InvalidArgument("Dimensions must be equal, but are ", a, " and ", b);
}

StatusOr<int> NormalizeAxis(int64_t axis, int rank) {
  if (axis < -rank || axis >= rank) {
    return errors::InvalidArgument("axis ", axis, " is out of range for a shape of rank ", rank);
  }
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

PartialShape SubShape(const PartialShape& shape, int begin, int end) {
  if (end < 0) end = shape.rank();
  return PartialShape(shape.dims().subspan(begin, end - begin));
}

PartialShape ConcatShapes(const PartialShape& a, const PartialShape& b) {
  if (!a.has_rank() || !b.has_rank()) return PartialShape();
  PartialShape joined = a;
  for (int64_t dim : b.dims()) joined.AddDim(dim);
  return joined;
}

bool ConstantInts(const InferenceContext& c, int i, Dims* values) {
  const Tensor* tensor = c.constant(i);
  if (tensor == nullptr) return false;
  if (tensor->dtype() == kInt32) {
    const auto flat = tensor->flat<int32_t>();
    values->assign(flat.begin(), flat.end());
  } else if (tensor->dtype() == kInt64) {
    const auto flat = tensor->flat<int64_t>();
    values->assign(flat.begin(), flat.end());
  } else {
    return false;
  }
  return true;
}

Status MergedInputs(InferenceContext& c) { return MergeInputs(c, c.num_inputs()); }
Status MergeOfFirstTwo(InferenceContext& c) { return MergeInputs(c, 2); }
Status ShapeFromInput0(InferenceContext& c) { return ShapeFromInput(c, 0); }
Status ShapeFromInput1(InferenceContext& c) { return ShapeFromInput(c, 1); }

Status ShapeFromAttr(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape shape, c.attr<PartialShape>("shape"));
  c.set_output(0, std::move(shape));
  return OkStatus();
}

}  // namespace millrace
