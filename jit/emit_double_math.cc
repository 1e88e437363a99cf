// SPDX-License-Identifier: Apache-2.0
#include "jit/emit_double_math.h"

#include <cstdint>
#include <initializer_list>
#include <limits>

#include <llvm/IR/Intrinsics.h>

namespace millrace::jit {
namespace {

using llvm::Constant;
using llvm::ConstantFP;
using llvm::Type;
using llvm::Value;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Polynomials are interpolations at Chebyshev nodes; the highest coefficient comes first.
//
// (e^r - 1 - r) / r^2 for |r| <= ln(2) / 2, to 2^-58.
constexpr double kExp[] = {0x1.1f7340dbc337ep-29, 0x1.af4e554377204p-26, 0x1.27e4db46cddd1p-22,
                           0x1.71de01fdbf9cap-19, 0x1.a01a01a6e1e2ap-16, 0x1.a01a01abf85abp-13,
                           0x1.6c16c16c162c3p-10, 0x1.11111111100bep-7,  0x1.5555555555556p-5,
                           0x1.5555555555557p-3,  0x1.0000000000000p-1};
// (2 artanh(s) - 2 s) / s^3 of z = s^2, for s = f / (2 + f) and 1 + f within sqrt(1/2) and
// sqrt(2), to 2^-54.
constexpr double kLog[] = {0x1.0c0aff044a970p-3, 0x1.0fbde0f4ad17bp-3, 0x1.3b1c3c1c81c8fp-3,
                           0x1.745cf8e4bba1bp-3, 0x1.c71c7201a55d7p-3, 0x1.2492492476a1ap-2,
                           0x1.9999999999a39p-2, 0x1.5555555555555p-1};
// (tanh(a) - a) / a^3 of z = a^2, for a <= 0.625, to 2^-55.
constexpr double kTanh[] = {0x1.b2d7957098a26p-18,  -0x1.05a387c7968e3p-15, 0x1.843ac15df85cap-14,
                            -0x1.f240d1b1ff5e4p-13, 0x1.3526b4b08ec06p-11,  -0x1.7d9f69ddebdffp-10,
                            0x1.d6d39a8df5abcp-9,   -0x1.226e34722d470p-7,  0x1.664f487e0093ap-6,
                            -0x1.ba1ba1ba0ef4dp-5,  0x1.11111111110a7p-3,   -0x1.5555555555555p-2};

class DoubleMath {
 public:
  explicit DoubleMath(llvm::IRBuilder<>* builder) : b_(*builder) {}

  // e^x = 2^n e^r with |r| <= ln(2) / 2.
  Value* Exp(Value* x) {
    Value* t = Choose(More(x, F(710)), F(710), x);  // a NaN stays one
    t = Choose(Less(t, F(-746)), F(-746), t);
    // Adding and taking away 1.5 * 2^52 rounds to the nearest integer.
    Value* const n = Sub(Fma(t, F(0x1.71547652b82fep+0), F(0x1.8p+52)), F(0x1.8p+52));
    // Exact: both are multiples of 2^-54, and what is left of them is less than 1/2.
    Value* const most = Fma(n, F(-0x1.62e42fefa39efp-1), t);
    constexpr double kRest = -0x1.abc9e3b39803fp-56;
    Value* const r = Fma(n, F(kRest), most);
    Value* const lost = Fma(n, F(kRest), Sub(most, r));  // by rounding r
    // 1 + r, and what is lost by rounding that.
    Value* const one = Add(F(1), r);
    Value* const rest = Add(Sub(r, Sub(one, F(1))), lost);
    Value* const y = Add(one, Fma(Polynomial(kExp, r), Mul(r, r), rest));
    // In two steps: 2^n itself may be infinite or denormal where the product is not.
    Value* const whole = b_.CreateFPToSI(Choose(IsNan(n), F(0), n), b_.getInt32Ty());
    Value* const half = b_.CreateAShr(whole, 1);
    return Mul(Mul(y, PowerOfTwo(half)), PowerOfTwo(b_.CreateSub(whole, half)));
  }

