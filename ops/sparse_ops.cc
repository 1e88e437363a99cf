// Sparse tensors.
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

constexpr OpSpec kOps[] = {
    {"SparseFillEmptyRows", "indices: int64, values: T, dense_shape: int64, default_value: T",
     "output_indices: int64, output_values: T, empty_row_indicator: bool, reverse_index_map: int64",
     "T: type", SparseFillEmptyRowsShape},
    {"SparseFillEmptyRowsGrad", "reverse_index_map: int64, grad_values: T",
     "d_values: T, d_default_value: T", "T: type", SparseFillEmptyRowsGradShape},
    {"SparseReorder", "input_indices: int64, input_values: T, input_shape: int64",
     "output_indices: int64, output_values: T", "T: type", SparseReorderShape},
    {"SparseReshape", "input_indices: int64, input_shape: int64, new_shape: int64",
     "output_indices: int64, output_shape: int64", "", SparseReshapeShape},
    {"SparseToDense",
     "sparse_indices: Tindices, output_shape: Tindices, sparse_values: T, default_value: T",
     "dense: T", "validate_indices: bool = true; T: type; Tindices: {int32, int64}",
     ShapeFromInput1},
};

}  // namespace

Status RegisterSparseOps(OpRegistry& registry) { return RegisterOps(registry, kOps); }

}  // namespace millrace
