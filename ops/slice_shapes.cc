// SPDX-License-Identifier: Apache-2.0
// Shapes of ops that pick parts of a tensor: slices, splits, gathers.
#include <algorithm>

#include "base/errors.h"
#include "base/status_macros.h"
#include "ops/shape_fns.h"

namespace millrace {
namespace {

// The masks of a strided slice: bit i is about entry i of begin, end and strides.
struct SliceMasks {
  int64_t begin, end, ellipsis, new_axis, shrink;
  static bool Has(int64_t mask, int i) { return (mask >> i & 1) != 0; }
};

// begin, end and strides, where all three are known.
struct SliceBounds {
  bool known = false;
  Dims begin, end, strides;
};

StatusOr<SliceMasks> ReadMasks(const InferenceContext& c) {
  SliceMasks masks;
  MR_ASSIGN_OR_RETURN(masks.begin, c.attr<int64_t>("begin_mask"));
  MR_ASSIGN_OR_RETURN(masks.end, c.attr<int64_t>("end_mask"));
  MR_ASSIGN_OR_RETURN(masks.ellipsis, c.attr<int64_t>("ellipsis_mask"));
  MR_ASSIGN_OR_RETURN(masks.new_axis, c.attr<int64_t>("new_axis_mask"));
  MR_ASSIGN_OR_RETURN(masks.shrink, c.attr<int64_t>("shrink_axis_mask"));
  if ((masks.ellipsis & (masks.ellipsis - 1)) != 0) {
    return errors::InvalidArgument("Multiple ellipses in slice spec not allowed");
  }
  return masks;
}

// How many elements entry i takes of an axis of `size` elements; -1 if unknown.
StatusOr<int64_t> SlicedSize(const SliceBounds& bounds, const SliceMasks& masks, int i,
                             int64_t size) {
  if (!bounds.known || size < 0) return -1;
  const int64_t stride = bounds.strides[i];
  if (stride == 0) return errors::InvalidArgument("strides[", i, "] must be non-zero");
  const int64_t low = stride > 0 ? 0 : -1, high = stride > 0 ? size : size - 1;
  const auto canonical = [&](int64_t position) {
    return std::clamp(position < 0 ? position + size : position, low, high);
  };
  const int64_t begin =
      SliceMasks::Has(masks.begin, i) ? (stride > 0 ? low : high) : canonical(bounds.begin[i]);
  const int64_t end =
      SliceMasks::Has(masks.end, i) ? (stride > 0 ? high : low) : canonical(bounds.end[i]);
  const int64_t interval = stride > 0 ? end - begin : begin - end;
  const int64_t step = stride > 0 ? stride : -stride;
  return interval <= 0 ? 0 : (interval + step - 1) / step;
}

Status CheckShrink(const SliceBounds& bounds, int i, int64_t size) {
  if (!bounds.known) return OkStatus();
  if (bounds.strides[i] <= 0) {
    return errors::InvalidArgument("only stride 1 allowed on non-range indexing.");
  }
  const int64_t at = bounds.begin[i];
  if (size >= 0 && (at < -size || at >= size)) {
    return errors::InvalidArgument("slice index ", at, " of dimension ", i, " out of bounds.");
  }
  return OkStatus();
}

}  // namespace

Status SliceShape(InferenceContext& c) {
  const PartialShape& input = c.input(0);
  MR_ASSIGN_OR_RETURN(const PartialShape begin_shape, c.WithRank(1, 1));
  MR_ASSIGN_OR_RETURN(const PartialShape size_shape, c.WithRank(2, 1));
  MR_ASSIGN_OR_RETURN(int64_t rank, MergeDim(begin_shape.dim(0), size_shape.dim(0)));
  MR_ASSIGN_OR_RETURN(rank, MergeDim(rank, input.rank()));
  if (rank < 0) return UnknownShape(c);
  Dims begin, sizes;
  PartialShape out = UnknownDims(static_cast<int>(rank));
  const bool begin_known = ConstantInts(c, 1, &begin);
  if (!ConstantInts(c, 2, &sizes)) {
    MR_ASSIGN_OR_RETURN(out, c.InputAsShape(2));
    c.set_output(0, std::move(out));
    return OkStatus();
  }
  for (int i = 0; i < rank; ++i) {
    const int64_t whole = input.has_rank() ? input.dim(i) : -1;
    const int64_t from = begin_known ? begin[i] : -1;
    if (sizes[i] >= 0) {
      if (whole >= 0 && from >= 0 && from + sizes[i] > whole) {
        return errors::InvalidArgument("slice of ", sizes[i], " elements from ", from,
                                       " is out of bounds of dimension ", i, " of size ", whole);
      }
      out.SetDim(i, sizes[i]);
    } else if (sizes[i] == -1) {
      if (whole >= 0 && from > whole) {
        return errors::InvalidArgument("slice from ", from, " is out of bounds of dimension ", i,
                                       " of size ", whole);
      }
      if (whole >= 0 && from >= 0) out.SetDim(i, whole - from);
    } else {
      return errors::InvalidArgument("cannot use size ", sizes[i], " in a slice");
    }
  }
  c.set_output(0, std::move(out));
  return OkStatus();
}

Status StridedSliceShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const SliceMasks masks, ReadMasks(c));
  PartialShape spec = UnknownDims(1);
  for (int i = 1; i <= 3; ++i) {
    MR_ASSIGN_OR_RETURN(const PartialShape vector, c.WithRank(i, 1));
    MR_ASSIGN_OR_RETURN(spec, spec.MergeWith(vector));
  }
  const PartialShape& input = c.input(0);
  const int64_t entries = spec.dim(0);
  if (entries < 0 || !input.has_rank()) return UnknownShape(c);
  if (entries > 32) {
    return errors::InvalidArgument("a strided slice of ", entries, " entries, more than 32");
  }
  SliceBounds bounds;
  bounds.known = ConstantInts(c, 1, &bounds.begin) && ConstantInts(c, 2, &bounds.end) &&
                 ConstantInts(c, 3, &bounds.strides);
  int used = 0;  // axes of the input that entries speak of
  for (int i = 0; i < entries; ++i) {
    used += !SliceMasks::Has(masks.new_axis, i) && !SliceMasks::Has(masks.ellipsis, i);
  }
  if (used > input.rank()) {
    return errors::InvalidArgument("Index out of range using input dim ", input.rank(),
                                   "; input has only ", input.rank(), " dims");
  }
  PartialShape out = UnknownDims(0);
  int axis = 0;
  for (int i = 0; i < entries; ++i) {
    if (SliceMasks::Has(masks.ellipsis, i)) {
      for (int skipped = input.rank() - used; skipped > 0; --skipped) out.AddDim(input.dim(axis++));
    } else if (SliceMasks::Has(masks.new_axis, i)) {
      out.AddDim(1);
    } else if (SliceMasks::Has(masks.shrink, i)) {
      MR_RETURN_IF_ERROR(CheckShrink(bounds, i, input.dim(axis++)));
    } else {
      MR_ASSIGN_OR_RETURN(const int64_t size, SlicedSize(bounds, masks, i, input.dim(axis++)));
      out.AddDim(size);
    }
  }
  while (axis < input.rank()) out.AddDim(input.dim(axis++));
  c.set_output(0, std::move(out));
  return OkStatus();
}

