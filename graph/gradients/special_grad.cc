// SPDX-License-Identifier: Apache-2.0
// Derivatives of trigonometric, hyperbolic and special functions.
#include <cmath>
#include <numbers>

#include "graph/gradients/grad_util.h"

namespace millrace {
namespace {

// dy * slope, or dy / slope.
Status Times(GradContext& c, const Output& slope) {
  c.set_dx(0, ops::Mul(c.scope(), c.dy(), slope));
  return OkStatus();
}
Status Over(GradContext& c, const Output& slope) {
  c.set_dx(0, ops::RealDiv(c.scope(), c.dy(), slope));
  return OkStatus();
}

Output One(GradContext& c) { return ConstantLike(c.scope(), c.x(0), 1); }
Output SquaredX(GradContext& c) { return ops::Square(c.scope(), c.x(0)); }

Status TanGrad(GradContext& c) {
  return Over(c, ops::Square(c.scope(), ops::Cos(c.scope(), c.x(0))));
}
Status AsinGrad(GradContext& c) {
  return Over(c, ops::Sqrt(c.scope(), ops::Sub(c.scope(), One(c), SquaredX(c))));
}
Status AcosGrad(GradContext& c) {
  const Scope& s = c.scope();
  return Over(c, ops::Neg(s, ops::Sqrt(s, ops::Sub(s, One(c), SquaredX(c)))));
}
Status AtanGrad(GradContext& c) { return Over(c, ops::Add(c.scope(), One(c), SquaredX(c))); }
Status SinhGrad(GradContext& c) { return Times(c, ops::Cosh(c.scope(), c.x(0))); }
Status CoshGrad(GradContext& c) { return Times(c, ops::Sinh(c.scope(), c.x(0))); }
// Of the inverse functions by way of the result: d asinh(x)/dx = 1/cosh(asinh(x)).
Status AsinhGrad(GradContext& c) { return Over(c, ops::Cosh(c.scope(), c.y())); }
Status AcoshGrad(GradContext& c) { return Over(c, ops::Sinh(c.scope(), c.y())); }
Status AtanhGrad(GradContext& c) { return Over(c, ops::Sub(c.scope(), One(c), SquaredX(c))); }

Status ErfcGrad(GradContext& c) {
  const Scope& s = c.scope();
  return Times(c, ops::Mul(s, ConstantLike(s, c.x(0), -2 / std::sqrt(std::numbers::pi)),
                           ops::Exp(s, ops::Neg(s, SquaredX(c)))));
}
// Of the inverse of erf: sqrt(pi) / 2 * exp(y^2).
Status ErfinvGrad(GradContext& c) {
  const Scope& s = c.scope();
  return Times(c, ops::Mul(s, ConstantLike(s, c.x(0), std::sqrt(std::numbers::pi) / 2),
                           ops::Exp(s, ops::Square(s, c.y()))));
}
Status LgammaGrad(GradContext& c) { return Times(c, ops::Digamma(c.scope(), c.x(0))); }

// Of (order, x); for the order there is none.
Status PolygammaGrad(GradContext& c) {
  const Scope& s = c.scope();
  const Output next = ops::Add(s, c.x(0), ConstantLike(s, c.x(0), 1));
  SetBroadcastGradients(c, 0, Output(), 1, ops::Mul(s, c.dy(), ops::Polygamma(s, next, c.x(1))));
  return OkStatus();
}
Status DigammaGrad(GradContext& c) { return Times(c, ops::Polygamma(c.scope(), One(c), c.x(0))); }
// Of (x, q): d zeta / dq = -x zeta(x + 1, q); for x there is none.
Status ZetaGrad(GradContext& c) {
  const Scope& s = c.scope();
  const Output x = c.x(0);
  const Output next = ops::Zeta(s, ops::Add(s, x, ConstantLike(s, x, 1)), c.x(1));
  SetBroadcastGradients(c, 0, Output(), 1, ops::Mul(s, c.dy(), ops::Mul(s, ops::Neg(s, x), next)));
  return OkStatus();
}

// Of atan2(y, x), whose first operand is y.
Status Atan2Grad(GradContext& c) {
  const Scope& s = c.scope();
  const Output y = c.x(0), x = c.x(1);
  const Output scaled = ops::RealDiv(s, c.dy(), ops::Add(s, ops::Square(s, x), ops::Square(s, y)));
  SetBroadcastGradients(c, 0, ops::Mul(s, x, scaled), 1, ops::Mul(s, ops::Neg(s, y), scaled));
  return OkStatus();
}

Status MulNoNanGrad(GradContext& c) {
  const Scope& s = c.scope();
  SetBroadcastGradients(c, 0, ops::MulNoNan(s, c.dy(), c.x(1)), 1,
                        ops::MulNoNan(s, c.x(0), c.dy()));
  return OkStatus();
}

// 1 where x is not 0, else 0: these functions are 0 there whatever y is.
Output NotZero(GradContext& c) {
  const Scope& s = c.scope();
  const Output zero = ops::ZerosLike(s, c.x(0));
  return ops::Cast(s, ops::NotEqual(s, c.x(0), zero), BaseType(c.x(0).dtype()));
}

Status XdivyGrad(GradContext& c) {
  const Scope& s = c.scope();
  const Output x = c.x(0), y = c.x(1);
  const Output by_y = ops::Xdivy(s, ops::Neg(s, x), ops::Square(s, y));
  SetBroadcastGradients(c, 0, ops::Mul(s, ops::Xdivy(s, NotZero(c), y), c.dy()), 1,
                        ops::Mul(s, by_y, c.dy()));
  return OkStatus();
}

Status XlogyGrad(GradContext& c) {
  const Scope& s = c.scope();
  const Output x = c.x(0), y = c.x(1);
  SetBroadcastGradients(c, 0, ops::Mul(s, ops::Xlogy(s, NotZero(c), y), c.dy()), 1,
                        ops::Mul(s, ops::Xdivy(s, x, y), c.dy()));
  return OkStatus();
}

Status Xlog1pyGrad(GradContext& c) {
  const Scope& s = c.scope();
  const Output x = c.x(0), y = c.x(1);
  SetBroadcastGradients(
      c, 0, ops::Mul(s, ops::Xlog1py(s, NotZero(c), y), c.dy()), 1,
      ops::Mul(s, ops::Xdivy(s, x, ops::Add(s, y, ConstantLike(s, y, 1))), c.dy()));
  return OkStatus();
}

}  // namespace

void RegisterSpecialGradients(GradientRegistry& r) {
  r.Register("Tan", TanGrad);
  r.Register("Asin", AsinGrad);
  r.Register("Acos", AcosGrad);
  r.Register("Atan", AtanGrad);
  r.Register("Sinh", SinhGrad);
  r.Register("Cosh", CoshGrad);
  r.Register("Asinh", AsinhGrad);
  r.Register("Acosh", AcoshGrad);
  r.Register("Atanh", AtanhGrad);
  r.Register("Erfc", ErfcGrad);
  r.Register("Erfinv", ErfinvGrad);
  r.Register("Lgamma", LgammaGrad);
  r.Register("Digamma", DigammaGrad);
  r.Register("Polygamma", PolygammaGrad);
  r.Register("Zeta", ZetaGrad);
  r.Register("Atan2", Atan2Grad);
  r.Register("MulNoNan", MulNoNanGrad);
  r.Register("Xdivy", XdivyGrad);
  r.Register("Xlogy", XlogyGrad);
  r.Register("Xlog1py", Xlog1pyGrad);
}

}  // namespace millrace
