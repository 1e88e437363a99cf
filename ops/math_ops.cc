#include "ops/all_ops.h"
#include "ops/op_def_builder.h"

namespace millrace {
namespace {

constexpr OpSpec kOps[] = {
    {"Abs", "x: T", "y: T", "T: {bfloat16, half, float, double, int8, int16, int32, int64}"},
    {"Add", "x: T, y: T", "z: T",
     "T: {bfloat16, half, float, double, uint8, int8, int16, int32, int64, complex64, complex128, "
     "string}"},
    {"AddN", "inputs: N * T", "sum: T",
     "N: int >= 1; T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, "
     "qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64, variant}",
     nullptr, kCommutative | kAggregate},
    {"AddV2", "x: T, y: T", "z: T",
     "T: {bfloat16, half, float, double, uint8, uint16, uint32, uint64, int8, int16, int32, int64, "
     "complex64, complex128}",
     nullptr, kCommutative | kAggregate},
    {"All", "input: bool, reduction_indices: Tidx", "output: bool",
     "keep_dims: bool = false; Tidx: {int32, int64} = int32"},
    {"Any", "input: bool, reduction_indices: Tidx", "output: bool",
     "keep_dims: bool = false; Tidx: {int32, int64} = int32"},
    {"ArgMax", "input: T, dimension: Tidx", "output: output_type",
     "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64, "
     "qint8, quint8, qint32, qint16, quint16, bool}; Tidx: {int16, int32, int64} = int32; "
     "output_type: {int16, uint16, int32, int64} = int64"},
    {"ArgMin", "input: T, dimension: Tidx", "output: output_type",
     "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64, "
     "qint8, quint8, qint32, qint16, quint16, bool}; Tidx: {int32, int64} = int32; output_type: "
     "{int32, int64} = int64"},
    {"BatchMatMul", "x: T, y: T", "output: T",
     "T: {bfloat16, half, float, double, int32, int64, complex64, complex128}; adj_x: bool = "
     "false; adj_y: bool = false; grad_x: bool = false; grad_y: bool = false"},
    {"BatchMatMulV2", "x: T, y: T", "output: T",
     "T: {bfloat16, half, float, double, int16, int32, int64, uint8, uint16, uint32, uint64, "
     "complex64, complex128}; adj_x: bool = false; adj_y: bool = false; grad_x: bool = false; "
     "grad_y: bool = false"},
    {"Cast", "x: SrcT", "y: DstT", "SrcT: type; DstT: type; Truncate: bool = false"},
    {"Ceil", "x: T", "y: T", "T: {bfloat16, half, float, double}"},
    {"ClipByValue", "t: T, clip_value_min: T, clip_value_max: T", "output: T", "T: numbers"},
    {"Complex", "real: T, imag: T", "out: Tout",
     "T: {float, double} = float; Tout: {complex64, complex128} = complex64"},
    {"Conj", "input: T", "output: T", "T: {complex64, complex128, variant} = complex64"},
    {"Cos", "x: T", "y: T", "T: {bfloat16, half, float, double, complex64, complex128}"},
    {"Div", "x: T, y: T", "z: T",
     "T: {bfloat16, half, float, double, uint8, int8, uint16, int16, int32, uint32, uint64, int64, "
     "complex64, complex128}"},
    {"DivNoNan", "x: T, y: T", "z: T", "T: {half, float, bfloat16, double, complex64, complex128}"},
    {"Equal", "x: T, y: T", "z: bool", "T: type; incompatible_shape_error: bool = true", nullptr,
     kCommutative},
    {"Exp", "x: T", "y: T", "T: {bfloat16, half, float, double, complex64, complex128}"},
    {"Floor", "x: T", "y: T", "T: {bfloat16, half, float, double}"},
    {"FloorDiv", "x: T, y: T", "z: T",
     "T: {bfloat16, half, float, double, uint8, int8, uint16, int16, int32, uint32, uint64, int64, "
     "complex64, complex128}"},
    {"FloorMod", "x: T, y: T", "z: T",
     "T: {int8, int16, int32, int64, uint8, uint16, uint32, uint64, bfloat16, half, float, "
     "double}"},
    {"Greater", "x: T, y: T", "z: bool", "T: reals"},
    {"GreaterEqual", "x: T, y: T", "z: bool", "T: reals"},
    {"_HostCast", "x: SrcT", "y: DstT", "SrcT: type; DstT: type; Truncate: bool = false"},
    {"Imag", "input: T", "output: Tout",
     "T: {complex64, complex128} = complex64; Tout: {float, double} = float"},
    {"IsFinite", "x: T", "y: bool", "T: {bfloat16, half, float, double}"},
    {"IsInf", "x: T", "y: bool", "T: {bfloat16, half, float, double}"},
    {"IsNan", "x: T", "y: bool", "T: {bfloat16, half, float, double}"},
    {"Less", "x: T, y: T", "z: bool", "T: reals"},
    {"LessEqual", "x: T, y: T", "z: bool", "T: reals"},
    {"LinSpace", "start: T, stop: T, num: Tidx", "output: T",
     "T: {bfloat16, half, float, double}; Tidx: {int32, int64} = int32"},
    {"Log", "x: T", "y: T", "T: {bfloat16, half, float, double, complex64, complex128}"},
    {"LogicalAnd", "x: bool, y: bool", "z: bool", "", nullptr, kCommutative},
    {"LogicalNot", "x: bool", "y: bool", ""},
    {"LogicalOr", "x: bool, y: bool", "z: bool", "", nullptr, kCommutative},
    {"MatMul", "a: T, b: T", "product: T",
     "transpose_a: bool = false; transpose_b: bool = false; T: {bfloat16, half, float, double, "
     "int32, int64, uint8, uint16, uint32, uint64, complex64, complex128}; grad_a: bool = false; "
     "grad_b: bool = false"},
    {"Max", "input: T, reduction_indices: Tidx", "output: T",
     "keep_dims: bool = false; T: {float, double, int32, uint8, int16, int8, int64, bfloat16, "
     "uint16, half, uint32, uint64, qint8, quint8, qint32, qint16, quint16}; Tidx: {int32, int64} "
     "= int32"},
    {"Maximum", "x: T, y: T", "z: T",
     "T: {bfloat16, half, float, double, int8, uint8, int16, uint16, int32, uint32, int64, "
     "uint64}"},
    {"Mean", "input: T, reduction_indices: Tidx", "output: T",
     "keep_dims: bool = false; T: numbers; Tidx: {int32, int64} = int32"},
    {"Min", "input: T, reduction_indices: Tidx", "output: T",
     "keep_dims: bool = false; T: {float, double, int32, uint8, int16, int8, int64, bfloat16, "
     "uint16, half, uint32, uint64, qint8, quint8, qint32, qint16, quint16}; Tidx: {int32, int64} "
     "= int32"},
    {"Minimum", "x: T, y: T", "z: T",
     "T: {bfloat16, half, float, double, int8, uint8, int16, uint16, int32, uint32, int64, "
     "uint64}"},
    {"Mul", "x: T, y: T", "z: T",
     "T: {bfloat16, half, float, double, uint8, int8, uint16, int16, int32, uint32, uint64, int64, "
     "complex64, complex128}",
     nullptr, kCommutative},
    {"Neg", "x: T", "y: T",
     "T: {bfloat16, half, float, double, int8, int16, int32, int64, complex64, complex128}"},
    {"NotEqual", "x: T, y: T", "z: bool", "T: type; incompatible_shape_error: bool = true", nullptr,
     kCommutative},
    {"Pow", "x: T, y: T", "z: T",
     "T: {bfloat16, float, half, double, int8, int16, int32, int64, complex64, complex128}"},
    {"Prod", "input: T, reduction_indices: Tidx", "output: T",
     "keep_dims: bool = false; T: numbers; Tidx: {int32, int64} = int32"},
    {"Range", "start: Tidx, limit: Tidx, delta: Tidx", "output: Tidx",
     "Tidx: {bfloat16, half, float, double, int8, int16, int32, int64, uint16, uint32, uint64} = "
     "int32"},
    {"Real", "input: T", "output: Tout",
     "T: {complex64, complex128} = complex64; Tout: {float, double} = float"},
    {"RealDiv", "x: T, y: T", "z: T",
     "T: {bfloat16, half, float, double, uint8, int8, uint16, int16, int32, uint32, uint64, int64, "
     "complex64, complex128}"},
    {"Reciprocal", "x: T", "y: T",
     "T: {bfloat16, half, float, double, int8, int16, int32, int64, complex64, complex128}"},
    {"ReciprocalGrad", "y: T, dy: T", "z: T",
     "T: {bfloat16, half, float, double, complex64, complex128}"},
    {"Round", "x: T", "y: T",
     "T: {bfloat16, half, float, double, int8, int16, int32, int64, complex64, complex128}"},
    {"Rsqrt", "x: T", "y: T", "T: {bfloat16, half, float, double, complex64, complex128}"},
    {"RsqrtGrad", "y: T, dy: T", "z: T",
     "T: {bfloat16, half, float, double, complex64, complex128}"},
    {"Select", "condition: bool, t: T, e: T", "output: T", "T: type"},
    {"SelectV2", "condition: bool, t: T, e: T", "output: T", "T: type"},
    {"Sigmoid", "x: T", "y: T", "T: {bfloat16, half, float, double, complex64, complex128}"},
    {"SigmoidGrad", "y: T, dy: T", "z: T",
     "T: {bfloat16, half, float, double, complex64, complex128}"},
    {"Sign", "x: T", "y: T",
     "T: {bfloat16, half, float, double, int8, int16, int32, int64, complex64, complex128}"},
    {"Sin", "x: T", "y: T", "T: {bfloat16, half, float, double, complex64, complex128}"},
    {"Sqrt", "x: T", "y: T", "T: {bfloat16, half, float, double, complex64, complex128}"},
    {"SqrtGrad", "y: T, dy: T", "z: T",
     "T: {bfloat16, half, float, double, complex64, complex128}"},
    {"Square", "x: T", "y: T",
     "T: {bfloat16, half, float, double, int8, int16, int32, int64, uint8, uint16, uint32, uint64, "
     "complex64, complex128}"},
    {"SquaredDifference", "x: T, y: T", "z: T",
     "T: {bfloat16, half, float, double, int32, int64, complex64, complex128}", nullptr,
     kCommutative},
    {"Sub", "x: T, y: T", "z: T",
     "T: {bfloat16, half, float, double, uint8, int8, uint16, int16, int32, int64, complex64, "
     "complex128, uint32, uint64}"},
    {"Sum", "input: T, reduction_indices: Tidx", "output: T",
     "keep_dims: bool = false; T: numbers; Tidx: {int32, int64} = int32"},
    {"Tanh", "x: T", "y: T", "T: {bfloat16, half, float, double, complex64, complex128}"},
    {"TanhGrad", "y: T, dy: T", "z: T",
     "T: {bfloat16, half, float, double, complex64, complex128}"},
    {"UnsortedSegmentSum", "data: T, segment_ids: Tindices, num_segments: Tnumsegments",
     "output: T",
     "T: numbers; Tindices: {int16, int32, int64}; Tnumsegments: {int32, int64} = int32"},
};

}  // namespace

Status RegisterMathOps(OpRegistry& registry) { return RegisterOps(registry, kOps); }

}  // namespace millrace
