// SPDX-License-Identifier: Apache-2.0
// Shapes of ops that make, join and rearrange tensors. Those that pick parts of a tensor
// are in slice_shapes.cc.
#include "base/errors.h"
#include "base/status_macros.h"
#include "ops/shape_fns.h"

namespace millrace {
namespace {

// The product of all sizes; -1 if one is unknown.
int64_t NumElements(const PartialShape& shape) {
  const std::optional<Shape> known = shape.AsShape();
  return known ? known->num_elements() : -1;
}

// Fills the only unknown size of `out`, if the number of elements tells it.
Status FitReshape(const PartialShape& input, PartialShape* out) {
  const int64_t elements = NumElements(input);
  if (elements < 0 || !out->has_rank()) return OkStatus();
  int64_t known = 1;
  int unknown_axis = -1, unknown = 0;
  for (int i = 0; i < out->rank(); ++i) {
    if (out->dim(i) < 0) {
      unknown_axis = i;
      ++unknown;
    } else if (__builtin_mul_overflow(known, out->dim(i), &known)) {
      return errors::InvalidArgument("cannot reshape to ", out->DebugString(), ": too large");
    }
  }
  if (unknown == 1 && known > 0 && elements % known == 0) {
    out->SetDim(unknown_axis, elements / known);
  } else if ((unknown == 0 && known != elements) || (unknown == 1 && known > 0)) {
    return errors::InvalidArgument("Cannot reshape a tensor with ", elements, " elements to shape ",
                                   out->DebugString());
  }
  return OkStatus();
}

// `base` with what `c` has as the value of input i, a scalar axis; false if it is unknown.
StatusOr<bool> AxisInput(const InferenceContext& c, int i, int rank, int* axis) {
  int64_t value;
  if (!c.ConstantInt(i, &value)) return false;
  MR_ASSIGN_OR_RETURN(*axis, NormalizeAxis(value, rank));
  return true;
}

PartialShape WithInserted(const PartialShape& shape, int axis, int64_t size) {
  PartialShape out = SubShape(shape, 0, axis);
  out.AddDim(size);
  return ConcatShapes(out, SubShape(shape, axis));
}

}  // namespace

Status ConstShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const Tensor value, c.attr<Tensor>("value"));
  c.set_output(0, value.shape());
  return OkStatus();
}

Status IdentityNShape(InferenceContext& c) {
  for (int i = 0; i < c.num_outputs(); ++i) {
    c.set_output(i, c.input(i));
    if (const HandleShape* handle = c.handle(i)) c.set_output_handle(i, *handle);
  }
  return OkStatus();
}

Status ShapeOfShape(InferenceContext& c) {
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, PartialShape({c.input(i).rank()}));
  return OkStatus();
}

Status BroadcastGradientArgsShape(InferenceContext& c) {
  for (int i = 0; i < 2; ++i) {
    MR_RETURN_IF_ERROR(c.WithRank(i, 1).status());
    c.set_output(i, UnknownDims(1));
  }
  return OkStatus();
}

namespace {

// All inputs from `first` on, as many as `values`, have one rank; scalars cannot be joined.
Status JoinedShape(InferenceContext& c, int first, int values, int axis_input) {
  MR_RETURN_IF_ERROR(c.WithRank(axis_input, 0).status());
  int rank = -1;
  for (int i = first; i < first + values; ++i) {
    const PartialShape& in = c.input(i);
    if (!in.has_rank()) continue;
    if (in.rank() == 0) {
      return errors::InvalidArgument("Can't concatenate scalars (use tf.stack instead): input ", i);
    }
    if (rank >= 0 && in.rank() != rank) {
      return errors::InvalidArgument("Shapes must have one rank to be joined, but input ", i,
                                     " is ", in.DebugString(), " beside one of rank ", rank);
    }
    rank = in.rank();
  }
  if (rank < 0) return UnknownShape(c);
  int axis;
  MR_ASSIGN_OR_RETURN(const bool known, AxisInput(c, axis_input, rank, &axis));
  if (!known) {
    c.set_output(0, UnknownDims(rank));
    return OkStatus();
  }
  PartialShape out = UnknownDims(rank);
  int64_t joined = 0;
  for (int i = first; i < first + values; ++i) {
    const PartialShape in = c.input(i).has_rank() ? c.input(i) : UnknownDims(rank);
    joined = joined < 0 || in.dim(axis) < 0 ? -1 : joined + in.dim(axis);
    for (int d = 0; d < rank; ++d) {
      if (d == axis) continue;
      StatusOr<int64_t> size = MergeDim(out.dim(d), in.dim(d));
      if (!size.ok()) {
        return Annotate(size.status(), StrCat(" in dimension ", d, " of input ", i, " to join"));
      }
      out.SetDim(d, *size);
    }
  }
  out.SetDim(axis, joined);
  c.set_output(0, std::move(out));
  return OkStatus();
}

}  // namespace

