// SPDX-License-Identifier: Apache-2.0
// Sparse tensors.
#include "base/errors.h"
#include "base/status_macros.h"
#include "ops/all_ops.h"
#include "ops/op_def_builder.h"
#include "ops/shape_fns.h"

namespace millrace {
namespace {

Status SparseReorderShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape indices, c.WithRank(0, 2));
  MR_ASSIGN_OR_RETURN(const PartialShape values, c.WithRank(1, 1));
  c.set_output(0, indices);
  c.set_output(1, values);
  return OkStatus();
}

Status SparseReshapeShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape indices, c.WithRank(0, 2));
  MR_ASSIGN_OR_RETURN(const PartialShape shape, c.WithRank(2, 1));
  const int64_t rank = shape.has_rank() ? shape.dim(0) : -1;
  c.set_output(0, PartialShape({indices.has_rank() ? indices.dim(0) : -1, rank}));
  c.set_output(1, PartialShape({rank}));
  return OkStatus();
}

Status SparseFillEmptyRowsShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape indices, c.WithRank(0, 2));
  const bool known = indices.has_rank();
  Dims dense;
  const int64_t rows = ConstantInts(c, 2, &dense) && !dense.empty() ? dense[0] : -1;
  c.set_output(0, PartialShape({-1, known ? indices.dim(1) : -1}));
  c.set_output(1, UnknownDims(1));
  c.set_output(2, PartialShape({rows}));
  c.set_output(3, PartialShape({known ? indices.dim(0) : -1}));
  return OkStatus();
}

Status SparseFillEmptyRowsGradShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape where, c.WithRank(0, 1));
  c.set_output(0, where);
  c.set_output(1, PartialShape({}));
  return OkStatus();
}

// Indices, values and the dense shape of a sparse tensor of `rank`, which may be -1.
void SetSparse(InferenceContext& c, int indices, int values, int shape, int64_t rank) {
  c.set_output(indices, PartialShape({-1, rank}));
  c.set_output(values, UnknownDims(1));
  if (shape >= 0) c.set_output(shape, PartialShape({rank}));
}
StatusOr<int64_t> RankOfIndices(InferenceContext& c, int i) {
  MR_ASSIGN_OR_RETURN(const PartialShape indices, c.WithRank(i, 2));
  return indices.has_rank() ? indices.dim(1) : -1;
}

Status CombinedShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const int64_t rank, RankOfIndices(c, 0));
  SetSparse(c, 0, 1, 2, rank);
  return OkStatus();
}
Status UnionShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const int64_t rank, RankOfIndices(c, 0));
  SetSparse(c, 0, 1, -1, rank);
  return OkStatus();
}
Status SparseSplitShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const int64_t rank, RankOfIndices(c, 1));
  const int parts = c.num_outputs() / 3;
  for (int i = 0; i < parts; ++i) SetSparse(c, i, parts + i, 2 * parts + i, rank);
  return OkStatus();
}
Status SparseAddGradShape(InferenceContext& c) {
  for (int i = 0; i < 2; ++i) {
    MR_ASSIGN_OR_RETURN(const PartialShape indices, c.WithRank(1 + i, 2));
    c.set_output(i, PartialShape({indices.has_rank() ? indices.dim(0) : -1}));
  }
  return OkStatus();
}
Status ValuesShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape indices, c.WithRank(0, 2));
  c.set_output(0, PartialShape({indices.has_rank() ? indices.dim(0) : -1}));
  return OkStatus();
}
Status SumWithDenseShape(InferenceContext& c) {
  c.set_output(0, c.input(3));
  return OkStatus();
}

Status CheckSparseParts(InferenceContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(0, 2).status());
  MR_RETURN_IF_ERROR(c.WithRank(1, 1).status());
  return c.WithRank(2, 1).status();
}
Status SerializeSparseShape(InferenceContext& c) {
  MR_RETURN_IF_ERROR(CheckSparseParts(c));
  c.set_output(0, PartialShape({3}));
  return OkStatus();
}
Status SerializeManySparseShape(InferenceContext& c) {
  MR_RETURN_IF_ERROR(CheckSparseParts(c));
  c.set_output(0, PartialShape({-1, 3}));
  return OkStatus();
}
// Three columns.
Status DeserializeSparseShape(InferenceContext& c) {
  const PartialShape& packed = c.input(0);
  const int rank = packed.has_rank() ? packed.rank() : -1;
  if (rank == 0) {
    return errors::InvalidArgument("Shape must be at least rank 1 but is rank 0");
  }
  if (rank > 0) MR_RETURN_IF_ERROR(MergeDim(packed.dim(rank - 1), 3).status());
  SetSparse(c, 0, 1, 2, -1);
  return OkStatus();
}
Status DeserializeManySparseShape(InferenceContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(0, 2).status());
  return DeserializeSparseShape(c);
}

