// SPDX-License-Identifier: Apache-2.0
// Derivatives of the ops that first derivatives consist of: those of activations and roots. Second
// derivatives and penalties on gradients go through them.
#include "graph/dataflow_graph.h"
#include "graph/gradients/grad_families.h"
#include "graph/gradients/grad_util.h"

namespace millrace {
namespace {

// --- Of functions whose derivative is written by the result: f'(y, dy) -------------------------
// d/dy of dy * y * (1 - y).
Status SigmoidGradGrad(GradContext& c) {
  const Scope& s = c.scope();
  const Output y = Conjugate(s, c.x(0)), g = ops::Mul(s, c.dy(), Conjugate(s, c.x(1)));
  const Output two = ConstantLike(s, y, 2);
  c.set_dx(0, ops::Sub(s, g, ops::Mul(s, ops::Mul(s, two, g), y)));
  c.set_dx(1, ops::SigmoidGrad(s, y, c.dy()));
  return OkStatus();
}

// d/dy of dy * (1 - y^2).
Status TanhGradGrad(GradContext& c) {
  const Scope& s = c.scope();
  const Output y = Conjugate(s, c.x(0)), g = ops::Mul(s, c.dy(), Conjugate(s, c.x(1)));
  c.set_dx(0, ops::Mul(s, ops::Mul(s, ConstantLike(s, y, -2), g), y));
  c.set_dx(1, ops::TanhGrad(s, y, c.dy()));
  return OkStatus();
}

// Of the next three the kernels use the conjugate of a complex y: by y they change with the
// conjugate of what comes back.
// d/dy of dy / (2 y).
Status SqrtGradGrad(GradContext& c) {
  const Scope& s = c.scope();
  const Output by_y = ops::RealDiv(s, c.dy(), c.x(0));
  c.set_dx(0, ops::Neg(s, ops::Mul(s, Conjugate(s, by_y), c.y())));
  c.set_dx(1, ops::SqrtGrad(s, Conjugate(s, c.x(0)), c.dy()));
  return OkStatus();
}

// d/dy of -dy * y^3 / 2.
Status RsqrtGradGrad(GradContext& c) {
  const Scope& s = c.scope();
  const Output y = Conjugate(s, c.x(0)), g = ops::Mul(s, Conjugate(s, c.dy()), c.x(1));
  c.set_dx(0, ops::Mul(s, ops::Mul(s, ConstantLike(s, y, -1.5), g), ops::Square(s, y)));
  c.set_dx(1, ops::RsqrtGrad(s, y, c.dy()));
  return OkStatus();
}

// d/dy of -dy * y^2.
Status ReciprocalGradGrad(GradContext& c) {
  const Scope& s = c.scope();
  const Output y = Conjugate(s, c.x(0)), g = ops::Mul(s, Conjugate(s, c.dy()), c.x(1));
  c.set_dx(0, ops::Mul(s, ops::Mul(s, ConstantLike(s, y, -2), g), y));
  c.set_dx(1, ops::ReciprocalGrad(s, y, c.dy()));
  return OkStatus();
}

// --- Of piecewise linear functions: nothing comes of the features -------------------------------
void SetNoneOfFeatures(GradContext& c) {
  if (c.needs_dx(1)) c.set_dx(1, ops::ZerosLike(c.scope(), c.x(1)));
}

Status ReluGradGrad(GradContext& c) {
  c.set_dx(0, ops::ReluGrad(c.scope(), c.dy(), c.x(1)));
  SetNoneOfFeatures(c);
  return OkStatus();
}
Status Relu6GradGrad(GradContext& c) {
  c.set_dx(0, ops::Relu6Grad(c.scope(), c.dy(), c.x(1)));
  SetNoneOfFeatures(c);
  return OkStatus();
}
Status LeakyReluGradGrad(GradContext& c) {
  c.set_dx(0, ops::LeakyReluGrad(c.scope(), c.dy(), c.x(1),
                                 {.alpha = c.op().node()->attrs().GetOr<float>("alpha", 0.2f)}));
  SetNoneOfFeatures(c);
  return OkStatus();
}

// --- Of the others: f'(gradients, outputs) or f'(gradients, features) ---------------------------
// gradients * (outputs + constant) where the outputs are negative.
void SetOfNegativeOutputs(GradContext& c) {
  if (!c.needs_dx(1)) return;
  const Scope& s = c.scope();
  const Output zeros = ops::ZerosLike(s, c.x(1));
  c.set_dx(1, ops::SelectV2(s, ops::Less(s, c.x(1), zeros), ops::Mul(s, c.dy(), c.x(0)), zeros));
}
Status EluGradGrad(GradContext& c) {
  c.set_dx(0, ops::EluGrad(c.scope(), c.dy(), c.x(1)));
  SetOfNegativeOutputs(c);
  return OkStatus();
}
Status SeluGradGrad(GradContext& c) {
  c.set_dx(0, ops::SeluGrad(c.scope(), c.dy(), c.x(1)));
  SetOfNegativeOutputs(c);
  return OkStatus();
}

// d/dx of dy * sigmoid(x).
Status SoftplusGradGrad(GradContext& c) {
  const Scope& s = c.scope();
  c.set_dx(0, ops::SoftplusGrad(s, c.dy(), c.x(1)));
  if (!c.needs_dx(1)) return OkStatus();
  c.set_dx(1, ops::SigmoidGrad(s, ops::Sigmoid(s, c.x(1)), ops::Mul(s, c.dy(), c.x(0))));
  return OkStatus();
}

// d/dx of dy / (1 + |x|)^2.
Status SoftsignGradGrad(GradContext& c) {
  const Scope& s = c.scope();
  const Output by_dy = ops::SoftsignGrad(s, c.dy(), c.x(1));
  c.set_dx(0, by_dy);
  if (!c.needs_dx(1)) return OkStatus();
  const Output x = c.x(1), grown = ops::Add(s, ConstantLike(s, x, 1), ops::Abs(s, x));
  const Output slope = ops::RealDiv(s, ops::Mul(s, ConstantLike(s, x, -2), ops::Sign(s, x)), grown);
  c.set_dx(1, ops::Mul(s, ops::Mul(s, by_dy, c.x(0)), slope));
  return OkStatus();
}

}  // namespace

void RegisterActivationGradients(GradientRegistry& r) {
  r.Register("SigmoidGrad", SigmoidGradGrad);
  r.Register("TanhGrad", TanhGradGrad);
  r.Register("SqrtGrad", SqrtGradGrad);
  r.Register("RsqrtGrad", RsqrtGradGrad);
  r.Register("ReciprocalGrad", ReciprocalGradGrad);
  r.Register("ReluGrad", ReluGradGrad);
  r.Register("Relu6Grad", Relu6GradGrad);
  r.Register("LeakyReluGrad", LeakyReluGradGrad);
  r.Register("EluGrad", EluGradGrad);
  r.Register("SeluGrad", SeluGradGrad);
  r.Register("SoftplusGrad", SoftplusGradGrad);
  r.Register("SoftsignGrad", SoftsignGradGrad);
}

}  // namespace millrace
