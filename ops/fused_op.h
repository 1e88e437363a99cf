// SPDX-License-Identifier: Apache-2.0
// The elementwise ops that may be put together into one loop, by the names that graphs have for
// them. Without other headers of ours: what compiles the loops is a library of its own.
#ifndef OPS_FUSED_OP_H_
#define OPS_FUSED_OP_H_

#include <cstdint>

namespace millrace {

// How an op's operands meet.
enum class FusedForm : int8_t {
  kUnary,    // T -> T
  kBinary,   // T, T -> T, broadcast
  kSame,     // T, T -> T, of one shape
  kCompare,  // T, T -> bool, broadcast
  kNot,      // bool -> bool
  kLogic,    // bool, bool -> bool, broadcast
  kBias,     // T, T -> T, the second a vector along the last axis
  kChoice,   // bool, T, T -> T, all of one shape
  kBroadcastChoice,
  kSum,   // any number of T -> T, of one shape
  kCast,  // S -> D
};

// clang-format off
#define MR_FUSED_OPS(X)                                                                       \
  X(Abs, kUnary) X(Neg, kUnary) X(Sign, kUnary) X(Square, kUnary) X(Sqrt, kUnary)             \
  X(Rsqrt, kUnary) X(Reciprocal, kUnary) X(Exp, kUnary) X(Log, kUnary) X(Tanh, kUnary)        \
  X(Sigmoid, kUnary) X(Relu, kUnary) X(Relu6, kUnary)                                         \
  X(Add, kBinary) X(AddV2, kBinary) X(Sub, kBinary) X(Mul, kBinary) X(Div, kBinary)           \
  X(RealDiv, kBinary) X(DivNoNan, kBinary) X(Maximum, kBinary) X(Minimum, kBinary)            \
  X(SquaredDifference, kBinary)                                                               \
  X(SigmoidGrad, kSame) X(TanhGrad, kSame) X(SqrtGrad, kSame) X(RsqrtGrad, kSame)             \
  X(ReciprocalGrad, kSame) X(ReluGrad, kSame) X(Relu6Grad, kSame)                             \
  X(Less, kCompare) X(LessEqual, kCompare) X(Greater, kCompare) X(GreaterEqual, kCompare)     \
  X(Equal, kCompare) X(NotEqual, kCompare)                                                    \
  X(LogicalNot, kNot) X(LogicalAnd, kLogic) X(LogicalOr, kLogic)                              \
  X(BiasAdd, kBias) X(BiasAddV1, kBias) X(Select, kChoice) X(SelectV2, kBroadcastChoice)      \
  X(AddN, kSum) X(Cast, kCast)
// clang-format on

enum class FusedOp : int32_t {
#define MR_FUSED_ENUM(name, form) k##name,
  MR_FUSED_OPS(MR_FUSED_ENUM)
#undef MR_FUSED_ENUM
};

constexpr FusedForm FormOf(FusedOp op) {
  constexpr FusedForm kForms[] = {
#define MR_FUSED_FORM(name, form) FusedForm::form,
      MR_FUSED_OPS(MR_FUSED_FORM)
#undef MR_FUSED_FORM
  };
  return kForms[static_cast<int32_t>(op)];
}

constexpr const char* NameOf(FusedOp op) {
  constexpr const char* kNames[] = {
#define MR_FUSED_NAME(name, form) #name,
      MR_FUSED_OPS(MR_FUSED_NAME)
#undef MR_FUSED_NAME
  };
  return kNames[static_cast<int32_t>(op)];
}

inline constexpr int32_t kNumFusedOps =
#define MR_FUSED_ONE(name, form) +1
    MR_FUSED_OPS(MR_FUSED_ONE);
#undef MR_FUSED_ONE

}  // namespace millrace

#endif  // OPS_FUSED_OP_H_