constexpr OpSpec kOps[] = {
    {"DeserializeManySparse", "serialized_sparse: string",
     "sparse_indices: int64, sparse_values: dtype, sparse_shape: int64", "dtype: type",
     DeserializeManySparseShape},
    {"DeserializeSparse", "serialized_sparse: Tserialized",
     "sparse_indices: int64, sparse_values: dtype, sparse_shape: int64",
     "dtype: type; Tserialized: {string, variant} = string", DeserializeSparseShape},
    {"SerializeManySparse", "sparse_indices: int64, sparse_values: T, sparse_shape: int64",
     "serialized_sparse: out_type", "T: type; out_type: {string, variant} = string",
     SerializeManySparseShape},
    {"SerializeSparse", "sparse_indices: int64, sparse_values: T, sparse_shape: int64",
     "serialized_sparse: out_type", "T: type; out_type: {string, variant} = string",
     SerializeSparseShape},
    {"SparseAdd",
     "a_indices: int64, a_values: T, a_shape: int64, b_indices: int64, b_values: T, b_shape: "
     "int64, thresh: Treal",
     "sum_indices: int64, sum_values: T, sum_shape: int64", "T: numbers; Treal: reals",
     CombinedShape},
    {"SparseAddGrad",
     "backprop_val_grad: T, a_indices: int64, b_indices: int64, sum_indices: int64",
     "a_val_grad: T, b_val_grad: T", "T: numbers", SparseAddGradShape},
    {"SparseConcat", "indices: N * int64, values: N * T, shapes: N * int64",
     "output_indices: int64, output_values: T, output_shape: int64",
     "concat_dim: int; N: int >= 2; T: type", CombinedShape},
    {"SparseDenseCwiseAdd", "sp_indices: int64, sp_values: T, sp_shape: int64, dense: T",
     "output: T", "T: numbers", ValuesShape},
    {"SparseDenseCwiseDiv", "sp_indices: int64, sp_values: T, sp_shape: int64, dense: T",
     "output: T", "T: numbers", ValuesShape},
    {"SparseDenseCwiseMul", "sp_indices: int64, sp_values: T, sp_shape: int64, dense: T",
     "output: T", "T: numbers", ValuesShape},
    {"SparseFillEmptyRows", "indices: int64, values: T, dense_shape: int64, default_value: T",
     "output_indices: int64, output_values: T, empty_row_indicator: bool, reverse_index_map: int64",
     "T: type", SparseFillEmptyRowsShape},
    {"SparseFillEmptyRowsGrad", "reverse_index_map: int64, grad_values: T",
     "d_values: T, d_default_value: T", "T: type", SparseFillEmptyRowsGradShape},
    {"SparseReduceMax",
     "input_indices: int64, input_values: T, input_shape: int64, reduction_axes: int32",
     "output: T", "keep_dims: bool = false; T: reals", UnknownShape},
    {"SparseReduceSum",
     "input_indices: int64, input_values: T, input_shape: int64, reduction_axes: int32",
     "output: T", "keep_dims: bool = false; T: numbers", UnknownShape},
    {"SparseReorder", "input_indices: int64, input_values: T, input_shape: int64",
     "output_indices: int64, output_values: T", "T: type", SparseReorderShape},
    {"SparseReshape", "input_indices: int64, input_shape: int64, new_shape: int64",
     "output_indices: int64, output_shape: int64", "", SparseReshapeShape},
    {"SparseSlice", "indices: int64, values: T, shape: int64, start: int64, size: int64",
     "output_indices: int64, output_values: T, output_shape: int64", "T: type", CombinedShape},
    {"SparseSoftmax", "sp_indices: int64, sp_values: T, sp_shape: int64", "output: T",
     "T: {half, float, double}", ValuesShape},
    {"SparseSparseMaximum",
     "a_indices: int64, a_values: T, a_shape: int64, b_indices: int64, b_values: T, b_shape: int64",
     "output_indices: int64, output_values: T", "T: reals", UnionShape},
    {"SparseSparseMinimum",
     "a_indices: int64, a_values: T, a_shape: int64, b_indices: int64, b_values: T, b_shape: int64",
     "output_indices: int64, output_values: T", "T: numbers", UnionShape},
    {"SparseSplit", "split_dim: int64, indices: int64, values: T, shape: int64",
     "output_indices: num_split * int64, output_values: num_split * T, output_shape: num_split * "
     "int64",
     "num_split: int >= 1; T: type", SparseSplitShape},
    {"SparseTensorDenseAdd", "a_indices: Tindices, a_values: T, a_shape: Tindices, b: T",
     "output: T", "T: numbers; Tindices: {int32, int64}", SumWithDenseShape},
    {"SparseToDense",
     "sparse_indices: Tindices, output_shape: Tindices, sparse_values: T, default_value: T",
     "dense: T", "validate_indices: bool = true; T: type; Tindices: {int32, int64}",
     ShapeFromInput1},
};

}  // namespace

Status RegisterSparseOps(OpRegistry& registry) { return RegisterOps(registry, kOps); }

}  // namespace millrace
