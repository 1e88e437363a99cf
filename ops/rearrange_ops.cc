// SPDX-License-Identifier: Apache-2.0
// Elements in another place, drawn at random, and small matrices.
#include "base/errors.h"
#include "base/status_macros.h"
#include "ops/all_ops.h"
#include "ops/op_def_builder.h"
#include "ops/shape_fns.h"

namespace millrace {
namespace {

// Every output a vector of unknown length.
Status VectorsShape(InferenceContext& c) {
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, UnknownDims(1));
  return OkStatus();
}

// The candidates, and how often each class is expected among them.
Status CandidateShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const int64_t sampled, c.attr<int64_t>("num_sampled"));
  c.set_output(0, PartialShape({sampled}));
  c.set_output(1, c.input(0));
  c.set_output(2, PartialShape({sampled}));
  return OkStatus();
}

// What is left of the input without its padding.
Status MirrorPadGradShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape paddings, c.WithRank(1, 2));
  MR_RETURN_IF_ERROR(MergeDim(paddings.dim(1), 2).status());
  if (!c.input(0).has_rank()) return UnknownShape(c);
  PartialShape out = c.input(0);
  MR_RETURN_IF_ERROR(MergeDim(paddings.dim(0), out.rank()).status());
  Dims amounts;
  if (!ConstantInts(c, 1, &amounts)) {
    c.set_output(0, UnknownDims(out.rank()));
    return OkStatus();
  }
  for (int i = 0; i < out.rank(); ++i) {
    const int64_t before = amounts[2 * i], after = amounts[2 * i + 1];
    if (before < 0 || after < 0) {
      return errors::InvalidArgument("Paddings must be non-negative: ", before, " ", after);
    }
    if (out.dim(i) < 0) continue;
    if (before > out.dim(i) || after > out.dim(i) - before) {
      return errors::InvalidArgument("Paddings must be no greater than the output's size: ", before,
                                     ", ", after);
    }
    out.SetDim(i, out.dim(i) - before - after);
  }
  c.set_output(0, out);
  return OkStatus();
}

// A number for each matrix of a batch.
Status DeterminantShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape matrices, c.WithRankAtLeast(0, 2));
  if (!matrices.has_rank()) return UnknownShape(c);
  const int rank = matrices.rank();
  MR_RETURN_IF_ERROR(MergeDim(matrices.dim(rank - 2), matrices.dim(rank - 1)).status());
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, SubShape(matrices, 0, rank - 2));
  return OkStatus();
}

// Matrices, and as many right-hand sides.
Status SolveShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape matrices, c.WithRankAtLeast(0, 2));
  MR_ASSIGN_OR_RETURN(const PartialShape sides, c.WithRankAtLeast(1, 2));
  if (matrices.has_rank() && sides.has_rank()) {
    MR_RETURN_IF_ERROR(
        MergeDim(matrices.dim(matrices.rank() - 1), sides.dim(sides.rank() - 2)).status());
  }
  c.set_output(0, sides);
  return OkStatus();
}
// The dimensions before the last two are broadcast.
Status TriangularSolveShape(InferenceContext& c) {
  MR_RETURN_IF_ERROR(SolveShape(c));
  const PartialShape &matrices = c.input(0), &sides = c.input(1);
  if (!matrices.has_rank() || !sides.has_rank()) return UnknownShape(c);
  MR_ASSIGN_OR_RETURN(const PartialShape batch,
                      BroadcastShapes(SubShape(matrices, 0, matrices.rank() - 2),
                                      SubShape(sides, 0, sides.rank() - 2)));
  c.set_output(0, ConcatShapes(batch, SubShape(sides, sides.rank() - 2)));
  return OkStatus();
}

// As GatherNd's, of a variable.
Status ResourceGatherNdShape(InferenceContext& c) {
  const HandleShape* const handle = c.handle(0);
  MR_ASSIGN_OR_RETURN(const PartialShape indices, c.WithRankAtLeast(1, 1));
  if (handle == nullptr || !handle->shape.has_rank() || !indices.has_rank()) return UnknownShape(c);
  const int64_t depth = indices.dim(indices.rank() - 1);
  if (depth < 0) return UnknownShape(c);
  if (depth > handle->shape.rank()) {
    return errors::InvalidArgument("indices.shape[-1] must be <= params.rank, but saw indices ",
                                   indices.DebugString(), " and params ",
                                   handle->shape.DebugString());
  }
  c.set_output(0, ConcatShapes(SubShape(indices, 0, indices.rank() - 1),
                               SubShape(handle->shape, static_cast<int>(depth))));
  return OkStatus();
}

