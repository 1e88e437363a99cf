// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "base/errors.h"
#include "base/status_macros.h"
#include "ops/shape_fns.h"

namespace millrace {
namespace {

// Rows, columns and inner sizes of one operand of a matrix product.
struct Matrix {
  int64_t rows = -1, columns = -1;
};

Matrix LastTwo(const PartialShape& shape, bool transposed) {
  const int64_t a = shape.dim(shape.rank() - 2), b = shape.dim(shape.rank() - 1);
  return transposed ? Matrix{b, a} : Matrix{a, b};
}

Status CheckInner(const Matrix& a, const Matrix& b) {
  Status status = MergeDim(a.columns, b.rows).status();
  if (status.ok()) return status;
  return WithMessage(status, StrCat(Message(status), " (the inner sizes of a matrix product)"));
}

template <typename T>
double Number(const Tensor& tensor) {
  return static_cast<double>(tensor.scalar<T>());
}

// The value of a scalar constant of a type that ranges count in.
bool ConstantNumber(const Tensor* tensor, double* value) {
  if (tensor == nullptr || tensor->num_elements() != 1) return false;
  switch (tensor->dtype()) {
    case kInt32:
      *value = Number<int32_t>(*tensor);
      return true;
    case kInt64:
      *value = Number<int64_t>(*tensor);
      return true;
    case kFloat:
      *value = Number<float>(*tensor);
      return true;
    case kDouble:
      *value = Number<double>(*tensor);
      return true;
    default:
      return false;
  }
}

}  // namespace

Status EqualityShape(InferenceContext& c) {
  if (c.attrs().GetOr<bool>("incompatible_shape_error", true)) return BroadcastShape(c);
  // Shapes that cannot be broadcast are no error then: the answer is one scalar.
  StatusOr<PartialShape> shape = BroadcastShapes(c.input(0), c.input(1));
  const bool sure = shape.ok() && c.input(0).IsFullyDefined() && c.input(1).IsFullyDefined();
  c.set_output(0, sure ? *std::move(shape) : PartialShape());
  return OkStatus();
}

Status ReductionShape(InferenceContext& c) {
  const PartialShape& input = c.input(0);
  MR_ASSIGN_OR_RETURN(const bool keep_dims, c.attr<bool>("keep_dims"));
  Dims axes;
  if (!ConstantInts(c, 1, &axes)) {
    c.set_output(0, keep_dims && input.has_rank() ? UnknownDims(input.rank()) : PartialShape());
    return OkStatus();
  }
  if (!input.has_rank()) {
    c.set_output(0, PartialShape());
    return OkStatus();
  }
  std::vector<bool> reduced(static_cast<std::size_t>(input.rank()));
  for (int64_t axis : axes) {
    MR_ASSIGN_OR_RETURN(const int i, NormalizeAxis(axis, input.rank()));
    reduced[i] = true;
  }
  PartialShape out = UnknownDims(0);
  for (int i = 0; i < input.rank(); ++i) {
    if (!reduced[i]) {
      out.AddDim(input.dim(i));
    } else if (keep_dims) {
      out.AddDim(1);
    }
  }
  c.set_output(0, std::move(out));
  return OkStatus();
}

Status ArgReductionShape(InferenceContext& c) {
  const PartialShape& input = c.input(0);
  if (!input.has_rank()) return UnknownShape(c);
  // A scalar is its own extreme.
  if (input.rank() <= 1) return ScalarShape(c);
  int64_t axis;
  if (!c.ConstantInt(1, &axis)) {
    c.set_output(0, UnknownDims(input.rank() - 1));
    return OkStatus();
  }
  MR_ASSIGN_OR_RETURN(const int i, NormalizeAxis(axis, input.rank()));
  c.set_output(0, ConcatShapes(SubShape(input, 0, i), SubShape(input, i + 1)));
  return OkStatus();
}

Status MatMulShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape a, c.WithRank(0, 2));
  MR_ASSIGN_OR_RETURN(const PartialShape b, c.WithRank(1, 2));
  MR_ASSIGN_OR_RETURN(const bool transpose_a, c.attr<bool>("transpose_a"));
  MR_ASSIGN_OR_RETURN(const bool transpose_b, c.attr<bool>("transpose_b"));
  const Matrix left = LastTwo(a, transpose_a), right = LastTwo(b, transpose_b);
  MR_RETURN_IF_ERROR(CheckInner(left, right));
  c.set_output(0, PartialShape({left.rows, right.columns}));
  return OkStatus();
}

Status BatchMatMulShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape a, c.WithRankAtLeast(0, 2));
  MR_ASSIGN_OR_RETURN(const PartialShape b, c.WithRankAtLeast(1, 2));
  MR_ASSIGN_OR_RETURN(const bool adj_x, c.attr<bool>("adj_x"));
  MR_ASSIGN_OR_RETURN(const bool adj_y, c.attr<bool>("adj_y"));
  if (!a.has_rank() || !b.has_rank()) return UnknownShape(c);
  const Matrix left = LastTwo(a, adj_x), right = LastTwo(b, adj_y);
  MR_RETURN_IF_ERROR(CheckInner(left, right));
  MR_ASSIGN_OR_RETURN(PartialShape out,
                      BroadcastShapes(SubShape(a, 0, a.rank() - 2), SubShape(b, 0, b.rank() - 2)));
  out.AddDim(left.rows);
  out.AddDim(right.columns);
  c.set_output(0, std::move(out));
  return OkStatus();
}

