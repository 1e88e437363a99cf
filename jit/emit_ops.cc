// SPDX-License-Identifier: Apache-2.0
#include "jit/emit_ops.h"

#include <limits>

#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/Module.h>
#include "jit/emit_double_math.h"
#include "jit/emit_types.h"

namespace millrace::jit {
namespace {

using llvm::Constant;
using llvm::ConstantFP;
using llvm::ConstantInt;
using llvm::Type;
using llvm::Value;

// One instruction of the program for `lanes` elements; 1: plain scalars. Follows the kernels
// (kernels/elementwise_*.cc, activation.cc) and kernels/common/float_math.h operation by operation,
// so that results are the same bits.
class Emitter {
 public:
  Emitter(llvm::IRBuilder<>* builder, int lanes, DoubleFunctions functions)
      : b_(*builder), lanes_(lanes), functions_(functions) {}

  Value* Emit(const MrJitInstruction& in, const std::vector<Value*>& x) {
    double_ = in.type == kMrJitDouble;
    type_ = in.type;
    Value* const result = Compute(in, x);
    return IsExact(in) ? result : RoundTo(b_, in.result, result);
  }

 private:
  // Whether the result is one of the operands, its magnitude or a small integer.
  static bool IsExact(const MrJitInstruction& in) {
    switch (static_cast<FusedOp>(in.op)) {
      case FusedOp::kAbs:
      case FusedOp::kNeg:
      case FusedOp::kSign:
      case FusedOp::kRelu:
      case FusedOp::kRelu6:
      case FusedOp::kMaximum:
      case FusedOp::kMinimum:
      case FusedOp::kReluGrad:
      case FusedOp::kRelu6Grad:
      case FusedOp::kSelect:
      case FusedOp::kSelectV2:
        return true;
      case FusedOp::kCast:
        return in.type == in.result;
      default:
        return !IsSmallFloat(in.result);
    }
  }

  Value* Compute(const MrJitInstruction& in, const std::vector<Value*>& x) {
    switch (FormOf(static_cast<FusedOp>(in.op))) {
      case FusedForm::kUnary:
        return Unary(static_cast<FusedOp>(in.op), x[0]);
      case FusedForm::kNot:
        return b_.CreateNot(x[0]);
      case FusedForm::kLogic:
        return static_cast<FusedOp>(in.op) == FusedOp::kLogicalAnd ? b_.CreateAnd(x[0], x[1])
                                                                   : b_.CreateOr(x[0], x[1]);
      case FusedForm::kChoice:
      case FusedForm::kBroadcastChoice:
        return b_.CreateSelect(x[0], x[1], x[2]);
      case FusedForm::kSum: {
        Value* sum = x[0];
        for (std::size_t k = 1; k < x.size(); ++k) sum = RoundTo(b_, type_, Add(sum, x[k]));
        return sum;
      }
      case FusedForm::kCast:
        return Cast(in, x[0]);
      default:
        return Binary(static_cast<FusedOp>(in.op), x[0], x[1]);
    }
  }

  Type* Wide(Type* type) const {
    return lanes_ == 1 ? type : llvm::FixedVectorType::get(type, lanes_);
  }
  Constant* F(double value) const {
    return ConstantFP::get(Wide(double_ ? b_.getDoubleTy() : b_.getFloatTy()), value);
  }
  // Exactly the float that the kernels' source names.
  Constant* Float(float value) const {
    return ConstantFP::get(Wide(b_.getFloatTy()), static_cast<double>(value));
  }
  Constant* I(uint32_t value) const { return ConstantInt::get(Wide(b_.getInt32Ty()), value); }
  Value* Int(Value* x) { return b_.CreateBitCast(x, Wide(b_.getInt32Ty())); }
  Value* FloatOf(Value* bits) { return b_.CreateBitCast(bits, Wide(b_.getFloatTy())); }