constexpr OpSpec kOps[] = {
    {"BroadcastArgs", "s0: T, s1: T", "r0: T", "T: {int32, int64} = int32", VectorsShape},
    {"Cholesky", "input: T", "output: T", "T: {double, float, half, complex64, complex128}",
     UnchangedShape},
    {"CholeskyGrad", "l: T, grad: T", "output: T", "T: {half, float, double}", UnchangedShape},
    {"ComputeAccidentalHits", "true_classes: int64, sampled_candidates: int64",
     "indices: int32, ids: int64, weights: float", "num_true: int; seed: int = 0; seed2: int = 0",
     VectorsShape},
    {"ConjugateTranspose", "x: T, perm: Tperm", "y: T", "T: type; Tperm: {int32, int64} = int32",
     TransposeShape},
    {"Empty", "shape: int32", "output: dtype", "dtype: type; init: bool = false", ShapeFromInput0,
     kStateful},
    {"ListDiff", "x: T, y: T", "out: T, idx: out_idx", "T: type; out_idx: {int32, int64} = int32",
     VectorsShape},
    {"LogMatrixDeterminant", "input: T", "sign: T, log_abs_determinant: T",
     "T: {half, float, double, complex64, complex128}", DeterminantShape},
    {"LogUniformCandidateSampler", "true_classes: int64",
     "sampled_candidates: int64, true_expected_count: float, sampled_expected_count: float",
     "num_true: int >= 1; num_sampled: int >= 1; unique: bool; range_max: int >= 1; seed: int = 0; "
     "seed2: int = 0",
     CandidateShape, kStateful},
    {"MatrixDeterminant", "input: T", "output: T",
     "T: {half, float, double, complex64, complex128}", DeterminantShape},
    {"MatrixInverse", "input: T", "output: T",
     "adjoint: bool = false; T: {double, float, half, complex64, complex128}", UnchangedShape},
    {"MatrixSolve", "matrix: T, rhs: T", "output: T",
     "adjoint: bool = false; T: {double, float, half, complex64, complex128}", SolveShape},
    {"MatrixTriangularSolve", "matrix: T, rhs: T", "output: T",
     "lower: bool = true; adjoint: bool = false; T: {bfloat16, double, float, half, complex64, "
     "complex128}",
     TriangularSolveShape},
    {"MirrorPad", "input: T, paddings: Tpaddings", "output: T",
     "T: type; Tpaddings: {int32, int64} = int32; mode: {'REFLECT', 'SYMMETRIC'}", PadShape},
    {"MirrorPadGrad", "input: T, paddings: Tpaddings", "output: T",
     "T: type; Tpaddings: {int32, int64} = int32; mode: {'REFLECT', 'SYMMETRIC'}",
     MirrorPadGradShape},
    {"Multinomial", "logits: T, num_samples: int32", "output: output_dtype",
     "seed: int = 0; seed2: int = 0; T: reals; output_dtype: {int32, int64} = int64", UnknownShape,
     kStateful},
    {"ResourceGatherNd", "resource: resource, indices: Tindices", "output: dtype",
     "dtype: type; Tindices: {int32, int64}", ResourceGatherNdShape, kStateful},
    {"ReverseSequence", "input: T, seq_lengths: Tlen", "output: T",
     "seq_dim: int; batch_dim: int = 0; T: type; Tlen: {int32, int64} = int64", UnchangedShape},
    {"Roll", "input: T, shift: Tshift, axis: Taxis", "output: T",
     "T: type; Tshift: {int32, int64}; Taxis: {int32, int64}", UnchangedShape},
    {"SparseTensorDenseMatMul", "a_indices: Tindices, a_values: T, a_shape: int64, b: T",
     "product: T",
     "T: type; Tindices: {int32, int64} = int64; adjoint_a: bool = false; adjoint_b: bool = false",
     UnknownShape},
    {"TensorScatterAdd", "tensor: T, indices: Tindices, updates: T", "output: T",
     "T: type; Tindices: {int32, int64}; bad_indices_policy: string = ''", UnchangedShape},
    {"TensorScatterMax", "tensor: T, indices: Tindices, updates: T", "output: T",
     "T: type; Tindices: {int32, int64}; bad_indices_policy: string = ''", UnchangedShape},
    {"TensorScatterMin", "tensor: T, indices: Tindices, updates: T", "output: T",
     "T: type; Tindices: {int32, int64}; bad_indices_policy: string = ''", UnchangedShape},
    {"TensorScatterSub", "tensor: T, indices: Tindices, updates: T", "output: T",
     "T: type; Tindices: {int32, int64}; bad_indices_policy: string = ''", UnchangedShape},
    {"TensorScatterUpdate", "tensor: T, indices: Tindices, updates: T", "output: T",
     "T: type; Tindices: {int16, int32, int64, uint16}; bad_indices_policy: string = ''",
     UnchangedShape},
    {"UniformCandidateSampler", "true_classes: int64",
     "sampled_candidates: int64, true_expected_count: float, sampled_expected_count: float",
     "num_true: int >= 1; num_sampled: int >= 1; unique: bool; range_max: int >= 1; seed: int = 0; "
     "seed2: int = 0",
     CandidateShape, kStateful},
    {"UniqueWithCounts", "x: T", "y: T, idx: out_idx, count: out_idx",
     "T: type; out_idx: {int32, int64} = int32", VectorsShape},
};

}  // namespace

Status RegisterRearrangeOps(OpRegistry& registry) { return RegisterOps(registry, kOps); }

}  // namespace millrace
