// SPDX-License-Identifier: Apache-2.0
// Derivatives of reductions.
#include "graph/dataflow_graph.h"
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

// Each element's factor is the product of all others that it was multiplied with: those before
// it times those behind it. Dividing the product by the element would fail at zeros.
Status ProdGrad(GradContext& c) {
  const Scope& s = c.scope();
  const Output x = c.x(0), shape = ops::Shape(s, x), rank = ops::Size(s, shape);
  const Output axes = ops::Reshape(
      s, ops::FloorMod(s, ops::Add(s, ops::Cast(s, c.x(1), kInt32), rank), rank), {-1});
  const Output all = ops::Range(s, 0, rank, 1);
  const Output is_reduced =
      ops::DynamicStitch(s, {all, axes}, {ops::ZerosLike(s, all), ops::OnesLike(s, axes)});
  const std::vector<Output> split = ops::DynamicPartition(s, all, is_reduced, 2);
  if (split.size() != 2) return OkStatus();  // recorded in the graph's status
  const Output &kept = split[0], &reduced = split[1];
  const auto size = [&](const Output& dims) {
    return ops::Reshape(s, ops::Prod(s, ops::Gather(s, shape, dims), {0}), {1});
  };
  // The reduced axes in front, as one.
  const Output order = ops::ConcatV2(s, {reduced, kept}, 0);
  const Output turned = ops::Transpose(s, x, order);
  const Output columns = ops::Reshape(s, turned, ops::ConcatV2(s, {size(reduced), size(kept)}, 0));
  const Output before = ops::Cumprod(s, columns, 0, {.exclusive = true});
  const Output behind = ops::Cumprod(s, columns, 0, {.exclusive = true, .reverse = true});
  const Output others = ops::Reshape(s, ops::Mul(s, before, behind), ops::Shape(s, turned));
  c.set_dx(0,
           ops::Mul(s, SpreadAny(c), ops::Transpose(s, others, ops::InvertPermutation(s, order))));
  return OkStatus();
}

bool Flag(const GradContext& c, std::string_view name) {
  return c.op().node()->attrs().GetOr<bool>(name, false);
}

Status CumsumGrad(GradContext& c) {
  c.set_dx(0, ops::Cumsum(c.scope(), c.dy(), c.x(1),
                          {.exclusive = Flag(c, "exclusive"), .reverse = !Flag(c, "reverse")}));
  return OkStatus();
}

// Like TensorFlow's, 0 for elements that are 0.
Status CumprodGrad(GradContext& c) {
  const Scope& s = c.scope();
  const bool exclusive = Flag(c, "exclusive"), reverse = Flag(c, "reverse");
  const Output sums = ops::Cumsum(s, ops::Mul(s, c.y(), c.dy()), c.x(1),
                                  {.exclusive = exclusive, .reverse = !reverse});
  c.set_dx(0, ops::DivNoNan(s, sums, c.x(0)));
  return OkStatus();
}

// Of a length: along the vector.
Status EuclideanNormGrad(GradContext& c) {
  const Scope& s = c.scope();
  const Output kept = ShapesOf(c).kept;
  const Output y = ops::Reshape(s, c.y(), kept), dy = ops::Reshape(s, c.dy(), kept);
  c.set_dx(0, ops::Mul(s, c.x(0), ops::RealDiv(s, dy, y)));
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
  r.Register("Prod", ProdGrad);
  r.Register("Cumsum", CumsumGrad);
  r.Register("Cumprod", CumprodGrad);
  r.Register("EuclideanNorm", EuclideanNormGrad);
  r.Register("L2Loss", L2LossGrad);
  for (const char* op : {"ArgMax", "ArgMin", "All", "Any"}) r.RegisterNotDifferentiable(op);
}

}  // namespace millrace
