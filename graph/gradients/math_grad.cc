// SPDX-License-Identifier: Apache-2.0
// Derivatives of elementwise ops and matrix products.
#include <cmath>
#include <numbers>

#include "graph/gradients/grad_families.h"
#include "graph/gradients/grad_util.h"

namespace millrace {
namespace {

Status AddGrad(GradContext& c) {
  SetBroadcastGradients(c, 0, c.dy(), 1, c.dy());
  return OkStatus();
}

Status SubGrad(GradContext& c) {
  SetBroadcastGradients(c, 0, c.dy(), 1, ops::Neg(c.scope(), c.dy()));
  return OkStatus();
}

Status MulGrad(GradContext& c) {
  const Scope& s = c.scope();
  SetBroadcastGradients(c, 0, ops::Mul(s, c.dy(), Conjugate(s, c.x(1))), 1,
                        ops::Mul(s, Conjugate(s, c.x(0)), c.dy()));
  return OkStatus();
}

Status DivGrad(GradContext& c) {
  const Scope& s = c.scope();
  const Output x = Conjugate(s, c.x(0)), y = Conjugate(s, c.x(1));
  const Output dx = ops::RealDiv(s, c.dy(), y);
  // d(x/y)/dy = -(x/y)/y
  const Output dy = ops::Mul(s, c.dy(), ops::RealDiv(s, ops::RealDiv(s, ops::Neg(s, x), y), y));
  SetBroadcastGradients(c, 0, dx, 1, dy);
  return OkStatus();
}

// As DivGrad, 0 where the divisor is 0.
Status DivNoNanGrad(GradContext& c) {
  const Scope& s = c.scope();
  const Output x = Conjugate(s, c.x(0)), y = Conjugate(s, c.x(1));
  const Output dx = ops::DivNoNan(s, c.dy(), y);
  const Output dy = ops::Mul(s, c.dy(), ops::DivNoNan(s, ops::DivNoNan(s, ops::Neg(s, x), y), y));
  SetBroadcastGradients(c, 0, dx, 1, dy);
  return OkStatus();
}

// x mod y = x - y * floor(x / y), whose last factor is constant almost everywhere.
Status FloorModGrad(GradContext& c) {
  const Scope& s = c.scope();
  const Output quotient = ops::FloorDiv(s, c.x(0), c.x(1));
  SetBroadcastGradients(c, 0, c.dy(), 1, ops::Mul(s, c.dy(), ops::Neg(s, quotient)));
  return OkStatus();
}

Status PowGrad(GradContext& c) {
  const Scope& s = c.scope();
  const Output x = Conjugate(s, c.x(0)), y = Conjugate(s, c.x(1));
  const Output dx =
      ops::Mul(s, c.dy(), ops::Mul(s, y, ops::Pow(s, x, ops::Sub(s, y, ConstantLike(s, y, 1)))));
  // log(x) only where it exists: elsewhere the derivative is taken as 0.
  const Output zero = ops::ZerosLike(s, x);
  const Output positive = IsComplexOutput(x) ? ops::NotEqual(s, x, zero) : ops::Greater(s, x, zero);
  const Output log_x = ops::SelectV2(
      s, positive, ops::Log(s, ops::SelectV2(s, positive, x, ops::OnesLike(s, x))), zero);
  SetBroadcastGradients(c, 0, dx, 1, ops::Mul(s, c.dy(), ops::Mul(s, Conjugate(s, c.y()), log_x)));
  return OkStatus();
}

Status ExtremumGrad(GradContext& c, const Output& x_wins) {
  const Scope& s = c.scope();
  const Output zeros = ops::ZerosLike(s, c.dy());
  SetBroadcastGradients(c, 0, ops::SelectV2(s, x_wins, c.dy(), zeros), 1,
                        ops::SelectV2(s, x_wins, zeros, c.dy()));
  return OkStatus();
}
Status MaximumGrad(GradContext& c) {
  return ExtremumGrad(c, ops::GreaterEqual(c.scope(), c.x(0), c.x(1)));
}
Status MinimumGrad(GradContext& c) {
  return ExtremumGrad(c, ops::LessEqual(c.scope(), c.x(0), c.x(1)));
}

Status SquaredDifferenceGrad(GradContext& c) {
  const Scope& s = c.scope();
  const Output d =
      ops::Mul(s, c.dy(), ops::Mul(s, ConstantLike(s, c.x(0), 2), ops::Sub(s, c.x(0), c.x(1))));
  SetBroadcastGradients(c, 0, d, 1, ops::Neg(s, d));
  return OkStatus();
}

Status NegGrad(GradContext& c) {
  c.set_dx(0, ops::Neg(c.scope(), c.dy()));
  return OkStatus();
}
Status ExpGrad(GradContext& c) {
  const Scope& s = c.scope();
  c.set_dx(0, ops::Mul(s, c.dy(), Conjugate(s, c.y())));
  return OkStatus();
}
Status LogGrad(GradContext& c) {
  const Scope& s = c.scope();
  c.set_dx(0, ops::Mul(s, c.dy(), ops::Reciprocal(s, Conjugate(s, c.x(0)))));
  return OkStatus();
}
Status Log1pGrad(GradContext& c) {
  const Scope& s = c.scope();
  c.set_dx(0,
           ops::RealDiv(s, c.dy(), ops::Add(s, Conjugate(s, c.x(0)), ConstantLike(s, c.x(0), 1))));
  return OkStatus();
}
Status Expm1Grad(GradContext& c) {
  const Scope& s = c.scope();
  c.set_dx(0, ops::Mul(s, c.dy(), ops::Exp(s, Conjugate(s, c.x(0)))));
  return OkStatus();
}
Status SquareGrad(GradContext& c) {
  const Scope& s = c.scope();
  c.set_dx(0, ops::Mul(s, c.dy(), ops::Mul(s, Conjugate(s, c.x(0)), ConstantLike(s, c.x(0), 2))));
  return OkStatus();
}
Status SqrtGrad(GradContext& c) {
  c.set_dx(0, ops::SqrtGrad(c.scope(), c.y(), c.dy()));
  return OkStatus();
}
Status RsqrtGrad(GradContext& c) {
  c.set_dx(0, ops::RsqrtGrad(c.scope(), c.y(), c.dy()));
  return OkStatus();
}
Status ReciprocalGrad(GradContext& c) {
  c.set_dx(0, ops::ReciprocalGrad(c.scope(), c.y(), c.dy()));
  return OkStatus();
}
Status SigmoidGrad(GradContext& c) {
  c.set_dx(0, ops::SigmoidGrad(c.scope(), Conjugate(c.scope(), c.y()), c.dy()));
  return OkStatus();
}
Status TanhGrad(GradContext& c) {
  c.set_dx(0, ops::TanhGrad(c.scope(), Conjugate(c.scope(), c.y()), c.dy()));
  return OkStatus();
}
Status AbsGrad(GradContext& c) {
  c.set_dx(0, ops::Mul(c.scope(), c.dy(), ops::Sign(c.scope(), c.x(0))));
  return OkStatus();
}
Status SinGrad(GradContext& c) {
  c.set_dx(0, ops::Mul(c.scope(), c.dy(), ops::Cos(c.scope(), Conjugate(c.scope(), c.x(0)))));
  return OkStatus();
}
Status CosGrad(GradContext& c) {
  const Scope& s = c.scope();
  c.set_dx(0, ops::Neg(s, ops::Mul(s, c.dy(), ops::Sin(s, Conjugate(s, c.x(0))))));
  return OkStatus();
}

// Zero almost everywhere; TensorFlow hands on zeros, not nothing.
Status SignGrad(GradContext& c) {
  c.set_dx(0, ops::ZerosLike(c.scope(), c.x(0)));
  return OkStatus();
}
Status ErfGrad(GradContext& c) {
  const Scope& s = c.scope();
  const Output slope = ops::Mul(s, ConstantLike(s, c.x(0), 2 / std::sqrt(std::numbers::pi)),
                                ops::Exp(s, ops::Neg(s, ops::Square(s, c.x(0)))));
  c.set_dx(0, ops::Mul(s, c.dy(), slope));
  return OkStatus();
}

Status CastGrad(GradContext& c) {
  const DataType from = BaseType(c.x(0).dtype());
  if (IsFloating(from)) c.set_dx(0, ops::Cast(c.scope(), c.dy(), from));
  return OkStatus();
}

Status AddNGrad(GradContext& c) {
  for (int i = 0; i < c.op().num_inputs(); ++i) c.set_dx(i, c.dy());
  return OkStatus();
}

Status SelectGrad(GradContext& c) {
  const Scope& s = c.scope();
  const Output zeros = ops::ZerosLike(s, c.dy());
  c.set_dx(1, ops::Select(s, c.x(0), c.dy(), zeros));
  c.set_dx(2, ops::Select(s, c.x(0), zeros, c.dy()));
  return OkStatus();
}

Status SelectV2Grad(GradContext& c) {
  const Scope& s = c.scope();
  const Output zeros = ops::ZerosLike(s, c.dy());
  // Not SetBroadcastGradients(): the condition may have more axes than both.
  SetReducedGradient(c, 1, ops::SelectV2(s, c.x(0), c.dy(), zeros));
  SetReducedGradient(c, 2, ops::SelectV2(s, c.x(0), zeros, c.dy()));
  return OkStatus();
}

// What is clipped depends on the bound that it was clipped to. A NaN stays within both.
Status ClipByValueGrad(GradContext& c) {
  const Scope& s = c.scope();
  const Output zeros = ops::ZerosLike(s, c.dy());
  const Output low = ops::Less(s, c.x(0), c.x(1)), high = ops::Greater(s, c.x(0), c.x(2));
  c.set_dx(0, ops::SelectV2(s, ops::LogicalOr(s, low, high), zeros, c.dy()));
  SetReducedGradient(c, 1, ops::SelectV2(s, low, c.dy(), zeros));
  SetReducedGradient(c, 2, ops::SelectV2(s, high, c.dy(), zeros));
  return OkStatus();
}

// Between complex numbers and their parts. What arrives at a part that is not there is zero.
Status RealGrad(GradContext& c) {
  const Scope& s = c.scope();
  c.set_dx(0, ops::Complex(s, c.dy(), ops::ZerosLike(s, c.dy()), {.Tout = c.x(0).dtype()}));
  return OkStatus();
}
Status ImagGrad(GradContext& c) {
  const Scope& s = c.scope();
  c.set_dx(0, ops::Complex(s, ops::ZerosLike(s, c.dy()), c.dy(), {.Tout = c.x(0).dtype()}));
  return OkStatus();
}
Status ComplexGrad(GradContext& c) {
  const Scope& s = c.scope();
  const DataType part = BaseType(c.x(0).dtype());
  SetBroadcastGradients(c, 0, ops::Real(s, c.dy(), {.Tout = part}), 1,
                        ops::Imag(s, c.dy(), {.Tout = part}));
  return OkStatus();
}
Status ConjGrad(GradContext& c) {
  c.set_dx(0, ops::Conj(c.scope(), c.dy()));
  return OkStatus();
}

// |z| grows along z, its angle across.
Status ComplexAbsGrad(GradContext& c) {
  const Scope& s = c.scope();
  const Output dy = ops::Complex(s, c.dy(), ops::ZerosLike(s, c.dy()), {.Tout = c.x(0).dtype()});
  c.set_dx(0, ops::Mul(s, dy, ops::Sign(s, c.x(0))));
  return OkStatus();
}
Status AngleGrad(GradContext& c) {
  const Scope& s = c.scope();
  const DataType part = BaseType(c.dy().dtype());
  const Output dy = ops::Complex(s, c.dy(), ops::ZerosLike(s, c.dy()), {.Tout = c.x(0).dtype()});
  const Output turned =
      ops::Complex(s, ops::Imag(s, c.x(0), {.Tout = part}), ops::Real(s, c.x(0), {.Tout = part}),
                   {.Tout = c.x(0).dtype()});
  c.set_dx(0, ops::RealDiv(s, ops::Neg(s, dy), turned));
  return OkStatus();
}

bool BoolAttr(const Operation& op, std::string_view name) {
  const AttrValue value = op.attr(name);
  const bool* flag = value.get_if<bool>();
  return flag != nullptr && *flag;
}

Output Product(const Scope& s, const Output& a, const Output& b, bool ta, bool tb) {
  return ops::MatMul(s, a, b, {.transpose_a = ta, .transpose_b = tb});
}

Status MatMulGrad(GradContext& c) {
  const Scope& s = c.scope();
  const bool ta = BoolAttr(c.op(), "transpose_a"), tb = BoolAttr(c.op(), "transpose_b");
  const Output a = Conjugate(s, c.x(0)), b = Conjugate(s, c.x(1)), dy = c.dy();
  if (!ta && !tb) {
    c.set_dx(0, Product(s, dy, b, false, true));
    c.set_dx(1, Product(s, a, dy, true, false));
  } else if (!ta && tb) {
    c.set_dx(0, Product(s, dy, b, false, false));
    c.set_dx(1, Product(s, dy, a, true, false));
  } else if (ta && !tb) {
    c.set_dx(0, Product(s, b, dy, false, true));
    c.set_dx(1, Product(s, a, dy, false, false));
  } else {
    c.set_dx(0, Product(s, b, dy, true, true));
    c.set_dx(1, Product(s, dy, a, true, true));
  }
  return OkStatus();
}

}  // namespace

void RegisterMathGradients(GradientRegistry& r) {
  for (const char* op : {"Add", "AddV2"}) r.Register(op, AddGrad);
  for (const char* op : {"Div", "RealDiv"}) r.Register(op, DivGrad);
  r.Register("Sub", SubGrad);
  r.Register("Mul", MulGrad);
  r.Register("DivNoNan", DivNoNanGrad);
  r.Register("FloorMod", FloorModGrad);
  r.Register("Pow", PowGrad);
  r.Register("Maximum", MaximumGrad);
  r.Register("Minimum", MinimumGrad);
  r.Register("SquaredDifference", SquaredDifferenceGrad);
  r.Register("Neg", NegGrad);
  r.Register("Exp", ExpGrad);
  r.Register("Log", LogGrad);
  r.Register("Log1p", Log1pGrad);
  r.Register("Expm1", Expm1Grad);
  r.Register("Square", SquareGrad);
  r.Register("Sqrt", SqrtGrad);
  r.Register("Rsqrt", RsqrtGrad);
  for (const char* op : {"Reciprocal", "Inv"}) r.Register(op, ReciprocalGrad);
  r.Register("Sigmoid", SigmoidGrad);
  r.Register("Tanh", TanhGrad);
  r.Register("Abs", AbsGrad);
  r.Register("Sin", SinGrad);
  r.Register("Cos", CosGrad);
  r.Register("Sign", SignGrad);
  r.Register("Erf", ErfGrad);
  r.Register("Cast", CastGrad);
  r.Register("AddN", AddNGrad);
  r.Register("AccumulateNV2", AddNGrad);
  r.Register("Select", SelectGrad);
  r.Register("SelectV2", SelectV2Grad);
  r.Register("ClipByValue", ClipByValueGrad);
  r.Register("Real", RealGrad);
  r.Register("Imag", ImagGrad);
  r.Register("Complex", ComplexGrad);
  r.Register("Conj", ConjGrad);
  r.Register("ComplexAbs", ComplexAbsGrad);
  r.Register("Angle", AngleGrad);
  r.Register("MatMul", MatMulGrad);
  for (const char* op : {"Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual",
                         "LogicalNot", "LogicalAnd", "LogicalOr", "FloorDiv", "Floor", "Ceil",
                         "Round", "Rint", "IsNan", "IsInf", "IsFinite"}) {
    r.RegisterNotDifferentiable(op);
  }
}

}  // namespace millrace