  Value* Add(Value* a, Value* b) { return b_.CreateFAdd(a, b); }
  Value* Sub(Value* a, Value* b) { return b_.CreateFSub(a, b); }
  Value* Mul(Value* a, Value* b) { return b_.CreateFMul(a, b); }
  Value* Div(Value* a, Value* b) { return b_.CreateFDiv(a, b); }
  Value* Less(Value* a, Value* b) { return b_.CreateFCmpOLT(a, b); }
  Value* More(Value* a, Value* b) { return b_.CreateFCmpOGT(a, b); }
  Value* Choose(Value* c, Value* a, Value* b) { return b_.CreateSelect(c, a, b); }
  Value* IsNan(Value* x) { return b_.CreateFCmpUNO(x, x); }
  Value* Sqrt(Value* x) { return b_.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, x); }

  Value* Cast(const MrJitInstruction& in, Value* x) {
    if (in.type == in.result) return x;
    if (in.result == kMrJitBool) return b_.CreateFCmpUNE(x, Constant::getNullValue(x->getType()));
    Type* const to = Wide(ComputeType(b_, in.result));
    if (in.type == kMrJitBool) return b_.CreateUIToFP(x, to);
    return b_.CreateFPCast(x, to);  // doubles go to 16 bits through float, as the kernel's do
  }

  Value* Unary(FusedOp op, Value* x) {
    switch (op) {
      case FusedOp::kAbs:
        return b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
      case FusedOp::kNeg:
        return b_.CreateFNeg(x);
      case FusedOp::kSign:
        return Choose(More(x, F(0)), F(1), Choose(Less(x, F(0)), F(-1), x));
      case FusedOp::kSquare:
        return Mul(x, x);
      case FusedOp::kSqrt:
        return Sqrt(x);
      case FusedOp::kRsqrt:
        return Div(F(1), Sqrt(x));
      case FusedOp::kReciprocal:
        return Div(F(1), x);
      case FusedOp::kExp:
        return double_ ? OfDouble(op, x) : PreciseExp(x, nullptr);
      case FusedOp::kLog:
        return double_ ? OfDouble(op, x) : Log(x);
      case FusedOp::kTanh:
        return double_ ? OfDouble(op, x) : Tanh(x);
      case FusedOp::kSigmoid:
        return double_ ? OfDouble(op, x) : Sigmoid(x);
      case FusedOp::kRelu:
        return Choose(Less(x, F(0)), F(0), x);
      default:  // kRelu6
        return Choose(Less(x, F(0)), F(0), Choose(More(x, F(6)), F(6), x));
    }
  }

  Value* Binary(FusedOp op, Value* x, Value* y) {
    switch (op) {
      case FusedOp::kAdd:
      case FusedOp::kAddV2:
      case FusedOp::kBiasAdd:
      case FusedOp::kBiasAddV1:
        return Add(x, y);
      case FusedOp::kSub:
        return Sub(x, y);
      case FusedOp::kMul:
        return Mul(x, y);
      case FusedOp::kDiv:
      case FusedOp::kRealDiv:
        return Div(x, y);
      case FusedOp::kDivNoNan:
        return Choose(b_.CreateFCmpOEQ(y, F(0)), F(0), Div(x, y));
      case FusedOp::kMaximum:
        return Choose(b_.CreateOr(b_.CreateFCmpOGE(x, y), IsNan(x)), x, y);
      case FusedOp::kMinimum:
        return Choose(b_.CreateOr(b_.CreateFCmpOLE(x, y), IsNan(x)), x, y);
      case FusedOp::kSquaredDifference: {
        Value* const d = RoundTo(b_, type_, Sub(x, y));
        return Mul(d, d);
      }
      case FusedOp::kLess:
        return Less(x, y);
      case FusedOp::kLessEqual:
        return b_.CreateFCmpOLE(x, y);
      case FusedOp::kGreater:
        return More(x, y);
      case FusedOp::kGreaterEqual:
        return b_.CreateFCmpOGE(x, y);
      case FusedOp::kEqual:
        return b_.CreateFCmpOEQ(x, y);
      case FusedOp::kNotEqual:
        return b_.CreateFCmpUNE(x, y);
      default:
        return Gradient(op, x, y);
    }
  }

