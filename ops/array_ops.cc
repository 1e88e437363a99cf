// Constants, placeholders, and ops that rearrange tensors.
#include "ops/all_ops.h"
#include "ops/op_def_builder.h"
#include "ops/shape_fns.h"

namespace millrace {
namespace {

constexpr OpSpec kOps[] = {
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
    {"ConcatOffset", "concat_dim: int32, shape: N * shape_type", "offset: N * shape_type",
     "N: int >= 2; shape_type: {int32, int64} = int32", ConcatOffsetShape},
    {"ConcatV2", "values: N * T, axis: Tidx", "output: T",
     "N: int >= 2; T: type; Tidx: {int32, int64} = int32", ConcatShape},
    {"Const", "", "output: dtype", "value: tensor; dtype: type", ConstShape},
    {"DepthToSpace", "input: T", "output: T",
     "T: type; block_size: int >= 2; data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'",
     UnknownShape},
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
    {"HostConst", "", "output: dtype", "value: tensor; dtype: type", ConstShape},
    {"Identity", "input: T", "output: T", "T: type", UnchangedShape},
    {"IdentityN", "input: T", "output: T", "T: list(type) >= 1", IdentityNShape},
    {"InvertPermutation", "x: T", "y: T", "T: {int32, int64} = int32", UnchangedShape},
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
    {"PlaceholderWithDefault", "input: dtype", "output: dtype", "dtype: type; shape: shape",
     ShapeFromAttr},
    {"Rank", "input: T", "output: int32", "T: type", ScalarShape},
    {"Reshape", "tensor: T, shape: Tshape", "output: T", "T: type; Tshape: {int32, int64} = int32",
     ReshapeShape},
    {"ReverseV2", "tensor: T, axis: Tidx", "output: T",
     "Tidx: {int32, int64} = int32; T: {uint8, int8, uint16, int16, int32, uint32, int64, uint64, "
     "bool, bfloat16, half, float, double, complex64, complex128, string}",
     UnchangedShape},
    {"ScatterNd", "indices: Tindices, updates: T, shape: Tindices", "output: T",
     "T: type; Tindices: {int16, int32, int64}; bad_indices_policy: string = ''", ScatterNdShape},
    {"Shape", "input: T", "output: shape_tensor(out_type)",
     "T: type; out_type: {int32, int64} = int32", ShapeOfShape},
    {"ShapeN", "input: N * T", "output: N * out_type",
     "N: int >= 1; T: type; out_type: {int32, int64} = int32", ShapeOfShape},
    {"Size", "input: T", "output: out_type", "T: type; out_type: {int32, int64} = int32",
     ScalarShape},
    {"Slice", "input: T, begin: Index, size: Index", "output: T", "T: type; Index: {int32, int64}",
     SliceShape},
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
    {"Tile", "input: T, multiples: Tmultiples", "output: T",
     "T: type; Tmultiples: {int32, int64} = int32", TileShape},
    {"Transpose", "x: T, perm: Tperm", "y: T", "T: type; Tperm: {int32, int64} = int32",
     TransposeShape},
    {"Unique", "x: T", "y: T, idx: out_idx", "T: type; out_idx: {int32, int64} = int32",
     UniqueShape},
    {"Unpack", "value: T", "output: num * T", "num: int >= 0; T: type; axis: int = 0", UnpackShape},
    {"Where", "input: T", "index: int64",
     "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, "
     "bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64, bool} = bool",
     WhereShape},
    {"ZerosLike", "x: T", "y: T", "T: type", UnchangedShape},
};

}  // namespace

Status RegisterArrayOps(OpRegistry& registry) { return RegisterOps(registry, kOps); }

}  // namespace millrace
