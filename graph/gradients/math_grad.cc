// Derivatives of elementwise ops and matrix products.
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
  SetBroadcastGradients(c, 0, ops::Mul(c.scope(), c.dy(), c.x(1)), 1,
                        ops::Mul(c.scope(), c.x(0), c.dy()));
  return OkStatus();
}

Status DivGrad(GradContext& c) {
  const Scope& s = c.scope();
  const Output dx = ops::RealDiv(s, c.dy(), c.x(1));
  // d(x/y)/dy = -(x/y)/y
  const Output dy =
      ops::Mul(s, c.dy(), ops::RealDiv(s, ops::RealDiv(s, ops::Neg(s, c.x(0)), c.x(1)), c.x(1)));
  SetBroadcastGradients(c, 0, dx, 1, dy);
  return OkStatus();
}

Status PowGrad(GradContext& c) {
  const Scope& s = c.scope();
  const Output x = c.x(0), y = c.x(1);
  const Output dx =
      ops::Mul(s, c.dy(), ops::Mul(s, y, ops::Pow(s, x, ops::Sub(s, y, ConstantLike(s, y, 1)))));
  // log(x) only where it exists: elsewhere the derivative is taken as 0.
  const Output zero = ops::ZerosLike(s, x);
  const Output positive = ops::Greater(s, x, zero);
  const Output log_x = ops::SelectV2(
      s, positive, ops::Log(s, ops::SelectV2(s, positive, x, ops::OnesLike(s, x))), zero);
  SetBroadcastGradients(c, 0, dx, 1, ops::Mul(s, c.dy(), ops::Mul(s, c.y(), log_x)));
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
  c.set_dx(0, ops::Mul(c.scope(), c.dy(), c.y()));
  return OkStatus();
}
Status LogGrad(GradContext& c) {
  c.set_dx(0, ops::Mul(c.scope(), c.dy(), ops::Reciprocal(c.scope(), c.x(0))));
  return OkStatus();
}
Status Log1pGrad(GradContext& c) {
  const Scope& s = c.scope();
  c.set_dx(0, ops::RealDiv(s, c.dy(), ops::Add(s, c.x(0), ConstantLike(s, c.x(0), 1))));
  return OkStatus();
}
Status Expm1Grad(GradContext& c) {
  c.set_dx(0, ops::Mul(c.scope(), c.dy(), ops::Exp(c.scope(), c.x(0))));
  return OkStatus();
}
Status SquareGrad(GradContext& c) {
  const Scope& s = c.scope();
  c.set_dx(0, ops::Mul(s, c.dy(), ops::Mul(s, c.x(0), ConstantLike(s, c.x(0), 2))));
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
  c.set_dx(0, ops::SigmoidGrad(c.scope(), c.y(), c.dy()));
  return OkStatus();
}
Status TanhGrad(GradContext& c) {
  c.set_dx(0, ops::TanhGrad(c.scope(), c.y(), c.dy()));
  return OkStatus();
}
Status AbsGrad(GradContext& c) {
  c.set_dx(0, ops::Mul(c.scope(), c.dy(), ops::Sign(c.scope(), c.x(0))));
  return OkStatus();
}
Status SinGrad(GradContext& c) {
  c.set_dx(0, ops::Mul(c.scope(), c.dy(), ops::Cos(c.scope(), c.x(0))));
  return OkStatus();
}
Status CosGrad(GradContext& c) {
  const Scope& s = c.scope();
  c.set_dx(0, ops::Neg(s, ops::Mul(s, c.dy(), ops::Sin(s, c.x(0)))));
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
  SetBroadcastGradients(c, 1, ops::SelectV2(s, c.x(0), c.dy(), zeros), 2,
                        ops::SelectV2(s, c.x(0), zeros, c.dy()));
  return OkStatus();
}

// The clipped part is constant.
Status ClipByValueGrad(GradContext& c) {
  const Scope& s = c.scope();
  const Output inside =
      ops::LogicalAnd(s, ops::GreaterEqual(s, c.x(0), c.x(1)), ops::LessEqual(s, c.x(0), c.x(2)));
  c.set_dx(0, ops::SelectV2(s, inside, c.dy(), ops::ZerosLike(s, c.dy())));
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
  const Output a = c.x(0), b = c.x(1), dy = c.dy();
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
  r.Register("Reciprocal", ReciprocalGrad);
  r.Register("Sigmoid", SigmoidGrad);
  r.Register("Tanh", TanhGrad);
  r.Register("Abs", AbsGrad);
  r.Register("Sin", SinGrad);
  r.Register("Cos", CosGrad);
  r.Register("Cast", CastGrad);
  r.Register("AddN", AddNGrad);
  r.Register("Select", SelectGrad);
  r.Register("SelectV2", SelectV2Grad);
  r.Register("ClipByValue", ClipByValueGrad);
  r.Register("MatMul", MatMulGrad);
  for (const char* op : {"Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual",
                         "LogicalNot", "LogicalAnd", "LogicalOr", "Sign", "Floor", "Ceil", "Round",
                         "IsNan", "IsInf", "IsFinite"}) {
    r.RegisterNotDifferentiable(op);
  }
}

}  // namespace millrace