  // Of an output (or, for Relu, the gradient that arrives) and the other one of the two.
  Value* Gradient(FusedOp op, Value* x, Value* y) {
    switch (op) {
      case FusedOp::kSigmoidGrad:
        return Mul(Mul(y, x), Sub(F(1), x));
      case FusedOp::kTanhGrad:
        return Mul(y, Sub(F(1), Mul(x, x)));
      case FusedOp::kSqrtGrad:
        return ZeroOfZero(y, Div(Mul(y, F(0.5)), x));
      case FusedOp::kRsqrtGrad:
        return ZeroOfZero(y, Mul(Mul(F(-0.5), Mul(y, x)), Mul(x, x)));
      case FusedOp::kReciprocalGrad:
        return ZeroOfZero(y, Mul(b_.CreateFNeg(x), Mul(y, x)));
      case FusedOp::kReluGrad:
        return Mul(x, Choose(More(y, F(0)), F(1), F(0)));
      default:  // kRelu6Grad
        return Mul(x, Choose(b_.CreateAnd(More(y, F(0)), Less(y, F(6))), F(1), F(0)));
    }
  }

  // Where no gradient arrives, none leaves, whatever it is multiplied with.
  Value* ZeroOfZero(Value* dy, Value* value) {
    return Choose(b_.CreateFCmpOEQ(dy, F(0)), F(0), value);
  }

  Value* OfDouble(FusedOp op, Value* x) {
    const bool own = functions_ == DoubleFunctions::kOwn;
    switch (op) {
      case FusedOp::kExp:
        return own ? EmitDoubleExp(b_, x) : Library("exp", x);
      case FusedOp::kLog:
        return own ? EmitDoubleLog(b_, x) : Library("log", x);
      case FusedOp::kTanh:
        return own ? EmitDoubleTanh(b_, x) : Library("tanh", x);
      default:  // kSigmoid
        if (own) return EmitDoubleSigmoid(b_, x);
        return Div(F(1), Add(F(1), Library("exp", b_.CreateFNeg(x))));
    }
  }

  // The C library's function of doubles, as the kernels call it.
  Value* Library(const char* name, Value* x) {
    llvm::Module* const module = b_.GetInsertBlock()->getModule();
    const llvm::FunctionCallee callee =
        module->getOrInsertFunction(name, b_.getDoubleTy(), b_.getDoubleTy());
    if (lanes_ == 1) return b_.CreateCall(callee, x);
    Value* result = llvm::PoisonValue::get(x->getType());
    for (int i = 0; i < lanes_; ++i) {
      result =
          b_.CreateInsertElement(result, b_.CreateCall(callee, b_.CreateExtractElement(x, i)), i);
    }
    return result;
  }

  // float_math.h
  Value* PowerOfTwo(Value* n) { return FloatOf(b_.CreateShl(b_.CreateAdd(n, I(127)), I(23))); }

  Value* PreciseExp(Value* x, Value** lost_by_rounding) {
    Value* t = Choose(More(x, Float(89.0f)), Float(89.0f), x);
    t = Choose(Less(t, Float(-104.0f)), Float(-104.0f), t);
    Value* const n =
        Sub(Add(Mul(t, Float(1.44269504088896341f)), Float(12582912.0f)), Float(12582912.0f));
    Value* const most = Sub(t, Mul(n, Float(0.693359375f)));
    Value* const rest = Mul(n, Float(-2.12194440e-4f));
    Value* const r = Sub(most, rest);
    Value* const lost = Sub(Sub(most, r), rest);
    Value* p = Float(1.9875691500e-4f);
    for (const float c : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f,
                          5.0000001201e-1f}) {
      p = Add(Mul(p, r), Float(c));
    }
    Value* const s = Add(Add(Mul(p, Mul(r, r)), lost), r);
    Value* const y = Add(s, Float(1.0f));
    Value* const whole = b_.CreateFPToSI(Choose(IsNan(n), Float(0.0f), n), Wide(b_.getInt32Ty()));
    Value* const half = b_.CreateAShr(whole, I(1));
    Value* const a = PowerOfTwo(half);
    Value* const b = PowerOfTwo(b_.CreateSub(whole, half));
    if (lost_by_rounding != nullptr) {
      *lost_by_rounding = Mul(Mul(Sub(s, Sub(y, Float(1.0f))), a), b);
    }
    return Mul(Mul(y, a), b);
  }