// The condition is a scalar, a vector over the first axis, or of the shape of the values.
Status SelectShape(InferenceContext& c) {
  StatusOr<PartialShape> values = c.input(1).MergeWith(c.input(2));
  if (!values.ok()) {
    return errors::InvalidArgument("Shapes must be equal, but then is ", c.input(1).DebugString(),
                                   " and else is ", c.input(2).DebugString());
  }
  const PartialShape& condition = c.input(0);
  if (condition.has_rank() && values->has_rank() && condition.rank() != 0) {
    if (condition.rank() == 1 && values->rank() > 0) {
      MR_RETURN_IF_ERROR(MergeDim(condition.dim(0), values->dim(0)).status());
    } else {
      MR_ASSIGN_OR_RETURN(*values, values->MergeWith(condition));
    }
  } else if (condition.has_rank() && condition.rank() > 1) {
    *values = condition;
  }
  c.set_output(0, *std::move(values));
  return OkStatus();
}

Status SelectV2Shape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape values, BroadcastShapes(c.input(1), c.input(2)));
  MR_ASSIGN_OR_RETURN(PartialShape out, BroadcastShapes(c.input(0), values));
  c.set_output(0, std::move(out));
  return OkStatus();
}

Status RangeShape(InferenceContext& c) {
  for (int i = 0; i < 3; ++i) MR_RETURN_IF_ERROR(c.WithRank(i, 0).status());
  double start, limit, delta;
  const bool known = ConstantNumber(c.constant(0), &start) &&
                     ConstantNumber(c.constant(1), &limit) && ConstantNumber(c.constant(2), &delta);
  if (!known) {
    c.set_output(0, UnknownDims(1));
    return OkStatus();
  }
  if (delta == 0) return errors::InvalidArgument("Requires delta != 0");
  if ((delta > 0 && start > limit) || (delta < 0 && start < limit)) {
    return errors::InvalidArgument("Requires start ", delta > 0 ? "<=" : ">=", " limit when delta ",
                                   delta > 0 ? ">" : "<", " 0: ", start, "/", limit);
  }
  const double count = std::ceil(std::abs((limit - start) / delta));
  if (!(count < 9.0e18)) return errors::InvalidArgument("a range of ", count, " elements");
  c.set_output(0, PartialShape({static_cast<int64_t>(count)}));
  return OkStatus();
}

Status LinSpaceShape(InferenceContext& c) {
  for (int i = 0; i < 3; ++i) MR_RETURN_IF_ERROR(c.WithRank(i, 0).status());
  int64_t count;
  if (c.ConstantInt(2, &count) && count <= 0) {
    return errors::InvalidArgument("Requires num > 0: ", count);
  }
  c.set_output(0, PartialShape({count}));
  return OkStatus();
}

Status UnsortedSegmentShape(InferenceContext& c) {
  const PartialShape &data = c.input(0), &ids = c.input(1);
  MR_RETURN_IF_ERROR(c.WithRank(2, 0).status());
  if (!data.has_rank() || !ids.has_rank()) return UnknownShape(c);
  if (ids.rank() > data.rank() || !SubShape(data, 0, ids.rank()).IsCompatibleWith(ids)) {
    return errors::InvalidArgument("segment_ids of shape ", ids.DebugString(),
                                   " are no prefix of data of shape ", data.DebugString());
  }
  int64_t segments;
  c.ConstantInt(2, &segments);
  c.set_output(
      0, ConcatShapes(PartialShape({segments < 0 ? -1 : segments}), SubShape(data, ids.rank())));
  return OkStatus();
}

// How many segments there are is in the last id.
Status SegmentShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape data, c.WithRankAtLeast(0, 1));
  MR_ASSIGN_OR_RETURN(const PartialShape ids, c.WithRank(1, 1));
  if (!data.has_rank()) return UnknownShape(c);
  MR_RETURN_IF_ERROR(MergeDim(data.dim(0), ids.dim(0)).status());
  c.set_output(0, ConcatShapes(PartialShape({-1}), SubShape(data, 1)));
  return OkStatus();
}

// As SegmentShape, of rows that indices choose.
Status SparseSegmentShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape data, c.WithRankAtLeast(0, 1));
  MR_ASSIGN_OR_RETURN(const PartialShape indices, c.WithRank(1, 1));
  MR_ASSIGN_OR_RETURN(const PartialShape ids, c.WithRank(2, 1));
  MR_RETURN_IF_ERROR(MergeDim(indices.dim(0), ids.dim(0)).status());
  if (!data.has_rank()) return UnknownShape(c);
  c.set_output(0, ConcatShapes(PartialShape({-1}), SubShape(data, 1)));
  return OkStatus();
}

Status SparseSegmentGradShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape gradient, c.WithRankAtLeast(0, 1));
  MR_RETURN_IF_ERROR(c.WithRank(3, 0).status());
  if (!gradient.has_rank()) return UnknownShape(c);
  int64_t rows;
  const bool known = c.ConstantInt(3, &rows) && rows >= 0;
  c.set_output(0, ConcatShapes(PartialShape({known ? rows : -1}), SubShape(gradient, 1)));
  return OkStatus();
}

// Philox: a key of one word and a counter of two.
Status KeyCounterShape(InferenceContext& c) {
  c.set_output(0, PartialShape({1}));
  c.set_output(1, PartialShape({2}));
  return OkStatus();
}

}  // namespace millrace
