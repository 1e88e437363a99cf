// Arithmetic, comparisons, reductions and matrix products.
#include "ops/all_ops.h"
#include "ops/op_def_builder.h"
#include "ops/shape_fns.h"

namespace millrace {
namespace {

constexpr OpSpec kOps[] = {
    {"Abs", "x: T", "y: T", "T: {bfloat16, half, float, double, int8, int16, int32, int64}",
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
    {"BatchMatMul", "x: T, y: T", "output: T",
     "T: {bfloat16, half, float, double, int32, int64, complex64, complex128}; adj_x: bool = "
     "false; adj_y: bool = false; grad_x: bool = false; grad_y: bool = false",
     BatchMatMulShape},
    {"BatchMatMulV2", "x: T, y: T", "output: T",
     "T: {bfloat16, half, float, double, int16, int32, int64, uint8, uint16, uint32, uint64, "
     "complex64, complex128}; adj_x: bool = false; adj_y: bool = false; grad_x: bool = false; "
     "grad_y: bool = false",
     BatchMatMulShape},
    {"Cast", "x: SrcT", "y: DstT", "SrcT: type; DstT: type; Truncate: bool = false",
     UnchangedShape},
    {"Ceil", "x: T", "y: T", "T: {bfloat16, half, float, double}", UnchangedShape},
    {"ClipByValue", "t: T, clip_value_min: T, clip_value_max: T", "output: T", "T: numbers",
     UnchangedShape},
    {"Complex", "real: T, imag: T", "out: Tout",
     "T: {float, double} = float; Tout: {complex64, complex128} = complex64", BroadcastShape},
    {"Conj", "input: T", "output: T", "T: {complex64, complex128, variant} = complex64",
     UnchangedShape},
    {"Cos", "x: T", "y: T", "T: {bfloat16, half, float, double, complex64, complex128}",
     UnchangedShape},
    {"Div", "x: T, y: T", "z: T",
     "T: {bfloat16, half, float, double, uint8, int8, uint16, int16, int32, uint32, uint64, int64, "
     "complex64, complex128}",
     BroadcastShape},
    {"DivNoNan", "x: T, y: T", "z: T", "T: {half, float, bfloat16, double, complex64, complex128}",
     BroadcastShape},
    {"Equal", "x: T, y: T", "z: bool", "T: type; incompatible_shape_error: bool = true",
     EqualityShape, kCommutative},
    {"Exp", "x: T", "y: T", "T: {bfloat16, half, float, double, complex64, complex128}",
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
    {"UnsortedSegmentSum", "data: T, segment_ids: Tindices, num_segments: Tnumsegments",
     "output: T",
     "T: numbers; Tindices: {int16, int32, int64}; Tnumsegments: {int32, int64} = int32",
     UnsortedSegmentShape},
};

}  // namespace

Status RegisterMathOps(OpRegistry& registry) { return RegisterOps(registry, kOps); }

}  // namespace millrace
