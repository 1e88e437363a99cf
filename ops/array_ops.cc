// SPDX-License-Identifier: Apache-2.0
// Constants, placeholders, and ops that rearrange tensors.
#include <algorithm>

#include "base/errors.h"
#include "base/status_macros.h"
#include "ops/all_ops.h"
#include "ops/op_def_builder.h"
#include "ops/shape_fns.h"

namespace millrace {
namespace {

Status BoundShape(InferenceContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(0, 2).status());
  MR_ASSIGN_OR_RETURN(const PartialShape values, c.WithRank(1, 2));
  c.set_output(0, values);
  return OkStatus();
}

// One row for each dimension.
Status UnravelIndexShape(InferenceContext& c) {
  const PartialShape& indices = c.input(0);
  MR_ASSIGN_OR_RETURN(const PartialShape dims, c.WithRank(1, 1));
  const int64_t rank = dims.has_rank() ? dims.dim(0) : -1;
  if (!indices.has_rank()) return UnknownShape(c);
  if (indices.rank() == 0) {
    c.set_output(0, PartialShape({rank}));
  } else {
    c.set_output(0, PartialShape({rank, indices.rank() == 1 ? indices.dim(0) : -1}));
  }
  return OkStatus();
}

Status UniqueV2Shape(InferenceContext& c) {
  c.set_output(0, c.input(0).has_rank() ? UnknownDims(c.input(0).rank()) : PartialShape());
  c.set_output(1, UnknownDims(1));
  return OkStatus();
}

// The attribute, which each input has one row of.
Status ParallelConcatShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape shape, c.attr<PartialShape>("shape"));
  if (!shape.has_rank() || shape.rank() < 1) {
    return errors::InvalidArgument("shape must have known rank of at least 1, got ",
                                   shape.DebugString());
  }
  PartialShape row = shape;
  row.SetDim(0, 1);
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (c.input(i).IsCompatibleWith(row)) continue;
    return errors::InvalidArgument("values[", i, "] must have shape ", row.DebugString(),
                                   ", one row of the output, got ", c.input(i).DebugString());
  }
  if (shape.dim(0) >= 0 && shape.dim(0) != c.num_inputs()) {
    return errors::InvalidArgument("the output has ", shape.dim(0), " rows by its shape, and ",
                                   c.num_inputs(), " values");
  }
  c.set_output(0, std::move(shape));
  return OkStatus();
}

// Square matrices of vectors.
Status SquareOfLastShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape in, c.WithRankAtLeast(0, 1));
  if (!in.has_rank()) return UnknownShape(c);
  c.set_output(0, ConcatShapes(in, PartialShape({in.dim(in.rank() - 1)})));
  return OkStatus();
}

// Vectors of matrices.
Status MainDiagonalShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape in, c.WithRankAtLeast(0, 2));
  if (!in.has_rank()) return UnknownShape(c);
  const int64_t rows = in.dim(in.rank() - 2), columns = in.dim(in.rank() - 1);
  const int64_t length = rows < 0 || columns < 0 ? -1 : std::min(rows, columns);
  c.set_output(0, ConcatShapes(SubShape(in, 0, in.rank() - 2), PartialShape({length})));
  return OkStatus();
}

Status RaggedRangeShape(InferenceContext& c) {
  int64_t rows = -1;
  bool all_scalars = true;
  for (int i = 0; i < 3; ++i) {
    const PartialShape& operand = c.input(i);
    if (!operand.has_rank()) {
      all_scalars = false;
      continue;
    }
    if (operand.rank() > 1) {
      return errors::InvalidArgument("starts, limits and deltas must be scalars or vectors, got ",
                                     operand.DebugString());
    }
    if (operand.rank() == 0) continue;
    all_scalars = false;
    MR_ASSIGN_OR_RETURN(rows, MergeDim(rows, operand.dim(0)));
  }
  if (all_scalars) rows = 1;
  c.set_output(0, PartialShape({rows < 0 ? -1 : rows + 1}));
  c.set_output(1, PartialShape({-1}));
  return OkStatus();
}

