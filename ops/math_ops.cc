// SPDX-License-Identifier: Apache-2.0
// Arithmetic, comparisons, reductions and matrix products.
#include "base/errors.h"
#include "base/status_macros.h"
#include "ops/all_ops.h"
#include "ops/op_def_builder.h"
#include "ops/shape_fns.h"

namespace millrace {
namespace {

// How often each number up to a size occurs; the size may be a constant.
Status CountsShape(InferenceContext& c) {
  int64_t size;
  const bool known = c.ConstantInt(1, &size) && size >= 0;
  c.set_output(0, PartialShape({known ? size : -1}));
  return OkStatus();
}
Status DenseCountsShape(InferenceContext& c) {
  const PartialShape& input = c.input(0);
  int64_t size;
  if (!c.ConstantInt(1, &size) || size < 0) size = -1;
  if (!input.has_rank()) return UnknownShape(c);
  if (input.rank() == 2) {
    c.set_output(0, PartialShape({input.dim(0), size}));
  } else {
    c.set_output(0, PartialShape({size}));
  }
  return OkStatus();
}
Status HistogramShape(InferenceContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(1, 1).status());
  int64_t bins;
  const bool known = c.ConstantInt(2, &bins) && bins > 0;
  c.set_output(0, PartialShape({known ? bins : -1}));
  return OkStatus();
}

// As the ops without a number of segments, which is input 3 here.
Status NumSegmentsShape(InferenceContext& c) {
  MR_RETURN_IF_ERROR(SparseSegmentShape(c));
  int64_t segments;
  if (!c.input(0).has_rank() || !c.ConstantInt(3, &segments) || segments < 0) return OkStatus();
  c.set_output(0, ConcatShapes(PartialShape({segments}), SubShape(c.input(0), 1)));
  return OkStatus();
}
// Rows that have a gradient only, and which they are.
Status SparseSegmentGradV2Shape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape gradient, c.WithRankAtLeast(0, 1));
  c.set_output(1, UnknownDims(1));
  if (!gradient.has_rank()) return UnknownShape(c);
  c.set_output(0, ConcatShapes(PartialShape({-1}), SubShape(gradient, 1)));
  return OkStatus();
}

// The attribute, with which all inputs agree.
Status SumOfShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape shape, c.attr<PartialShape>("shape"));
  for (int i = 0; i < c.num_inputs(); ++i) {
    MR_ASSIGN_OR_RETURN(shape, shape.MergeWith(c.input(i)));
  }
  c.set_output(0, std::move(shape));
  return OkStatus();
}