Status ConcatShape(InferenceContext& c) {
  const int values = c.num_inputs() - 1;
  return JoinedShape(c, 0, values, values);
}

Status ConcatFirstShape(InferenceContext& c) { return JoinedShape(c, 1, c.num_inputs() - 1, 0); }

Status ConcatOffsetShape(InferenceContext& c) {
  for (int i = 1; i < c.num_inputs(); ++i) c.set_output(i - 1, c.input(i));
  return OkStatus();
}

Status ExpandDimsShape(InferenceContext& c) {
  const PartialShape& input = c.input(0);
  if (!input.has_rank()) return UnknownShape(c);
  int axis;
  MR_ASSIGN_OR_RETURN(const bool known, AxisInput(c, 1, input.rank() + 1, &axis));
  c.set_output(0, known ? WithInserted(input, axis, 1) : UnknownDims(input.rank() + 1));
  return OkStatus();
}

Status SqueezeShape(InferenceContext& c) {
  const PartialShape& input = c.input(0);
  MR_ASSIGN_OR_RETURN(const auto axes, c.attr<std::vector<int64_t>>("squeeze_dims"));
  if (!input.has_rank()) return UnknownShape(c);
  std::vector<bool> squeezed(static_cast<std::size_t>(input.rank()));
  for (int64_t axis : axes) {
    MR_ASSIGN_OR_RETURN(const int i, NormalizeAxis(axis, input.rank()));
    if (input.dim(i) >= 0 && input.dim(i) != 1) {
      return errors::InvalidArgument("Can not squeeze dim[", i,
                                     "], expected a dimension of 1, got ", input.dim(i));
    }
    squeezed[i] = true;
  }
  PartialShape out = UnknownDims(0);
  for (int i = 0; i < input.rank(); ++i) {
    // Without a list, whether an unknown size goes is unknown, and so is the rank.
    if (axes.empty() && input.dim(i) < 0) return UnknownShape(c);
    if (axes.empty() ? input.dim(i) != 1 : !squeezed[i]) out.AddDim(input.dim(i));
  }
  c.set_output(0, std::move(out));
  return OkStatus();
}

Status ReshapeShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape out, c.InputAsShape(1));
  if (c.constant(1) != nullptr && out.has_rank()) {
    int guesses = 0;
    for (int64_t dim : out.dims()) guesses += dim < 0;
    if (guesses > 1) {
      return errors::InvalidArgument("only one size of a reshape may be -1, not ", guesses);
    }
  }
  MR_RETURN_IF_ERROR(FitReshape(c.input(0), &out));
  c.set_output(0, std::move(out));
  return OkStatus();
}

Status OneHotShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const int64_t axis, c.attr<int64_t>("axis"));
  if (axis < -1) return errors::InvalidArgument("axis must be >= -1, got ", axis);
  int64_t depth;
  if (c.ConstantInt(1, &depth) && depth < 0) {
    return errors::InvalidArgument("depth must be non-negative, got ", depth);
  }
  const PartialShape& indices = c.input(0);
  if (!indices.has_rank()) return UnknownShape(c);
  MR_ASSIGN_OR_RETURN(const int at, NormalizeAxis(axis, indices.rank() + 1));
  c.set_output(0, WithInserted(indices, at, depth));
  return OkStatus();
}