  // ln x = k ln 2 + ln(1 + f), and ln(1 + f) = f - f^2/2 + s (f^2/2 + the series of artanh).
  Value* Log(Value* x) {
    Value* const denormal = Less(x, F(0x1p-1022));
    Value* const bits = Bits(Choose(denormal, Mul(x, F(0x1p+54)), x));
    // 1 + f in [sqrt(1/2), sqrt(2))
    Value* const e = b_.CreateAShr(b_.CreateSub(bits, I(0x3fe6a09e667f3bcd)), 52);
    Value* const f = Sub(DoubleOf(b_.CreateSub(bits, b_.CreateShl(e, 52))), F(1));
    Value* const k = Sub(b_.CreateSIToFP(b_.CreateTrunc(e, b_.getInt32Ty()), b_.getDoubleTy()),
                         Choose(denormal, F(54), F(0)));
    Value* const s = Div(f, Add(F(2), f));
    Value* const z = Mul(s, s);
    Value* const series = Mul(z, Polynomial(kLog, z));
    Value* const half = Mul(F(0.5), f);
    Value* const square = Mul(half, f);
    Value* const square_rest = Fma(half, f, b_.CreateFNeg(square));
    // The first part of ln 2 has so few bits that its multiples are exact.
    Value* const multiple = Mul(k, F(0x1.62e42fefp-1));
    Value* const high = Add(multiple, f);
    Value* const rest = Sub(Sub(f, Sub(high, multiple)), square_rest);
    Value* const low = Fma(s, Add(square, series), Fma(k, F(0x1.473de6af278edp-34), rest));
    Value* y = Sub(high, Sub(square, low));
    y = Choose(b_.CreateFCmpOEQ(x, F(kInfinity)), x, y);
    y = Choose(b_.CreateFCmpOEQ(x, F(0)), F(-kInfinity), y);
    return Choose(b_.CreateOr(Less(x, F(0)), IsNan(x)), F(std::numeric_limits<double>::quiet_NaN()),
                  y);
  }

  Value* Tanh(Value* x) {
    Value* a = Magnitude(x);
    a = Choose(More(a, F(22)), F(22), a);  // 1 from 19.1 on
    Value* const large = Sub(F(1), Div(F(2), Add(Exp(Mul(F(2), a)), F(1))));
    Value* const z = Mul(a, a);
    Value* const small = Fma(Mul(Polynomial(kTanh, z), z), a, a);
    Value* const y = Choose(Less(a, F(0.625)), small, large);
    // With the sign of x, also that of a zero or a NaN.
    return DoubleOf(b_.CreateOr(Bits(y), b_.CreateAnd(Bits(x), I(uint64_t{1} << 63))));
  }

  Value* Sigmoid(Value* x) {
    Value* const e = Exp(b_.CreateFNeg(Magnitude(x)));
    return Div(Choose(Less(x, F(0)), e, F(1)), Add(F(1), e));
  }

 private:
  Constant* F(double value) { return ConstantFP::get(b_.getDoubleTy(), value); }
  Constant* I(uint64_t value) { return b_.getInt64(value); }
  Value* Add(Value* a, Value* b) { return b_.CreateFAdd(a, b); }
  Value* Sub(Value* a, Value* b) { return b_.CreateFSub(a, b); }
  Value* Mul(Value* a, Value* b) { return b_.CreateFMul(a, b); }
  Value* Div(Value* a, Value* b) { return b_.CreateFDiv(a, b); }
  // a b + c, rounded once.
  Value* Fma(Value* a, Value* b, Value* c) {
    return b_.CreateIntrinsic(llvm::Intrinsic::fma, {b_.getDoubleTy()}, {a, b, c});
  }
  Value* Less(Value* a, Value* b) { return b_.CreateFCmpOLT(a, b); }
  Value* More(Value* a, Value* b) { return b_.CreateFCmpOGT(a, b); }
  Value* IsNan(Value* x) { return b_.CreateFCmpUNO(x, x); }
  Value* Choose(Value* c, Value* a, Value* b) { return b_.CreateSelect(c, a, b); }
  Value* Magnitude(Value* x) { return b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x); }
  Value* Bits(Value* x) { return b_.CreateBitCast(x, b_.getInt64Ty()); }
  Value* DoubleOf(Value* bits) { return b_.CreateBitCast(bits, b_.getDoubleTy()); }

  // 2^n for an i32 in [-1022, 1023].
  Value* PowerOfTwo(Value* n) {
    Value* const biased = b_.CreateZExt(b_.CreateAdd(n, b_.getInt32(1023)), b_.getInt64Ty());
    return DoubleOf(b_.CreateShl(biased, 52));
  }

  template <std::size_t kSize>
  Value* Polynomial(const double (&coefficients)[kSize], Value* x) {
    Value* p = F(coefficients[0]);
    for (std::size_t i = 1; i < kSize; ++i) p = Fma(p, x, F(coefficients[i]));
    return p;
  }

  llvm::IRBuilder<>& b_;
};

}  // namespace

Value* EmitDoubleExp(llvm::IRBuilder<>& builder, Value* x) { return DoubleMath(&builder).Exp(x); }
Value* EmitDoubleLog(llvm::IRBuilder<>& builder, Value* x) { return DoubleMath(&builder).Log(x); }
Value* EmitDoubleTanh(llvm::IRBuilder<>& builder, Value* x) { return DoubleMath(&builder).Tanh(x); }
Value* EmitDoubleSigmoid(llvm::IRBuilder<>& builder, Value* x) {
  return DoubleMath(&builder).Sigmoid(x);
}

}  // namespace millrace::jit