Status SplitShape(InferenceContext& c) {
  const PartialShape& input = c.input(1);
  const int parts = c.num_outputs();
  PartialShape out;
  int64_t value;
  if (!c.ConstantInt(0, &value)) {
    if (input.has_rank()) out = UnknownDims(input.rank());
  } else if (input.has_rank()) {
    MR_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(value, input.rank()));
    out = input;
    if (input.dim(axis) >= 0) {
      if (input.dim(axis) % parts != 0) {
        return errors::InvalidArgument("Dimension size must be evenly divisible by ", parts,
                                       " but is ", input.dim(axis));
      }
      out.SetDim(axis, input.dim(axis) / parts);
    }
  }
  for (int i = 0; i < parts; ++i) c.set_output(i, out);
  return OkStatus();
}

Status SplitVShape(InferenceContext& c) {
  const PartialShape& input = c.input(0);
  int64_t value;
  const bool axis_known = c.ConstantInt(2, &value);
  if (!input.has_rank()) return UnknownShape(c);
  if (!axis_known) {
    for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, UnknownDims(input.rank()));
    return OkStatus();
  }
  MR_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(value, input.rank()));
  Dims sizes;
  const bool sizes_known = ConstantInts(c, 1, &sizes);
  if (sizes_known && static_cast<int>(sizes.size()) != c.num_outputs()) {
    return errors::InvalidArgument("Length of size_splits should be ", c.num_outputs(), " but is ",
                                   sizes.size());
  }
  int64_t total = 0;
  int open = 0;
  for (int64_t size : sizes) size < 0 ? ++open : total += size;
  const int64_t whole = input.dim(axis);
  if (sizes_known && whole >= 0 && (open == 0 ? total != whole : total > whole)) {
    return errors::InvalidArgument("can't split axis of size ", whole, " into pieces of ", total);
  }
  for (int i = 0; i < c.num_outputs(); ++i) {
    PartialShape part = input;
    int64_t size = sizes_known ? sizes[i] : -1;
    if (sizes_known && size < 0 && whole >= 0 && open == 1) size = whole - total;
    part.SetDim(axis, size);
    c.set_output(i, std::move(part));
  }
  return OkStatus();
}

