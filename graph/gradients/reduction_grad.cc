// Derivatives of reductions.
#include "graph/gradients/grad_util.h"

namespace millrace {
namespace {

// The shape of the input with the reduced axes set to 1, as a tensor; and the input's shape.
struct ReductionShapes {
  Output input, kept;
};

ReductionShapes ShapesOf(GradContext& c) {
  const Scope& s = c.scope();
  const Output shape = ops::Shape(s, c.x(0));
  const Output rank = ops::Size(s, shape);
  // Negative axes count from the end.
  const Output axes = ops::FloorMod(s, ops::Add(s, ops::Cast(s, c.x(1), kInt32), rank), rank);
  const Output all = ops::Range(s, 0, rank, 1);
  const Output ones = ops::Fill(s, ops::Shape(s, axes), 1);
  return {shape, ops::DynamicStitch(s, {all, axes}, {shape, ones})};
}

// dy repeated along the reduced axes, so that it has the shape of the input.
Output Spread(GradContext& c, const ReductionShapes& shapes) {
  const Scope& s = c.scope();
  return ops::BroadcastTo(s, ops::Reshape(s, c.dy(), shapes.kept), shapes.input);
}

// All axes of an input of known rank, as far as can be told while building.
bool ReducesAll(GradContext& c) {
  const PartialShape y = c.y().shape();
  return y.has_rank() && y.rank() == 0;
}

Output SpreadAny(GradContext& c) {
  const Scope& s = c.scope();
  if (ReducesAll(c)) {  // a scalar: no need to know which axes
    return ops::Fill(s, ops::Shape(s, c.x(0)), c.dy());
  }
  return Spread(c, ShapesOf(c));
}

Status SumGrad(GradContext& c) {
  c.set_dx(0, SpreadAny(c));
  return OkStatus();
}

Status MeanGrad(GradContext& c) {
  const Scope& s = c.scope();
  const Output spread = SpreadAny(c);
  const DataType dtype = BaseType(c.x(0).dtype());
  const Output size_x = ops::Cast(s, ops::Size(s, c.x(0)), dtype);
  const Output size_y = ops::Cast(s, ops::Size(s, c.y()), dtype);
  const Output one = ConstantLike(s, c.x(0), 1);
  const Output count = ops::RealDiv(s, size_x, ops::Maximum(s, size_y, one));
  c.set_dx(0, ops::RealDiv(s, spread, count));
  return OkStatus();
}

// The gradient goes to the elements that attain the extremum, shared equally among them.
Status ExtremumGrad(GradContext& c) {
  const Scope& s = c.scope();
  const ReductionShapes shapes = ShapesOf(c);
  const DataType dtype = BaseType(c.x(0).dtype());
  const Output y = ops::Reshape(s, c.y(), shapes.kept);
  const Output dy = ops::Reshape(s, c.dy(), shapes.kept);
  const Output winners = ops::Cast(s, ops::Equal(s, y, c.x(0)), dtype);
  const Output count = ops::Reshape(s, ops::Sum(s, winners, c.x(1)), shapes.kept);
  c.set_dx(0, ops::Mul(s, ops::RealDiv(s, winners, count), dy));
  return OkStatus();
}

Status L2LossGrad(GradContext& c) {
  c.set_dx(0, ops::Mul(c.scope(), c.x(0), c.dy()));
  return OkStatus();
}

}  // namespace

void RegisterReductionGradients(GradientRegistry& r) {
  r.Register("Sum", SumGrad);
  r.Register("Mean", MeanGrad);
  r.Register("Max", ExtremumGrad);
  r.Register("Min", ExtremumGrad);
  r.Register("L2Loss", L2LossGrad);
  for (const char* op : {"ArgMax", "ArgMin", "All", "Any"}) r.RegisterNotDifferentiable(op);
}

}  // namespace millrace
