// SPDX-License-Identifier: Apache-2.0
// What elementwise loops are asked for: see loops.h.
#ifndef KERNELS_GPU_LOOPS_ELEMENTWISE_PARAMS_H_
#define KERNELS_GPU_LOOPS_ELEMENTWISE_PARAMS_H_

#include <cstdint>

#include "kernels/gpu/loops/index_map.h"
#include "kernels/gpu/loops/numbers.h"

namespace millrace::gpu {

// clang-format off
#define MR_GPU_UNARY_OPS(X) \
  X(Abs) X(Neg) X(Sign) X(Square) X(Exp) X(Expm1) X(Log) X(Log1p) X(Sqrt) X(Rsqrt) \
  X(Reciprocal) X(Tanh) X(Sigmoid) X(Sin) X(Cos) X(Tan) X(Asin) X(Acos) X(Atan) X(Sinh) \
  X(Cosh) X(Asinh) X(Acosh) X(Atanh) X(Erf) X(Erfc) X(Floor) X(Ceil) X(Round) X(IsNan) \
  X(IsInf) X(IsFinite) X(LogicalNot) X(Relu) X(Relu6) X(Elu) X(Selu) X(LeakyRelu) \
  X(Softplus) X(Softsign)

#define MR_GPU_BINARY_OPS(X) \
  X(Add) X(Sub) X(Mul) X(Div) X(DivNoNan) X(MulNoNan) X(FloorDiv) X(FloorMod) \
  X(TruncateMod) X(Maximum) X(Minimum) X(Pow) X(SquaredDifference) X(Atan2) X(Xdivy) \
  X(Xlogy) X(Xlog1py) X(Less) X(LessEqual) X(Greater) X(GreaterEqual) X(Equal) X(NotEqual) \
  X(LogicalAnd) X(LogicalOr) X(SigmoidGrad) X(TanhGrad) X(SqrtGrad) X(RsqrtGrad) \
  X(ReciprocalGrad) X(ReluGrad) X(Relu6Grad) X(EluGrad) X(SeluGrad) X(LeakyReluGrad) \
  X(SoftplusGrad) X(SoftsignGrad)
// clang-format on

#define MR_GPU_ENUMERATOR(Name) k##Name,
enum class UnaryOp { MR_GPU_UNARY_OPS(MR_GPU_ENUMERATOR) };
enum class BinaryOp { MR_GPU_BINARY_OPS(MR_GPU_ENUMERATOR) };
#undef MR_GPU_ENUMERATOR

// out[i] = op(in[i]); `out` may be `in`. alpha is that of LeakyRelu.
struct UnaryParams {
  UnaryOp op{};
  DataType type = DataType::kInvalid;
  const void* in = nullptr;
  void* out = nullptr;
  int64_t n = 0;
  float alpha = 0;
};

// out[i] = op(a[...], b[...]). `out` may be an operand that is not repeated.
struct BinaryParams {
  BinaryOp op{};
  DataType type = DataType::kInvalid;
  const void *a = nullptr, *b = nullptr;
  void* out = nullptr;
  int64_t n = 0;
  float alpha = 0;
  // kFlat: operands are as the output, or one element where a_step or b_step is 0.
  bool flat = true;
  int a_step = 1, b_step = 1;
  IndexMap<2> map;  // where not flat
};

struct CastParams {
  DataType from = DataType::kInvalid, to = DataType::kInvalid;
  bool truncate = false;  // floats to bfloat16
  const void* in = nullptr;
  void* out = nullptr;
  int64_t n = 0;
};

// out[i] = in[0][i] + in[1][i] + ...
struct SumOfParams {
  static constexpr int kMost = 8;
  DataType type = DataType::kInvalid;
  int count = 0;
  const void* in[kMost] = {};
  void* out = nullptr;
  int64_t n = 0;
};

// Limits are one element where their step is 0.
struct ClipParams {
  DataType type = DataType::kInvalid;
  const void *in = nullptr, *low = nullptr, *high = nullptr;
  int low_step = 0, high_step = 0;
  void* out = nullptr;
  int64_t n = 0;
};

// What there is among elements: 1 where there is one.
struct CheckReport {
  int32_t nan = 0, below = 0, above = 0;  // NaN, -Inf, +Inf
};
struct CheckParams {
  DataType type = DataType::kInvalid;
  const void* in = nullptr;
  int64_t n = 0;
  CheckReport* found = nullptr;  // need not be zeros before
};

// out[i] = i < n - 1 ? start + step * i : stop, in the order of LinSpace.
struct LinSpaceParams {
  DataType type = DataType::kInvalid;
  double start = 0, stop = 0;
  void* out = nullptr;
  int64_t n = 0;
};

}  // namespace millrace::gpu

#endif  // KERNELS_GPU_LOOPS_ELEMENTWISE_PARAMS_H_
