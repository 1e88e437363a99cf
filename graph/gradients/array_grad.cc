// SPDX-License-Identifier: Apache-2.0
// Derivatives of ops that move elements about.
#include "base/status_macros.h"
#include "graph/dataflow_graph.h"
#include "graph/gradients/grad_util.h"

namespace millrace {
namespace {

Status PassOn(GradContext& c) {
  c.set_dx(0, c.dy());
  return OkStatus();
}

Status ReshapeBack(GradContext& c) {
  const auto shape = c.x(0).shape().AsShape();
  if (shape) {
    const std::vector<int64_t> dims(shape->dims().begin(), shape->dims().end());
    c.set_dx(0, ops::Reshape(c.scope(), c.dy(),
                             Tensor::FromValues<int64_t>(dims, Shape({shape->rank()}))));
  } else {
    c.set_dx(0, ops::Reshape(c.scope(), c.dy(), ops::Shape(c.scope(), c.x(0))));
  }
  return OkStatus();
}

Status TransposeGrad(GradContext& c) {
  c.set_dx(0, ops::Transpose(c.scope(), c.dy(), ops::InvertPermutation(c.scope(), c.x(1))));
  return OkStatus();
}

Status PackGrad(GradContext& c) {
  const int n = c.op().num_inputs();
  const int64_t axis = c.op().node()->attrs().GetOr<int64_t>("axis", 0);
  const auto parts = ops::Unpack(c.scope(), c.dy(), n, {.axis = axis});
  if (static_cast<int>(parts.size()) != n) return OkStatus();  // recorded in the graph's status
  for (int i = 0; i < n; ++i) c.set_dx(i, parts[i]);
  return OkStatus();
}

Status UnpackGrad(GradContext& c) {
  const Scope& s = c.scope();
  const int64_t axis = c.op().node()->attrs().GetOr<int64_t>("axis", 0);
  std::vector<Input> parts;
  for (int i = 0; i < c.op().num_outputs(); ++i) {
    parts.push_back(c.dy(i).valid() ? c.dy(i) : ops::ZerosLike(s, c.y(i)));
  }
  c.set_dx(0, ops::Pack(s, parts, {.axis = axis}));
  return OkStatus();
}

Status ConcatGrad(GradContext& c) {
  const Scope& s = c.scope();
  const int n = c.op().num_inputs() - 1;
  // Of Concat the axis comes first.
  const int first = c.op().node()->type() == "Concat" ? 1 : 0;
  const Output axis = c.x(first == 1 ? 0 : n);
  std::vector<Input> shapes;
  for (int i = 0; i < n; ++i) shapes.push_back(ops::Shape(s, c.x(first + i)));
  const Output rank = ops::Rank(s, c.x(first));
  const Output positive = ops::FloorMod(s, ops::Add(s, ops::Cast(s, axis, kInt32), rank), rank);
  const std::vector<Output> offsets = ops::ConcatOffset(s, positive, shapes);
  if (static_cast<int>(offsets.size()) != n) return OkStatus();
  for (int i = 0; i < n; ++i) {
    c.set_dx(first + i, ops::Slice(s, c.dy(), offsets[i], shapes[i]));
  }
  return OkStatus();
}

// The pieces put together again along `axis`.
Output Joined(GradContext& c, const Output& axis) {
  const Scope& s = c.scope();
  std::vector<Input> parts;
  for (int i = 0; i < c.op().num_outputs(); ++i) {
    parts.push_back(c.dy(i).valid() ? c.dy(i) : ops::ZerosLike(s, c.y(i)));
  }
  return ops::ConcatV2(s, parts, axis);
}
Status SplitGrad(GradContext& c) {
  c.set_dx(1, Joined(c, c.x(0)));
  return OkStatus();
}
Status SplitVGrad(GradContext& c) {
  c.set_dx(0, Joined(c, c.x(2)));
  return OkStatus();
}

// Puts the piece back into zeros of the input's shape.
Status SliceGrad(GradContext& c) {
  const Scope& s = c.scope();
  const Output shape = ops::Shape(s, c.x(0));
  const Output begin = ops::Cast(s, c.x(1), kInt32);
  const Output after = ops::Sub(s, ops::Sub(s, shape, ops::Shape(s, c.y())), begin);
  const Output paddings = ops::Pack(s, {begin, after}, {.axis = 1});
  c.set_dx(0, ops::Pad(s, c.dy(), paddings));
  return OkStatus();
}

Status StridedSliceGrad(GradContext& c) {
  const Scope& s = c.scope();
  const AttrMap& attrs = c.op().node()->attrs();
  const Output begin = c.x(1);
  const Output shape = ops::Shape(s, c.x(0), {.out_type = BaseType(begin.dtype())});
  c.set_dx(
      0, ops::StridedSliceGrad(s, shape, begin, c.x(2), c.x(3), c.dy(),
                               {.begin_mask = attrs.GetOr<int64_t>("begin_mask", 0),
                                .end_mask = attrs.GetOr<int64_t>("end_mask", 0),
                                .ellipsis_mask = attrs.GetOr<int64_t>("ellipsis_mask", 0),
                                .new_axis_mask = attrs.GetOr<int64_t>("new_axis_mask", 0),
                                .shrink_axis_mask = attrs.GetOr<int64_t>("shrink_axis_mask", 0)}));
  return OkStatus();
}

// Of (input, begin, end, strides, value), whose slice is written over; a value is repeated to fill
// it.
Status TensorStridedSliceUpdateGrad(GradContext& c) {
  const Scope& s = c.scope();
  const AttrMap& attrs = c.op().node()->attrs();
  const auto mask = [&](const char* name) { return attrs.GetOr<int64_t>(name, 0); };
  if (c.needs_dx(0)) {
    c.set_dx(0, ops::TensorStridedSliceUpdate(s, c.dy(), c.x(1), c.x(2), c.x(3),
                                              ConstantLike(s, c.dy(), 0),
                                              {.begin_mask = mask("begin_mask"),
                                               .end_mask = mask("end_mask"),
                                               .ellipsis_mask = mask("ellipsis_mask"),
                                               .new_axis_mask = mask("new_axis_mask"),
                                               .shrink_axis_mask = mask("shrink_axis_mask")}));
  }
  if (!c.needs_dx(4)) return OkStatus();
  const Output slice = ops::StridedSlice(s, c.dy(), c.x(1), c.x(2), c.x(3),
                                         {.begin_mask = mask("begin_mask"),
                                          .end_mask = mask("end_mask"),
                                          .ellipsis_mask = mask("ellipsis_mask"),
                                          .new_axis_mask = mask("new_axis_mask"),
                                          .shrink_axis_mask = mask("shrink_axis_mask")});
  // A value may have more axes than the slice.
  const Output full = ops::Add(s, slice, ops::ZerosLike(s, c.x(4)));
  const Output shape = ops::Shape(s, c.x(4));
  const auto axes = ops::BroadcastGradientArgs(s, shape, ops::Shape(s, full));
  c.set_dx(4, ops::Reshape(s, ops::Sum(s, full, axes.r0), shape));
  return OkStatus();
}

Status PadGrad(GradContext& c) {
  const Scope& s = c.scope();
  const Output paddings = ops::Cast(s, c.x(1), kInt32);  // [rank, 2]
  const Output rank = ops::Rank(s, c.x(0));
  const Output column = ops::Slice(s, paddings, {0, 0}, ops::Pack(s, {rank, Input(1)}));
  const Output begin = ops::Reshape(s, column, {-1});
  c.set_dx(0, ops::Slice(s, c.dy(), begin, ops::Shape(s, c.x(0))));
  return OkStatus();
}

// As PadGrad; what came back to the rim belongs to the value that it was filled with.
Status PadV2Grad(GradContext& c) {
  const Scope& s = c.scope();
  MR_RETURN_IF_ERROR(PadGrad(c));
  if (!c.needs_dx(2)) return OkStatus();
  const auto total = [&](const Output& x) {
    return ops::Sum(s, x, ops::Range(s, 0, ops::Rank(s, x), 1));
  };
  c.set_dx(2, ops::Sub(s, total(c.dy()), total(c.dxs()[0])));
  return OkStatus();
}

Status MirrorPadGrad(GradContext& c) {
  MR_ASSIGN_OR_RETURN(const std::string mode, c.op().node()->attrs().Get<std::string>("mode"));
  c.set_dx(0, ops::MirrorPadGrad(c.scope(), c.dy(), c.x(1), mode));
  return OkStatus();
}
Status MirrorPadGradGrad(GradContext& c) {
  MR_ASSIGN_OR_RETURN(const std::string mode, c.op().node()->attrs().Get<std::string>("mode"));
  c.set_dx(0, ops::MirrorPad(c.scope(), c.dy(), c.x(1), mode));
  return OkStatus();
}

Status StridedSliceGradGrad(GradContext& c) {
  const AttrMap& attrs = c.op().node()->attrs();
  c.set_dx(4, ops::StridedSlice(c.scope(), c.dy(), c.x(1), c.x(2), c.x(3),
                                {.begin_mask = attrs.GetOr<int64_t>("begin_mask", 0),
                                 .end_mask = attrs.GetOr<int64_t>("end_mask", 0),
                                 .ellipsis_mask = attrs.GetOr<int64_t>("ellipsis_mask", 0),
                                 .new_axis_mask = attrs.GetOr<int64_t>("new_axis_mask", 0),
                                 .shrink_axis_mask = attrs.GetOr<int64_t>("shrink_axis_mask", 0)}));
  return OkStatus();
}

Status ReverseSequenceGrad(GradContext& c) {
  const AttrMap& attrs = c.op().node()->attrs();
  MR_ASSIGN_OR_RETURN(const int64_t seq_dim, attrs.Get<int64_t>("seq_dim"));
  c.set_dx(0, ops::ReverseSequence(c.scope(), c.dy(), c.x(1), seq_dim,
                                   {.batch_dim = attrs.GetOr<int64_t>("batch_dim", 0)}));
  return OkStatus();
}

Status RollGrad(GradContext& c) {
  c.set_dx(0, ops::Roll(c.scope(), c.dy(), ops::Neg(c.scope(), c.x(1)), c.x(2)));
  return OkStatus();
}

Status IdentityNGrad(GradContext& c) {
  for (int i = 0; i < c.op().num_inputs(); ++i) c.set_dx(i, c.dy(i));
  return OkStatus();
}

Status SpaceToBatchGrad(GradContext& c) {
  c.set_dx(0, ops::BatchToSpaceND(c.scope(), c.dy(), c.x(1), c.x(2)));
  return OkStatus();
}
Status BatchToSpaceGrad(GradContext& c) {
  c.set_dx(0, ops::SpaceToBatchND(c.scope(), c.dy(), c.x(1), c.x(2)));
  return OkStatus();
}

// Adds up the copies: [m0, d0, m1, d1, ...] summed over the multiples.
Status TileGrad(GradContext& c) {
  const Scope& s = c.scope();
  const Output shape = ops::Shape(s, c.x(0));
  const Output multiples = ops::Cast(s, c.x(1), kInt32);
  const Output split = ops::Reshape(s, ops::Pack(s, {multiples, shape}, {.axis = 1}), {-1});
  const Output axes = ops::Range(s, 0, ops::Size(s, split), 2);
  c.set_dx(0, ops::Reshape(s, ops::Sum(s, ops::Reshape(s, c.dy(), split), axes), shape));
  return OkStatus();
}

Status BroadcastToGrad(GradContext& c) {
  const Scope& s = c.scope();
  const Output sx = ops::Shape(s, c.x(0)), sy = ops::Shape(s, c.y());
  const auto axes = ops::BroadcastGradientArgs(s, sx, sy);
  c.set_dx(0, ops::Reshape(s, ops::Sum(s, c.dy(), axes.r0), sx));
  return OkStatus();
}

Status FillGrad(GradContext& c) {
  const Scope& s = c.scope();
  const Output all = ops::Range(s, 0, ops::Rank(s, c.dy()), 1);
  c.set_dx(1, ops::Sum(s, c.dy(), all));
  return OkStatus();
}

Status ReverseGrad(GradContext& c) {
  c.set_dx(0, ops::ReverseV2(c.scope(), c.dy(), c.x(1)));
  return OkStatus();
}

Status SpaceToDepthGrad(GradContext& c) {
  const AttrMap& attrs = c.op().node()->attrs();
  c.set_dx(0, ops::DepthToSpace(c.scope(), c.dy(), attrs.GetOr<int64_t>("block_size", 0),
                                {.data_format = attrs.GetOr<std::string>("data_format", "NHWC")}));
  return OkStatus();
}
Status DepthToSpaceGrad(GradContext& c) {
  const AttrMap& attrs = c.op().node()->attrs();
  c.set_dx(0, ops::SpaceToDepth(c.scope(), c.dy(), attrs.GetOr<int64_t>("block_size", 0),
                                {.data_format = attrs.GetOr<std::string>("data_format", "NHWC")}));
  return OkStatus();
}

}  // namespace

void RegisterArrayGradients(GradientRegistry& r) {
  for (const char* op : {"Identity", "PlaceholderWithDefault", "EnsureShape", "CheckNumerics",
                         "CheckNumericsV2", "Print", "Snapshot"}) {
    r.Register(op, PassOn);
  }
  for (const char* op : {"Reshape", "Squeeze", "ExpandDims"}) r.Register(op, ReshapeBack);
  r.Register("Transpose", TransposeGrad);
  r.Register("Pack", PackGrad);
  r.Register("Unpack", UnpackGrad);
  r.Register("Concat", ConcatGrad);
  r.Register("ConcatV2", ConcatGrad);
  r.Register("Split", SplitGrad);
  r.Register("SplitV", SplitVGrad);
  r.Register("ReverseV2", ReverseGrad);
  r.Register("SpaceToDepth", SpaceToDepthGrad);
  r.Register("DepthToSpace", DepthToSpaceGrad);
  r.Register("Slice", SliceGrad);
  r.Register("StridedSlice", StridedSliceGrad);
  r.Register("StridedSliceGrad", StridedSliceGradGrad);
  r.Register("TensorStridedSliceUpdate", TensorStridedSliceUpdateGrad);
  r.Register("Pad", PadGrad);
  r.Register("PadV2", PadV2Grad);
  r.Register("MirrorPad", MirrorPadGrad);
  r.Register("MirrorPadGrad", MirrorPadGradGrad);
  r.Register("ReverseSequence", ReverseSequenceGrad);
  r.Register("Roll", RollGrad);
  r.Register("IdentityN", IdentityNGrad);
  r.Register("SpaceToBatchND", SpaceToBatchGrad);
  r.Register("BatchToSpaceND", BatchToSpaceGrad);
  r.Register("Tile", TileGrad);
  r.Register("BroadcastTo", BroadcastToGrad);
  r.Register("Fill", FillGrad);
  for (const char* op : {"Const",
                         "StopGradient",
                         "Shape",
                         "ShapeN",
                         "Size",
                         "Rank",
                         "ZerosLike",
                         "OnesLike",
                         "OneHot",
                         "Range",
                         "LinSpace",
                         "Where",
                         "RandomUniform",
                         "RandomStandardNormal",
                         "TruncatedNormal",
                         "StatelessRandomUniform",
                         "StatelessRandomNormal",
                         "StatelessTruncatedNormal",
                         "StatelessRandomUniformV2",
                         "StatelessRandomNormalV2",
                         "StatelessTruncatedNormalV2"}) {
    r.RegisterNotDifferentiable(op);
  }
}

}  // namespace millrace