Status PackShape(InferenceContext& c) {
  MR_RETURN_IF_ERROR(MergedInputs(c));
  const PartialShape merged = c.output(0);
  if (!merged.has_rank()) return UnknownShape(c);
  MR_ASSIGN_OR_RETURN(const int64_t axis, c.attr<int64_t>("axis"));
  MR_ASSIGN_OR_RETURN(const int at, NormalizeAxis(axis, merged.rank() + 1));
  c.set_output(0, WithInserted(merged, at, c.num_inputs()));
  return OkStatus();
}

Status UnpackShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape input, c.WithRankAtLeast(0, 1));
  if (!input.has_rank()) return UnknownShape(c);
  MR_ASSIGN_OR_RETURN(const int64_t axis, c.attr<int64_t>("axis"));
  MR_ASSIGN_OR_RETURN(const int at, NormalizeAxis(axis, input.rank()));
  MR_RETURN_IF_ERROR(MergeDim(input.dim(at), c.num_outputs()).status());
  for (int i = 0; i < c.num_outputs(); ++i) {
    c.set_output(i, ConcatShapes(SubShape(input, 0, at), SubShape(input, at + 1)));
  }
  return OkStatus();
}

Status PadShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape paddings, c.WithRank(1, 2));
  MR_RETURN_IF_ERROR(MergeDim(paddings.dim(1), 2).status());
  const int64_t rows = paddings.dim(0);
  if (!c.input(0).has_rank() && rows < 0) return UnknownShape(c);
  const int rank = c.input(0).has_rank() ? c.input(0).rank() : static_cast<int>(rows);
  MR_ASSIGN_OR_RETURN(PartialShape out, c.WithRank(0, rank));
  if (rows >= 0 && rows != rank) {
    return errors::InvalidArgument("Shape must be rank ", rows, " but is rank ", rank,
                                   " for the input of a pad");
  }
  Dims amounts;
  if (!ConstantInts(c, 1, &amounts)) {
    c.set_output(0, UnknownDims(rank));
    return OkStatus();
  }
  for (int i = 0; i < rank; ++i) {
    const int64_t before = amounts[2 * i], after = amounts[2 * i + 1];
    if (before < 0 || after < 0) {
      return errors::InvalidArgument("Paddings must be non-negative: ", before, " ", after);
    }
    if (out.dim(i) >= 0) out.SetDim(i, out.dim(i) + before + after);
  }
  c.set_output(0, std::move(out));
  return OkStatus();
}

Status TileShape(InferenceContext& c) {
  // The multiples read like a shape, but -1 is no size.
  MR_ASSIGN_OR_RETURN(const PartialShape multiples, c.InputAsShape(1));
  if (!c.input(0).has_rank() && !multiples.has_rank()) return UnknownShape(c);
  const int rank = c.input(0).has_rank() ? c.input(0).rank() : multiples.rank();
  MR_ASSIGN_OR_RETURN(const PartialShape input, c.WithRank(0, rank));
  if (multiples.has_rank() && multiples.rank() != rank) {
    return errors::InvalidArgument("Shape must be rank ", multiples.rank(), " but is rank ", rank,
                                   " for the input of a tile");
  }
  PartialShape out = UnknownDims(rank);
  for (int i = 0; i < rank && multiples.has_rank(); ++i) {
    if (input.dim(i) >= 0 && multiples.dim(i) >= 0) {
      out.SetDim(i, input.dim(i) * multiples.dim(i));
    }
  }
  c.set_output(0, std::move(out));
  return OkStatus();
}

Status TransposeShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape perm, c.WithRank(1, 1));
  if (!c.input(0).has_rank() && perm.dim(0) < 0) return UnknownShape(c);
  const int rank = c.input(0).has_rank() ? c.input(0).rank() : static_cast<int>(perm.dim(0));
  MR_ASSIGN_OR_RETURN(const PartialShape input, c.WithRank(0, rank));
  MR_RETURN_IF_ERROR(MergeDim(perm.dim(0), rank).status());
  PartialShape out = UnknownDims(rank);
  Dims axes;
  if (ConstantInts(c, 1, &axes)) {
    for (int i = 0; i < rank; ++i) {
      MR_ASSIGN_OR_RETURN(const int from, NormalizeAxis(axes[i], rank));
      out.SetDim(i, input.dim(from));
    }
  }
  c.set_output(0, std::move(out));
  return OkStatus();
}