Status GatherShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape params, c.WithRankAtLeast(0, 1));
  const PartialShape rest = params.has_rank() ? SubShape(params, 1) : PartialShape();
  c.set_output(0, ConcatShapes(c.input(1), rest));
  return OkStatus();
}

Status GatherV2Shape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape params, c.WithRankAtLeast(0, 1));
  const PartialShape& indices = c.input(1);
  MR_ASSIGN_OR_RETURN(int64_t batch, c.attr<int64_t>("batch_dims"));
  int64_t value;
  const bool axis_known = c.ConstantInt(2, &value);
  if (!params.has_rank() || !indices.has_rank()) return UnknownShape(c);
  if (batch < -indices.rank() || batch > indices.rank()) {
    return errors::InvalidArgument("batch_dims ", batch, " is out of range for indices of rank ",
                                   indices.rank());
  }
  if (batch < 0) batch += indices.rank();
  if (batch >= params.rank()) {
    return errors::InvalidArgument("batch_dims ", batch, " must be less than rank(params) ",
                                   params.rank());
  }
  if (!axis_known) {
    const int rank = params.rank() + indices.rank() - 1 - static_cast<int>(batch);
    c.set_output(0, UnknownDims(rank));
    return OkStatus();
  }
  MR_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(value, params.rank()));
  if (axis < batch) {
    return errors::InvalidArgument("batch_dims ", batch, " must be at most axis ", axis);
  }
  const PartialShape outer =
      ConcatShapes(SubShape(params, 0, axis), SubShape(indices, static_cast<int>(batch)));
  c.set_output(0, ConcatShapes(outer, SubShape(params, axis + 1)));
  return OkStatus();
}

Status GatherNdShape(InferenceContext& c) {
  const PartialShape& params = c.input(0);
  MR_ASSIGN_OR_RETURN(const PartialShape indices, c.WithRankAtLeast(1, 1));
  if (!params.has_rank() || !indices.has_rank()) return UnknownShape(c);
  const int64_t depth = indices.dim(indices.rank() - 1);
  if (depth < 0) return UnknownShape(c);
  if (depth > params.rank()) {
    return errors::InvalidArgument("indices.shape[-1] must be <= params.rank, but saw indices ",
                                   indices.DebugString(), " and params ", params.DebugString());
  }
  c.set_output(0, ConcatShapes(SubShape(indices, 0, indices.rank() - 1),
                               SubShape(params, static_cast<int>(depth))));
  return OkStatus();
}

}  // namespace millrace
