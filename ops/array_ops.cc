#include "ops/all_ops.h"
#include "ops/op_def_builder.h"

namespace millrace {
namespace {

constexpr OpSpec kOps[] = {
    {"BroadcastGradientArgs", "s0: T, s1: T", "r0: T, r1: T", "T: {int32, int64} = int32"},
    {"BroadcastTo", "input: T, shape: Tidx", "output: T", "T: type; Tidx: {int32, int64} = int32"},
    {"CheckNumerics", "tensor: T", "output: T",
     "T: {bfloat16, half, float, double}; message: string", nullptr, kStateful},
    {"ConcatOffset", "concat_dim: int32, shape: N * shape_type", "offset: N * shape_type",
     "N: int >= 2; shape_type: {int32, int64} = int32"},
    {"ConcatV2", "values: N * T, axis: Tidx", "output: T",
     "N: int >= 2; T: type; Tidx: {int32, int64} = int32"},
    {"Const", "", "output: dtype", "value: tensor; dtype: type"},
    {"ExpandDims", "input: T, dim: Tdim", "output: T", "T: type; Tdim: {int32, int64} = int32"},
    {"Fill", "dims: index_type, value: T", "output: T",
     "T: type; index_type: {int32, int64} = int32"},
    {"Gather", "params: Tparams, indices: Tindices", "output: Tparams",
     "validate_indices: bool = true; Tparams: type; Tindices: {int32, int64}"},
    {"GatherNd", "params: Tparams, indices: Tindices", "output: Tparams",
     "Tparams: type; Tindices: {int16, int32, int64}; bad_indices_policy: string = ''"},
    {"GatherV2", "params: Tparams, indices: Tindices, axis: Taxis", "output: Tparams",
     "batch_dims: int = 0; Tparams: type; Tindices: {int16, int32, int64}; Taxis: {int32, int64}"},
    {"HostConst", "", "output: dtype", "value: tensor; dtype: type"},
    {"Identity", "input: T", "output: T", "T: type"},
    {"IdentityN", "input: T", "output: T", "T: list(type) >= 1"},
    {"InvertPermutation", "x: T", "y: T", "T: {int32, int64} = int32"},
    {"OneHot", "indices: TI, depth: int32, on_value: T, off_value: T", "output: T",
     "axis: int = -1; T: type; TI: {uint8, int8, int32, int64} = int64"},
    {"OnesLike", "x: T", "y: T",
     "T: {bfloat16, half, float, double, int8, uint8, int16, uint16, int32, uint32, int64, uint64, "
     "complex64, complex128, bool}"},
    {"Pack", "values: N * T", "output: T", "N: int >= 1; T: type; axis: int = 0"},
    {"Pad", "input: T, paddings: Tpaddings", "output: T",
     "T: type; Tpaddings: {int32, int64} = int32"},
    {"Placeholder", "", "output: dtype", "dtype: type; shape: shape = ?"},
    {"PlaceholderWithDefault", "input: dtype", "output: dtype", "dtype: type; shape: shape"},
    {"Rank", "input: T", "output: int32", "T: type"},
    {"Reshape", "tensor: T, shape: Tshape", "output: T", "T: type; Tshape: {int32, int64} = int32"},
    {"Shape", "input: T", "output: shape_tensor(out_type)",
     "T: type; out_type: {int32, int64} = int32"},
    {"ShapeN", "input: N * T", "output: N * out_type",
     "N: int >= 1; T: type; out_type: {int32, int64} = int32"},
    {"Size", "input: T", "output: out_type", "T: type; out_type: {int32, int64} = int32"},
    {"Slice", "input: T, begin: Index, size: Index", "output: T", "T: type; Index: {int32, int64}"},
    {"Split", "split_dim: int32, value: T", "output: num_split * T",
     "num_split: int >= 1; T: type"},
    {"SplitV", "value: T, size_splits: Tlen, split_dim: int32", "output: num_split * T",
     "num_split: int >= 1; T: type; Tlen: {int8, int32, int64} = int64"},
    {"Squeeze", "input: T", "output: T", "T: type; squeeze_dims: list(int) >= 0 = []"},
    {"StopGradient", "input: T", "output: T", "T: type"},
    {"StridedSlice", "input: T, begin: Index, end: Index, strides: Index", "output: T",
     "T: type; Index: {int16, int32, int64}; begin_mask: int = 0; end_mask: int = 0; "
     "ellipsis_mask: int = 0; new_axis_mask: int = 0; shrink_axis_mask: int = 0"},
    {"StridedSliceGrad", "shape: Index, begin: Index, end: Index, strides: Index, dy: T",
     "output: T",
     "T: type; Index: {int32, int64}; begin_mask: int = 0; end_mask: int = 0; ellipsis_mask: int = "
     "0; new_axis_mask: int = 0; shrink_axis_mask: int = 0"},
    {"Tile", "input: T, multiples: Tmultiples", "output: T",
     "T: type; Tmultiples: {int32, int64} = int32"},
    {"Transpose", "x: T, perm: Tperm", "y: T", "T: type; Tperm: {int32, int64} = int32"},
    {"Unique", "x: T", "y: T, idx: out_idx", "T: type; out_idx: {int32, int64} = int32"},
    {"Unpack", "value: T", "output: num * T", "num: int >= 0; T: type; axis: int = 0"},
    {"Where", "input: T", "index: int64",
     "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, "
     "bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64, bool} = bool"},
    {"ZerosLike", "x: T", "y: T", "T: type"},
};

}  // namespace

Status RegisterArrayOps(OpRegistry& registry) { return RegisterOps(registry, kOps); }

}  // namespace millrace