Status UniqueShape(InferenceContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(0, 1).status());
  c.set_output(0, UnknownDims(1));
  c.set_output(1, c.input(0));
  return OkStatus();
}

Status WhereShape(InferenceContext& c) {
  c.set_output(0, PartialShape({-1, c.input(0).rank()}));
  return OkStatus();
}

Status EnsureShapeShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape wanted, c.attr<PartialShape>("shape"));
  MR_ASSIGN_OR_RETURN(PartialShape both, c.input(0).MergeWith(wanted));
  c.set_output(0, std::move(both));
  return OkStatus();
}

Status ScatterNdShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape out, c.InputAsShape(2));
  c.set_output(0, std::move(out));
  return OkStatus();
}

Status DynamicStitchShape(InferenceContext& c) {
  // N lists of indices, then N lists of rows; rows have one shape, how many is unknown
  // unless all indices are known.
  const int n = c.num_inputs() / 2;
  PartialShape row;
  int64_t largest = -1;
  bool all_known = true;
  for (int i = 0; i < n; ++i) {
    Dims indices;
    if (ConstantInts(c, i, &indices)) {
      for (int64_t index : indices) largest = std::max(largest, index);
    } else {
      all_known = false;
    }
    const PartialShape &ids = c.input(i), &data = c.input(n + i);
    if (!ids.has_rank() || !data.has_rank()) continue;
    if (ids.rank() > data.rank() || !SubShape(data, 0, ids.rank()).IsCompatibleWith(ids)) {
      return errors::InvalidArgument("data[", i, "] of shape ", data.DebugString(),
                                     " does not start with the shape of indices[", i, "] ",
                                     ids.DebugString());
    }
    MR_ASSIGN_OR_RETURN(row, row.MergeWith(SubShape(data, ids.rank())));
  }
  c.set_output(0, ConcatShapes(PartialShape({all_known ? largest + 1 : -1}), row));
  return OkStatus();
}

// Scalars join with anything; all others have one shape.
Status StringJoinShape(InferenceContext& c) {
  PartialShape out = UnknownDims(0);
  bool sure = true;
  for (int i = 0; i < c.num_inputs(); ++i) {
    const PartialShape& in = c.input(i);
    if (!in.has_rank()) {
      sure = false;
    } else if (in.rank() > 0) {
      if (out.rank() == 0) out = in;
      MR_ASSIGN_OR_RETURN(out, out.MergeWith(in));
    }
  }
  c.set_output(0, sure || out.rank() > 0 ? std::move(out) : PartialShape());
  return OkStatus();
}

Status SameRankShape(InferenceContext& c) {
  if (!c.input(0).has_rank()) return UnknownShape(c);
  c.set_output(0, UnknownDims(c.input(0).rank()));
  return OkStatus();
}

Status DiagShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape diagonal, c.WithRankAtLeast(0, 1));
  c.set_output(0, ConcatShapes(diagonal, diagonal));
  return OkStatus();
}

Status DiagPartShape(InferenceContext& c) {
  const PartialShape& input = c.input(0);
  if (!input.has_rank()) return UnknownShape(c);
  if (input.rank() == 0 || input.rank() % 2 != 0) {
    return errors::InvalidArgument("Input must have even and non-zero rank, input rank is ",
                                   input.rank());
  }
  const int half = input.rank() / 2;
  PartialShape out = UnknownDims(half);
  for (int i = 0; i < half; ++i) {
    MR_ASSIGN_OR_RETURN(const int64_t size, MergeDim(input.dim(i), input.dim(i + half)));
    out.SetDim(i, size);
  }
  c.set_output(0, std::move(out));
  return OkStatus();
}

}  // namespace millrace
