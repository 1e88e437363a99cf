// Sparse tensors.
#include "ops/all_ops.h"
#include "ops/op_def_builder.h"
#include "ops/shape_fns.h"

namespace millrace {
namespace {

constexpr OpSpec kOps[] = {
    {"SparseToDense",
     "sparse_indices: Tindices, output_shape: Tindices, sparse_values: T, default_value: T",
     "dense: T", "validate_indices: bool = true; T: type; Tindices: {int32, int64}",
     ShapeFromInput1},
};

}  // namespace

Status RegisterSparseOps(OpRegistry& registry) { return RegisterOps(registry, kOps); }

}  // namespace millrace