constexpr OpSpec kOps[] = {
    {"Abs", "x: T", "y: T", "T: {bfloat16, half, float, double, int8, int16, int32, int64}",
     UnchangedShape},
    {"AccumulateNV2", "inputs: N * T", "sum: T", "N: int >= 1; T: numbers; shape: shape",
     SumOfShape, kCommutative | kAggregate},
    {"Acos", "x: T", "y: T", "T: {bfloat16, half, float, double, complex64, complex128}",
     UnchangedShape},
    {"Acosh", "x: T", "y: T", "T: {bfloat16, half, float, double, complex64, complex128}",
     UnchangedShape},
    {"Add", "x: T, y: T", "z: T",
     "T: {bfloat16, half, float, double, uint8, int8, int16, int32, int64, complex64, complex128, "
     "string}",
     BroadcastShape},
    {"AddN", "inputs: N * T", "sum: T",
     "N: int >= 1; T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, "
     "qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64, variant}",
     MergedInputs, kCommutative | kAggregate},
    {"AddV2", "x: T, y: T", "z: T",
     "T: {bfloat16, half, float, double, uint8, uint16, uint32, uint64, int8, int16, int32, int64, "
     "complex64, complex128}",
     BroadcastShape, kCommutative | kAggregate},
    {"All", "input: bool, reduction_indices: Tidx", "output: bool",
     "keep_dims: bool = false; Tidx: {int32, int64} = int32", ReductionShape},
    {"Angle", "input: T", "output: Tout",
     "T: {complex64, complex128} = complex64; Tout: {float, double} = float", UnchangedShape},
    {"Any", "input: bool, reduction_indices: Tidx", "output: bool",
     "keep_dims: bool = false; Tidx: {int32, int64} = int32", ReductionShape},
    {"ArgMax", "input: T, dimension: Tidx", "output: output_type",
     "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64, "
     "qint8, quint8, qint32, qint16, quint16, bool}; Tidx: {int16, int32, int64} = int32; "
     "output_type: {int16, uint16, int32, int64} = int64",
     ArgReductionShape},
    {"ArgMin", "input: T, dimension: Tidx", "output: output_type",
     "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64, "
     "qint8, quint8, qint32, qint16, quint16, bool}; Tidx: {int32, int64} = int32; output_type: "
     "{int32, int64} = int64",
     ArgReductionShape},
    {"Asin", "x: T", "y: T", "T: {bfloat16, half, float, double, complex64, complex128}",
     UnchangedShape},
    {"Asinh", "x: T", "y: T", "T: {bfloat16, half, float, double, complex64, complex128}",
     UnchangedShape},
    {"Atan", "x: T", "y: T", "T: {bfloat16, half, float, double, complex64, complex128}",
     UnchangedShape},
    {"Atan2", "y: T, x: T", "z: T", "T: {bfloat16, half, float, double}", BroadcastShape},
    {"Atanh", "x: T", "y: T", "T: {bfloat16, half, float, double, complex64, complex128}",
     UnchangedShape},
    {"BatchMatMul", "x: T, y: T", "output: T",
     "T: {bfloat16, half, float, double, int32, int64, complex64, complex128}; adj_x: bool = "
     "false; adj_y: bool = false; grad_x: bool = false; grad_y: bool = false",
     BatchMatMulShape},
    {"BatchMatMulV2", "x: T, y: T", "output: T",
     "T: {bfloat16, half, float, double, int16, int32, int64, uint8, uint16, uint32, uint64, "
     "complex64, complex128}; adj_x: bool = false; adj_y: bool = false; grad_x: bool = false; "
     "grad_y: bool = false",
     BatchMatMulShape},
    {"BatchMatMulV3", "x: Ta, y: Tb", "output: Tout",
     "Ta: {bfloat16, half, float, double, uint8, int8, int16, int32, int64, complex64, "
     "complex128}; "
     "Tb: {bfloat16, half, float, double, uint8, int8, int16, int32, int64, complex64, "
     "complex128}; "
     "Tout: {bfloat16, half, float, double, int16, int32, int64, complex64, complex128}; adj_x: "
     "bool = false; adj_y: bool = false; grad_x: bool = false; grad_y: bool = false",
     BatchMatMulShape},
    {"Bincount", "arr: int32, size: int32, weights: T", "bins: T",
     "T: {int32, int64, float, double}", CountsShape},
    {"BitwiseAnd", "x: T, y: T", "z: T",
     "T: {int8, int16, int32, int64, uint8, uint16, uint32, uint64}", BroadcastShape, kCommutative},
    {"BitwiseOr", "x: T, y: T", "z: T",
     "T: {int8, int16, int32, int64, uint8, uint16, uint32, uint64}", BroadcastShape, kCommutative},
    {"BitwiseXor", "x: T, y: T", "z: T",
     "T: {int8, int16, int32, int64, uint8, uint16, uint32, uint64}", BroadcastShape, kCommutative},
    {"Bucketize", "input: T", "output: int32",
     "T: {int32, int64, float, double}; boundaries: list(float)", UnchangedShape},
    {"Cast", "x: SrcT", "y: DstT", "SrcT: type; DstT: type; Truncate: bool = false",
     UnchangedShape},
    {"Ceil", "x: T", "y: T", "T: {bfloat16, half, float, double}", UnchangedShape},
    {"ClipByValue", "t: T, clip_value_min: T, clip_value_max: T", "output: T", "T: numbers",
     UnchangedShape},
    {"Complex", "real: T, imag: T", "out: Tout",
     "T: {float, double} = float; Tout: {complex64, complex128} = complex64", BroadcastShape},
    {"ComplexAbs", "x: T", "y: Tout",
     "T: {complex64, complex128} = complex64; Tout: {float, double} = float", UnchangedShape},
    {"Conj", "input: T", "output: T", "T: {complex64, complex128, variant} = complex64",
     UnchangedShape},
    {"Cos", "x: T", "y: T", "T: {bfloat16, half, float, double, complex64, complex128}",
     UnchangedShape},
    {"Cosh", "x: T", "y: T", "T: {bfloat16, half, float, double, complex64, complex128}",
     UnchangedShape},
    {"Cross", "a: T, b: T", "product: T", "T: reals", MergedInputs},
    {"Cumprod", "x: T, axis: Tidx", "out: T",
     "exclusive: bool = false; reverse: bool = false; T: numbers; Tidx: {int32, int64} = int32",
     UnchangedShape},
    {"Cumsum", "x: T, axis: Tidx", "out: T",
     "exclusive: bool = false; reverse: bool = false; T: numbers; Tidx: {int32, int64} = int32",
     UnchangedShape},
    {"CumulativeLogsumexp", "x: T, axis: Tidx", "out: T",
     "exclusive: bool = false; reverse: bool = false; T: {bfloat16, half, float, double}; Tidx: "
     "{int32, int64} = int32",
     UnchangedShape},
    {"DenseBincount", "input: Tidx, size: Tidx, weights: T", "output: T",
     "Tidx: {int32, int64}; T: {int32, int64, float, double}; binary_output: bool = false",
     DenseCountsShape},
    {"Digamma", "x: T", "y: T", "T: {bfloat16, half, float, double}", UnchangedShape},
    {"Div", "x: T, y: T", "z: T",
     "T: {bfloat16, half, float, double, uint8, int8, uint16, int16, int32, uint32, uint64, int64, "
     "complex64, complex128}",
     BroadcastShape},
    {"DivNoNan", "x: T, y: T", "z: T", "T: {half, float, bfloat16, double, complex64, complex128}",
     BroadcastShape},
    {"Einsum", "inputs: N * T", "output: T", "equation: string; N: int >= 1; T: type",
     UnknownShape},
    {"Equal", "x: T, y: T", "z: bool", "T: type; incompatible_shape_error: bool = true",
     EqualityShape, kCommutative},
    {"Erf", "x: T", "y: T", "T: {bfloat16, half, float, double}", UnchangedShape},
    {"Erfc", "x: T", "y: T", "T: {bfloat16, half, float, double}", UnchangedShape},
    {"Erfinv", "x: T", "y: T", "T: {bfloat16, half, float, double}", UnchangedShape},
    {"EuclideanNorm", "input: T, reduction_indices: Tidx", "output: T",
     "keep_dims: bool = false; T: numbers; Tidx: {int32, int64} = int32", ReductionShape},
    {"Exp", "x: T", "y: T", "T: {bfloat16, half, float, double, complex64, complex128}",
     UnchangedShape},
    {"Expm1", "x: T", "y: T", "T: {bfloat16, half, float, double, complex64, complex128}",
     UnchangedShape},
    {"Floor", "x: T", "y: T", "T: {bfloat16, half, float, double}", UnchangedShape},
    {"FloorDiv", "x: T, y: T", "z: T",
     "T: {bfloat16, half, float, double, uint8, int8, uint16, int16, int32, uint32, uint64, int64, "
     "complex64, complex128}",
     BroadcastShape},
    {"FloorMod", "x: T, y: T", "z: T",
     "T: {int8, int16, int32, int64, uint8, uint16, uint32, uint64, bfloat16, half, float, double}",
     BroadcastShape},
    {"Greater", "x: T, y: T", "z: bool", "T: reals", BroadcastShape},
    {"GreaterEqual", "x: T, y: T", "z: bool", "T: reals", BroadcastShape},
    {"HistogramFixedWidth", "values: T, value_range: T, nbins: int32", "out: dtype",
     "T: {int32, int64, float, double}; dtype: {int32, int64} = int32", HistogramShape},
    {"Inv", "x: T", "y: T",
     "T: {bfloat16, half, float, double, int8, int16, int32, int64, complex64, complex128}",
     UnchangedShape},
    {"Invert", "x: T", "y: T", "T: {int8, int16, int32, int64, uint8, uint16, uint32, uint64}",
     UnchangedShape},
    {"LeftShift", "x: T, y: T", "z: T",
     "T: {int8, int16, int32, int64, uint8, uint16, uint32, uint64}", BroadcastShape},
    {"Lgamma", "x: T", "y: T", "T: {bfloat16, half, float, double}", UnchangedShape},
    {"Mod", "x: T, y: T", "z: T", "T: {int32, int64, half, half, bfloat16, float, double}",
     BroadcastShape},
    {"MulNoNan", "x: T, y: T", "z: T", "T: {bfloat16, half, float, double, complex64, complex128}",
     BroadcastShape},
    {"NextAfter", "x1: T, x2: T", "output: T", "T: {double, float} = float", BroadcastShape},
    {"PopulationCount", "x: T", "y: uint8",
     "T: {int8, int16, int32, int64, uint8, uint16, uint32, uint64}", UnchangedShape},
    {"RightShift", "x: T, y: T", "z: T",
     "T: {int8, int16, int32, int64, uint8, uint16, uint32, uint64}", BroadcastShape},
    {"Rint", "x: T", "y: T", "T: {bfloat16, half, float, double}", UnchangedShape},
    {"SegmentMin", "data: T, segment_ids: Tindices", "output: T",
     "T: reals; Tindices: {int32, int64}", SegmentShape},
    {"SegmentProd", "data: T, segment_ids: Tindices", "output: T",
     "T: numbers; Tindices: {int32, int64}", SegmentShape},
    {"Sinh", "x: T", "y: T", "T: {bfloat16, half, float, double, complex64, complex128}",
     UnchangedShape},
    {"SparseSegmentMean", "data: T, indices: Tidx, segment_ids: Tsegmentids", "output: T",
     "T: {bfloat16, half, float, double}; Tidx: {int32, int64} = int32; Tsegmentids: {int32, "
     "int64} = int32; sparse_gradient: bool = false",
     SparseSegmentShape},
    {"SparseSegmentMeanGrad",
     "grad: T, indices: Tidx, segment_ids: Tsegmentids, output_dim0: int32", "output: T",
     "T: {bfloat16, half, float, double}; Tidx: {int32, int64} = int32; Tsegmentids: {int32, "
     "int64} = int32",
     SparseSegmentGradShape},
    {"SparseSegmentMeanGradV2",
     "grad: T, indices: Tidx, segment_ids: Tsegmentids, dense_output_dim0: int32",
     "output: T, sorted_unique_indices: Tidx",
     "T: {bfloat16, half, float, double}; Tidx: {int32, int64} = int32; Tsegmentids: {int32, "
     "int64} = int32",
     SparseSegmentGradV2Shape},
    {"SparseSegmentMeanWithNumSegments",
     "data: T, indices: Tidx, segment_ids: Tsegmentids, num_segments: Tnumsegments", "output: T",
     "T: {bfloat16, half, float, double}; Tidx: {int32, int64} = int32; Tnumsegments: {int32, "
     "int64} = int32; Tsegmentids: {int32, int64} = int32; sparse_gradient: bool = false",
     NumSegmentsShape},
    {"SparseSegmentSqrtN", "data: T, indices: Tidx, segment_ids: Tsegmentids", "output: T",
     "T: {bfloat16, half, float, double}; Tidx: {int32, int64} = int32; Tsegmentids: {int32, "
     "int64} = int32; sparse_gradient: bool = false",
     SparseSegmentShape},
    {"SparseSegmentSqrtNGrad",
     "grad: T, indices: Tidx, segment_ids: Tsegmentids, output_dim0: int32", "output: T",
     "T: {bfloat16, half, float, double}; Tidx: {int32, int64} = int32; Tsegmentids: {int32, "
     "int64} = int32",
     SparseSegmentGradShape},
    {"SparseSegmentSqrtNGradV2",
     "grad: T, indices: Tidx, segment_ids: Tsegmentids, dense_output_dim0: int32",
     "output: T, sorted_unique_indices: Tidx",
     "T: {bfloat16, half, float, double}; Tidx: {int32, int64} = int32; Tsegmentids: {int32, "
     "int64} = int32",
     SparseSegmentGradV2Shape},
    {"SparseSegmentSqrtNWithNumSegments",
     "data: T, indices: Tidx, segment_ids: Tsegmentids, num_segments: Tnumsegments", "output: T",
     "T: {bfloat16, half, float, double}; Tidx: {int32, int64} = int32; Tnumsegments: {int32, "
     "int64} = int32; Tsegmentids: {int32, int64} = int32; sparse_gradient: bool = false",
     NumSegmentsShape},
    {"SparseSegmentSum", "data: T, indices: Tidx, segment_ids: Tsegmentids", "output: T",
     "T: reals; Tidx: {int32, int64} = int32; Tsegmentids: {int32, int64} = int32; "
     "sparse_gradient: bool = false",
     SparseSegmentShape},
    {"SparseSegmentSumGrad", "grad: T, indices: Tidx, segment_ids: Tsegmentids, output_dim0: int32",
     "output: T",
     "T: {bfloat16, half, float, double}; Tidx: {int32, int64} = int32; Tsegmentids: {int32, "
     "int64} = int32",
     SparseSegmentGradShape},
    {"SparseSegmentSumGradV2",
     "grad: T, indices: Tidx, segment_ids: Tsegmentids, dense_output_dim0: int32",
     "output: T, sorted_unique_indices: Tidx",
     "T: {bfloat16, half, float, double}; Tidx: {int32, int64} = int32; Tsegmentids: {int32, "
     "int64} = int32",
     SparseSegmentGradV2Shape},
    {"SparseSegmentSumWithNumSegments",
     "data: T, indices: Tidx, segment_ids: Tsegmentids, num_segments: Tnumsegments", "output: T",
     "T: reals; Tidx: {int32, int64} = int32; Tnumsegments: {int32, int64} = int32; Tsegmentids: "
     "{int32, int64} = int32; sparse_gradient: bool = false",
     NumSegmentsShape},
    {"Tan", "x: T", "y: T", "T: {bfloat16, half, float, double, complex64, complex128}",
     UnchangedShape},
    {"TruncateMod", "x: T, y: T", "z: T", "T: {int32, int64, bfloat16, half, float, double}",
     BroadcastShape},
    {"UnsortedSegmentMin", "data: T, segment_ids: Tindices, num_segments: Tnumsegments",
     "output: T", "T: reals; Tindices: {int32, int64}; Tnumsegments: {int32, int64} = int32",
     UnsortedSegmentShape},
    {"UnsortedSegmentProd", "data: T, segment_ids: Tindices, num_segments: Tnumsegments",
     "output: T", "T: numbers; Tindices: {int32, int64}; Tnumsegments: {int32, int64} = int32",
     UnsortedSegmentShape},
    {"Xdivy", "x: T, y: T", "z: T", "T: {half, bfloat16, float, double, complex64, complex128}",
     BroadcastShape},
    {"Xlog1py", "x: T, y: T", "z: T", "T: {half, bfloat16, float, double, complex64, complex128}",
     BroadcastShape},
    {"Xlogy", "x: T, y: T", "z: T", "T: {half, bfloat16, float, double, complex64, complex128}",
     BroadcastShape},
    {"_HostCast", "x: SrcT", "y: DstT", "SrcT: type; DstT: type; Truncate: bool = false",
     UnchangedShape},
    {"Imag", "input: T", "output: Tout",
     "T: {complex64, complex128} = complex64; Tout: {float, double} = float", UnchangedShape},
    {"IsFinite", "x: T", "y: bool", "T: {bfloat16, half, float, double}", UnchangedShape},
    {"IsInf", "x: T", "y: bool", "T: {bfloat16, half, float, double}", UnchangedShape},
    {"IsNan", "x: T", "y: bool", "T: {bfloat16, half, float, double}", UnchangedShape},
    {"Less", "x: T, y: T", "z: bool", "T: reals", BroadcastShape},
    {"LessEqual", "x: T, y: T", "z: bool", "T: reals", BroadcastShape},
    {"LinSpace", "start: T, stop: T, num: Tidx", "output: T",
     "T: {bfloat16, half, float, double}; Tidx: {int32, int64} = int32", LinSpaceShape},
    {"Log", "x: T", "y: T", "T: {bfloat16, half, float, double, complex64, complex128}",
     UnchangedShape},
    {"Log1p", "x: T", "y: T", "T: {bfloat16, half, float, double, complex64, complex128}",
     UnchangedShape},
    {"LogicalAnd", "x: bool, y: bool", "z: bool", "", BroadcastShape, kCommutative},
    {"LogicalNot", "x: bool", "y: bool", "", UnchangedShape},
    {"LogicalOr", "x: bool, y: bool", "z: bool", "", BroadcastShape, kCommutative},
    {"MatMul", "a: T, b: T", "product: T",
     "transpose_a: bool = false; transpose_b: bool = false; T: {bfloat16, half, float, double, "
     "int32, int64, uint8, uint16, uint32, uint64, complex64, complex128}; grad_a: bool = false; "
     "grad_b: bool = false",
     MatMulShape},
    {"Max", "input: T, reduction_indices: Tidx", "output: T",
     "keep_dims: bool = false; T: {float, double, int32, uint8, int16, int8, int64, bfloat16, "
     "uint16, half, uint32, uint64, qint8, quint8, qint32, qint16, quint16}; Tidx: {int32, int64} "
     "= int32",
     ReductionShape},
    {"Maximum", "x: T, y: T", "z: T",
     "T: {bfloat16, half, float, double, int8, uint8, int16, uint16, int32, uint32, int64, uint64}",
     BroadcastShape},
    {"Mean", "input: T, reduction_indices: Tidx", "output: T",
     "keep_dims: bool = false; T: numbers; Tidx: {int32, int64} = int32", ReductionShape},
    {"Min", "input: T, reduction_indices: Tidx", "output: T",
     "keep_dims: bool = false; T: {float, double, int32, uint8, int16, int8, int64, bfloat16, "
     "uint16, half, uint32, uint64, qint8, quint8, qint32, qint16, quint16}; Tidx: {int32, int64} "
     "= int32",
     ReductionShape},
    {"Minimum", "x: T, y: T", "z: T",
     "T: {bfloat16, half, float, double, int8, uint8, int16, uint16, int32, uint32, int64, uint64}",
     BroadcastShape},
    {"Mul", "x: T, y: T", "z: T",
     "T: {bfloat16, half, float, double, uint8, int8, uint16, int16, int32, uint32, uint64, int64, "
     "complex64, complex128}",
     BroadcastShape, kCommutative},
    {"Neg", "x: T", "y: T",
     "T: {bfloat16, half, float, double, int8, int16, int32, int64, complex64, complex128}",
     UnchangedShape},
    {"NotEqual", "x: T, y: T", "z: bool", "T: type; incompatible_shape_error: bool = true",
     EqualityShape, kCommutative},
    {"Polygamma", "a: T, x: T", "z: T", "T: {float, double}", BroadcastShape},
    {"Pow", "x: T, y: T", "z: T",
     "T: {bfloat16, float, half, double, int8, int16, int32, int64, complex64, complex128}",
     BroadcastShape},
    {"Prod", "input: T, reduction_indices: Tidx", "output: T",
     "keep_dims: bool = false; T: numbers; Tidx: {int32, int64} = int32", ReductionShape},
    {"Range", "start: Tidx, limit: Tidx, delta: Tidx", "output: Tidx",
     "Tidx: {bfloat16, half, float, double, int8, int16, int32, int64, uint16, uint32, uint64} = "
     "int32",
     RangeShape},
    {"Real", "input: T", "output: Tout",
     "T: {complex64, complex128} = complex64; Tout: {float, double} = float", UnchangedShape},
    {"RealDiv", "x: T, y: T", "z: T",
     "T: {bfloat16, half, float, double, uint8, int8, uint16, int16, int32, uint32, uint64, int64, "
     "complex64, complex128}",
     BroadcastShape},
    {"Reciprocal", "x: T", "y: T",
     "T: {bfloat16, half, float, double, int8, int16, int32, int64, complex64, complex128}",
     UnchangedShape},
    {"ReciprocalGrad", "y: T, dy: T", "z: T",
     "T: {bfloat16, half, float, double, complex64, complex128}", MergedInputs},
    {"Round", "x: T", "y: T",
     "T: {bfloat16, half, float, double, int8, int16, int32, int64, complex64, complex128}",
     UnchangedShape},
    {"Rsqrt", "x: T", "y: T", "T: {bfloat16, half, float, double, complex64, complex128}",
     UnchangedShape},
    {"RsqrtGrad", "y: T, dy: T", "z: T",
     "T: {bfloat16, half, float, double, complex64, complex128}", MergedInputs},
    {"SegmentMax", "data: T, segment_ids: Tindices", "output: T",
     "T: reals; Tindices: {int32, int64}", SegmentShape},
    {"SegmentMean", "data: T, segment_ids: Tindices", "output: T",
     "T: numbers; Tindices: {int32, int64}", SegmentShape},
    {"SegmentSum", "data: T, segment_ids: Tindices", "output: T",
     "T: numbers; Tindices: {int32, int64}", SegmentShape},
    {"Select", "condition: bool, t: T, e: T", "output: T", "T: type", SelectShape},
    {"SelectV2", "condition: bool, t: T, e: T", "output: T", "T: type", SelectV2Shape},
    {"Sigmoid", "x: T", "y: T", "T: {bfloat16, half, float, double, complex64, complex128}",
     UnchangedShape},
    {"SigmoidGrad", "y: T, dy: T", "z: T",
     "T: {bfloat16, half, float, double, complex64, complex128}", MergedInputs},
    {"Sign", "x: T", "y: T",
     "T: {bfloat16, half, float, double, int8, int16, int32, int64, complex64, complex128}",
     UnchangedShape},
    {"Sin", "x: T", "y: T", "T: {bfloat16, half, float, double, complex64, complex128}",
     UnchangedShape},
    {"SparseMatMul", "a: Ta, b: Tb", "product: float",
     "transpose_a: bool = false; transpose_b: bool = false; a_is_sparse: bool = false; "
     "b_is_sparse: bool = false; Ta: {float, bfloat16} = float; Tb: {float, bfloat16} = float",
     MatMulShape},
    {"Sqrt", "x: T", "y: T", "T: {bfloat16, half, float, double, complex64, complex128}",
     UnchangedShape},
    {"SqrtGrad", "y: T, dy: T", "z: T", "T: {bfloat16, half, float, double, complex64, complex128}",
     MergedInputs},
    {"Square", "x: T", "y: T",
     "T: {bfloat16, half, float, double, int8, int16, int32, int64, uint8, uint16, uint32, uint64, "
     "complex64, complex128}",
     UnchangedShape},
    {"SquaredDifference", "x: T, y: T", "z: T",
     "T: {bfloat16, half, float, double, int32, int64, complex64, complex128}", BroadcastShape,
     kCommutative},
    {"Sub", "x: T, y: T", "z: T",
     "T: {bfloat16, half, float, double, uint8, int8, uint16, int16, int32, int64, complex64, "
     "complex128, uint32, uint64}",
     BroadcastShape},
    {"Sum", "input: T, reduction_indices: Tidx", "output: T",
     "keep_dims: bool = false; T: numbers; Tidx: {int32, int64} = int32", ReductionShape},
    {"Tanh", "x: T", "y: T", "T: {bfloat16, half, float, double, complex64, complex128}",
     UnchangedShape},
    {"TanhGrad", "y: T, dy: T", "z: T", "T: {bfloat16, half, float, double, complex64, complex128}",
     MergedInputs},
    {"TruncateDiv", "x: T, y: T", "z: T",
     "T: {bfloat16, half, float, double, uint8, int8, uint16, int16, int32, uint32, uint64, int64, "
     "complex64, complex128}",
     BroadcastShape},
    {"UnsortedSegmentMax", "data: T, segment_ids: Tindices, num_segments: Tnumsegments",
     "output: T", "T: reals; Tindices: {int32, int64}; Tnumsegments: {int32, int64} = int32",
     UnsortedSegmentShape},
    {"UnsortedSegmentSum", "data: T, segment_ids: Tindices, num_segments: Tnumsegments",
     "output: T",
     "T: numbers; Tindices: {int16, int32, int64}; Tnumsegments: {int32, int64} = int32",
     UnsortedSegmentShape},
    {"Zeta", "x: T, q: T", "z: T", "T: {float, double}", BroadcastShape},
};

}  // namespace

Status RegisterMathOps(OpRegistry& registry) { return RegisterOps(registry, kOps); }

}  // namespace millrace