constexpr OpSpec kOps[] = {
    {"BatchToSpaceND", "input: T, block_shape: Tblock_shape, crops: Tcrops", "output: T",
     "T: type; Tblock_shape: {int32, int64} = int32; Tcrops: {int32, int64} = int32",
     SameRankShape},
    {"Bitcast", "input: T", "output: type",
     "T: {bfloat16, half, float, double, int64, int32, uint8, uint16, uint32, uint64, int8, int16, "
     "complex64, complex128, qint8, quint8, qint16, quint16, qint32}; type: {bfloat16, half, "
     "float, double, int64, int32, uint8, uint16, uint32, uint64, int8, int16, complex64, "
     "complex128, qint8, quint8, qint16, quint16, qint32}",
     UnknownShape},
    {"BroadcastGradientArgs", "s0: T, s1: T", "r0: T, r1: T", "T: {int32, int64} = int32",
     BroadcastGradientArgsShape},
    {"BroadcastTo", "input: T, shape: Tidx", "output: T", "T: type; Tidx: {int32, int64} = int32",
     ShapeFromInput1},
    {"CheckNumerics", "tensor: T", "output: T",
     "T: {bfloat16, half, float, double}; message: string", UnchangedShape, kStateful},
    {"Concat", "concat_dim: int32, values: N * T", "output: T", "N: int >= 2; T: type",
     ConcatFirstShape},
    {"ConcatOffset", "concat_dim: int32, shape: N * shape_type", "offset: N * shape_type",
     "N: int >= 2; shape_type: {int32, int64} = int32", ConcatOffsetShape},
    {"ConcatV2", "values: N * T, axis: Tidx", "output: T",
     "N: int >= 2; T: type; Tidx: {int32, int64} = int32", ConcatShape},
    {"Const", "", "output: dtype", "value: tensor; dtype: type", ConstShape},
    {"DepthToSpace", "input: T", "output: T",
     "T: type; block_size: int >= 2; data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'",
     UnknownShape},
    {"Diag", "diagonal: T", "output: T",
     "T: {bfloat16, half, float, double, int32, int64, complex64, complex128}", DiagShape},
    {"DiagPart", "input: T", "diagonal: T",
     "T: {bfloat16, half, float, double, int32, int64, complex64, complex128}", DiagPartShape},
    {"EnsureShape", "input: T", "output: T", "shape: shape; T: type", EnsureShapeShape},
    {"ExpandDims", "input: T, dim: Tdim", "output: T", "T: type; Tdim: {int32, int64} = int32",
     ExpandDimsShape},
    {"Fill", "dims: index_type, value: T", "output: T",
     "T: type; index_type: {int32, int64} = int32", ShapeFromInput0},
    {"Gather", "params: Tparams, indices: Tindices", "output: Tparams",
     "validate_indices: bool = true; Tparams: type; Tindices: {int32, int64}", GatherShape},
    {"GatherNd", "params: Tparams, indices: Tindices", "output: Tparams",
     "Tparams: type; Tindices: {int16, int32, int64}; bad_indices_policy: string = ''",
     GatherNdShape},
    {"GatherV2", "params: Tparams, indices: Tindices, axis: Taxis", "output: Tparams",
     "batch_dims: int = 0; Tparams: type; Tindices: {int16, int32, int64}; Taxis: {int32, int64}",
     GatherV2Shape},
    {"GuaranteeConst", "input: T", "output: T", "T: type", UnchangedShape, kStateful},
    {"HostConst", "", "output: dtype", "value: tensor; dtype: type", ConstShape},
    {"Identity", "input: T", "output: T", "T: type", UnchangedShape},
    {"IdentityN", "input: T", "output: T", "T: list(type) >= 1", IdentityNShape},
    {"InvertPermutation", "x: T", "y: T", "T: {int32, int64} = int32", UnchangedShape},
    {"LowerBound", "sorted_inputs: T, values: T", "output: out_type",
     "T: type; out_type: {int32, int64} = int32", BoundShape},
    {"MatrixBandPart", "input: T, num_lower: Tindex, num_upper: Tindex", "band: T",
     "T: type; Tindex: {int32, int64} = int64", UnchangedShape},
    {"DataFormatDimMap", "x: T", "y: T",
     "T: {int32, int64} = int32; src_format: string = 'NHWC'; dst_format: string = 'NCHW'",
     UnchangedShape},
    {"DataFormatVecPermute", "x: T", "y: T",
     "T: {int32, int64} = int32; src_format: string = 'NHWC'; dst_format: string = 'NCHW'",
     UnchangedShape},
    {"DeepCopy", "x: T", "y: T", "T: type", UnchangedShape, kStateful},
    {"InplaceAdd", "x: T, i: int32, v: T", "y: T", "T: type", UnchangedShape},
    {"InplaceSub", "x: T, i: int32, v: T", "y: T", "T: type", UnchangedShape},
    {"InplaceUpdate", "x: T, i: int32, v: T", "y: T", "T: type", UnchangedShape},
    {"MatrixDiag", "diagonal: T", "output: T", "T: type", SquareOfLastShape},
    {"MatrixDiagPart", "input: T", "diagonal: T", "T: type", MainDiagonalShape},
    {"MatrixDiagPartV2", "input: T, k: int32, padding_value: T", "diagonal: T", "T: type",
     UnknownShape},
    {"MatrixDiagV2", "diagonal: T, k: int32, num_rows: int32, num_cols: int32, padding_value: T",
     "output: T", "T: type", UnknownShape},
    {"MatrixSetDiag", "input: T, diagonal: T", "output: T", "T: type", UnchangedShape},
    {"MatrixSetDiagV2", "input: T, diagonal: T, k: int32", "output: T", "T: type", UnchangedShape},
    {"MatrixDiagPartV3", "input: T, k: int32, padding_value: T", "diagonal: T",
     "T: type; align: {'LEFT_RIGHT', 'RIGHT_LEFT', 'LEFT_LEFT', 'RIGHT_RIGHT'} = 'RIGHT_LEFT'",
     UnknownShape},
    {"MatrixDiagV3", "diagonal: T, k: int32, num_rows: int32, num_cols: int32, padding_value: T",
     "output: T",
     "T: type; align: {'LEFT_RIGHT', 'RIGHT_LEFT', 'LEFT_LEFT', 'RIGHT_RIGHT'} = 'RIGHT_LEFT'",
     UnknownShape},
    {"MatrixSetDiagV3", "input: T, diagonal: T, k: int32", "output: T",
     "T: type; align: {'LEFT_RIGHT', 'RIGHT_LEFT', 'LEFT_LEFT', 'RIGHT_RIGHT'} = 'RIGHT_LEFT'",
     UnchangedShape},
    {"OneHot", "indices: TI, depth: int32, on_value: T, off_value: T", "output: T",
     "axis: int = -1; T: type; TI: {uint8, int8, int32, int64} = int64", OneHotShape},
    {"OnesLike", "x: T", "y: T",
     "T: {bfloat16, half, float, double, int8, uint8, int16, uint16, int32, uint32, int64, uint64, "
     "complex64, complex128, bool}",
     UnchangedShape},
    {"Pack", "values: N * T", "output: T", "N: int >= 1; T: type; axis: int = 0", PackShape},
    {"Pad", "input: T, paddings: Tpaddings", "output: T",
     "T: type; Tpaddings: {int32, int64} = int32", PadShape},
    {"PadV2", "input: T, paddings: Tpaddings, constant_values: T", "output: T",
     "T: type; Tpaddings: {int32, int64} = int32", PadShape},
    {"Placeholder", "", "output: dtype", "dtype: type; shape: shape = ?", ShapeFromAttr},
    {"PlaceholderV2", "", "output: dtype", "dtype: type; shape: shape", ShapeFromAttr, kPlain,
     "23: Placeholder now behaves the same as PlaceholderV2."},
    {"PlaceholderWithDefault", "input: dtype", "output: dtype", "dtype: type; shape: shape",
     ShapeFromAttr},
    {"ParallelConcat", "values: N * T", "output: T", "N: int >= 1; T: type; shape: shape",
     ParallelConcatShape},
    {"PreventGradient", "input: T", "output: T", "T: type; message: string = ''", UnchangedShape},
    {"RaggedRange", "starts: T, limits: T, deltas: T",
     "rt_nested_splits: Tsplits, rt_dense_values: T",
     "T: {bfloat16, float, double, int32, int64} = int32; Tsplits: {int32, int64} = int64",
     RaggedRangeShape},
    {"Rank", "input: T", "output: int32", "T: type", ScalarShape},
    {"Reshape", "tensor: T, shape: Tshape", "output: T", "T: type; Tshape: {int32, int64} = int32",
     ReshapeShape},
    {"ReverseV2", "tensor: T, axis: Tidx", "output: T",
     "Tidx: {int32, int64} = int32; T: {uint8, int8, uint16, int16, int32, uint32, int64, uint64, "
     "bool, bfloat16, half, float, double, complex64, complex128, string}",
     UnchangedShape},
    {"ScatterNd", "indices: Tindices, updates: T, shape: Tindices", "output: T",
     "T: type; Tindices: {int16, int32, int64}; bad_indices_policy: string = ''", ScatterNdShape},
    {"ScatterNdNonAliasingAdd", "input: T, indices: Tindices, updates: T", "output: T",
     "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, "
     "bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64, bool}; Tindices: "
     "{int32, "
     "int64}; bad_indices_policy: string = ''",
     UnchangedShape},
    {"Shape", "input: T", "output: shape_tensor(out_type)",
     "T: type; out_type: {int32, int64} = int32", ShapeOfShape},
    {"ShapeN", "input: N * T", "output: N * out_type",
     "N: int >= 1; T: type; out_type: {int32, int64} = int32", ShapeOfShape},
    {"Size", "input: T", "output: out_type", "T: type; out_type: {int32, int64} = int32",
     ScalarShape},
    {"Slice", "input: T, begin: Index, size: Index", "output: T", "T: type; Index: {int32, int64}",
     SliceShape},
    {"Snapshot", "input: T", "output: T", "T: type", UnchangedShape},
    {"SpaceToBatchND", "input: T, block_shape: Tblock_shape, paddings: Tpaddings", "output: T",
     "T: type; Tblock_shape: {int32, int64} = int32; Tpaddings: {int32, int64} = int32",
     SameRankShape},
    {"SpaceToDepth", "input: T", "output: T",
     "T: type; block_size: int >= 2; data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'",
     UnknownShape},
    {"Split", "split_dim: int32, value: T", "output: num_split * T", "num_split: int >= 1; T: type",
     SplitShape},
    {"SplitV", "value: T, size_splits: Tlen, split_dim: int32", "output: num_split * T",
     "num_split: int >= 1; T: type; Tlen: {int8, int32, int64} = int64", SplitVShape},
    {"Squeeze", "input: T", "output: T", "T: type; squeeze_dims: list(int) >= 0 = []",
     SqueezeShape},
    {"StopGradient", "input: T", "output: T", "T: type", UnchangedShape},
    {"StridedSlice", "input: T, begin: Index, end: Index, strides: Index", "output: T",
     "T: type; Index: {int16, int32, int64}; begin_mask: int = 0; end_mask: int = 0; "
     "ellipsis_mask: int = 0; new_axis_mask: int = 0; shrink_axis_mask: int = 0",
     StridedSliceShape},
    {"StridedSliceGrad", "shape: Index, begin: Index, end: Index, strides: Index, dy: T",
     "output: T",
     "T: type; Index: {int32, int64}; begin_mask: int = 0; end_mask: int = 0; ellipsis_mask: int = "
     "0; new_axis_mask: int = 0; shrink_axis_mask: int = 0",
     ShapeFromInput0},
    {"TensorStridedSliceUpdate", "input: T, begin: Index, end: Index, strides: Index, value: T",
     "output: T",
     "T: type; Index: {int32, int64}; begin_mask: int = 0; end_mask: int = 0; ellipsis_mask: int = "
     "0; new_axis_mask: int = 0; shrink_axis_mask: int = 0",
     UnchangedShape},
    {"Tile", "input: T, multiples: Tmultiples", "output: T",
     "T: type; Tmultiples: {int32, int64} = int32", TileShape},
    {"Transpose", "x: T, perm: Tperm", "y: T", "T: type; Tperm: {int32, int64} = int32",
     TransposeShape},
    {"Unique", "x: T", "y: T, idx: out_idx", "T: type; out_idx: {int32, int64} = int32",
     UniqueShape},
    {"UniqueV2", "x: T, axis: Taxis", "y: T, idx: out_idx",
     "T: type; Taxis: {int32, int64} = int64; out_idx: {int32, int64} = int32", UniqueV2Shape},
    {"Unpack", "value: T", "output: num * T", "num: int >= 0; T: type; axis: int = 0", UnpackShape},
    {"UnravelIndex", "indices: Tidx, dims: Tidx", "output: Tidx", "Tidx: {int32, int64} = int32",
     UnravelIndexShape},
    {"UpperBound", "sorted_inputs: T, values: T", "output: out_type",
     "T: type; out_type: {int32, int64} = int32", BoundShape},
    {"Where", "input: T", "index: int64",
     "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, "
     "bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64, bool} = bool",
     WhereShape},
    {"ZerosLike", "x: T", "y: T", "T: type", UnchangedShape},
};

}  // namespace

Status RegisterArrayOps(OpRegistry& registry) { return RegisterOps(registry, kOps); }

}  // namespace millrace