  Value* Log(Value* x) {
    Value* const denormal = Less(x, Float(1.17549435e-38f));
    Value* const bits = Int(Choose(denormal, Mul(x, Float(8388608.0f)), x));
    Value* const e = b_.CreateAShr(b_.CreateSub(bits, I(0x3f3504f3)), I(23));
    Value* const f = Sub(FloatOf(b_.CreateSub(bits, b_.CreateShl(e, I(23)))), Float(1.0f));
    Value* const exponent =
        Sub(b_.CreateSIToFP(e, Wide(b_.getFloatTy())), Choose(denormal, Float(23.0f), Float(0.0f)));
    Value* const z = Mul(f, f);
    Value* p = Float(7.0376836292e-2f);
    for (const float c :
         {-1.1514610310e-1f, 1.1676998740e-1f, -1.2420140846e-1f, 1.4249322787e-1f,
          -1.6668057665e-1f, 2.0000714765e-1f, -2.4999993993e-1f, 3.3333331174e-1f}) {
      p = Add(Mul(p, f), Float(c));
    }
    Value* y = Mul(Mul(p, f), z);
    y = Add(y, Mul(exponent, Float(-2.12194440e-4f)));
    y = Sub(y, Mul(Float(0.5f), z));
    y = Add(Add(f, y), Mul(exponent, Float(0.693359375f)));
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    y = Choose(b_.CreateFCmpOEQ(x, Float(kInfinity)), x, y);
    y = Choose(b_.CreateFCmpOEQ(x, Float(0.0f)), Float(-kInfinity), y);
    return Choose(b_.CreateOr(Less(x, Float(0.0f)), IsNan(x)),
                  Float(std::numeric_limits<float>::quiet_NaN()), y);
  }

  Value* Tanh(Value* x) {
    Value* a = Choose(Less(x, Float(0.0f)), b_.CreateFNeg(x), x);
    a = Choose(More(a, Float(10.0f)), Float(10.0f), a);
    Value* const exp = PreciseExp(Mul(Float(2.0f), a), nullptr);
    Value* const large = Sub(Float(1.0f), Div(Float(2.0f), Add(exp, Float(1.0f))));
    Value* const z = Mul(a, a);
    Value* p = Float(-5.70498872745e-3f);
    for (const float c :
         {2.06390887954e-2f, -5.37397155531e-2f, 1.33314422036e-1f, -3.33332819422e-1f}) {
      p = Add(Mul(p, z), Float(c));
    }
    Value* const small = Add(Mul(Mul(p, z), a), a);
    Value* const y = Choose(Less(a, Float(0.625f)), small, large);
    return FloatOf(b_.CreateOr(Int(y), b_.CreateAnd(Int(x), I(0x80000000u))));
  }

  Value* Sigmoid(Value* x) {
    Value* const negative = Less(x, Float(0.0f));
    Value* rest = nullptr;
    Value* const e = PreciseExp(Choose(negative, x, b_.CreateFNeg(x)), &rest);
    Value* const d = Add(Float(1.0f), e);
    Value* const d_rest = Sub(e, Sub(d, Float(1.0f)));
    Value* const q = Div(Choose(negative, e, Float(1.0f)), d);
    return Add(q, Div(Sub(Choose(negative, rest, Float(0.0f)), Mul(q, d_rest)), d));
  }

  llvm::IRBuilder<>& b_;
  const int lanes_;
  const DoubleFunctions functions_;
  bool double_ = false;
  int32_t type_ = kMrJitFloat;  // of the operands
};

}  // namespace

Value* EmitInstruction(llvm::IRBuilder<>& builder, int lanes, const MrJitInstruction& in,
                       const std::vector<Value*>& args, DoubleFunctions functions) {
  return Emitter(&builder, lanes, functions).Emit(in, args);
}

}  // namespace millrace::jit
