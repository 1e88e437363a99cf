// SPDX-License-Identifier: Apache-2.0
// Derivatives of ops that take, put and add up pieces by index.
#include "frontend/graph_builder.h"
#include "graph/dataflow_graph.h"
#include "graph/gradients/grad_util.h"

namespace millrace {
namespace {

// --- Gathering ------------------------------------------------------------------------------
// Along axis 0: rows that were taken get what came back, rows taken twice get the sum. The
// result is dense; the table's other rows are zero.
Status GatherGrad(GradContext& c) {
  const Scope& s = c.scope();
  const Output shape = ops::Shape(s, c.x(0));
  const Output rows = ops::Reshape(s, ops::Slice(s, shape, {0}, {1}), Tensor(kInt32, Shape({0})));
  const Output indices = ops::Reshape(s, c.x(1), {-1});
  const Output row_shape = ops::Slice(s, shape, {1}, {-1});
  const Output flat = ops::Reshape(s, c.dy(), ops::ConcatV2(s, {Input({-1}), Input(row_shape)}, 0));
  c.set_dx(0, ops::UnsortedSegmentSum(s, flat, indices, rows));
  return OkStatus();
}

// Elements [begin, begin + count) of a vector of sizes, multiplied; as a vector of one.
Output SizeOf(const Scope& s, const Output& shape, const Input& begin, const Input& count) {
  return ops::Reshape(s, ops::Prod(s, ops::Slice(s, shape, begin, count), {0}), {1});
}

bool IsKnownZero(const Output& scalar) {
  const Tensor* value = scalar.op().graph()->shapes.constant(scalar.op().node(), scalar.index());
  if (value == nullptr || value->num_elements() != 1) return false;
  return value->dtype() == kInt32   ? value->scalar<int32_t>() == 0
         : value->dtype() == kInt64 ? value->scalar<int64_t>() == 0
                                    : false;
}

// Of parameters of shape `shape` (int32) whose first `batch_dims` axes the indices have, too: each
// batch is given rows of its own in one long table, whose slices taken twice are added up.
Output BatchedGatherGrad(GradContext& c, const Output& shape, const Output& axis,
                         const Output& batch) {
  const Scope& s = c.scope();
  const Output behind = ops::Add(s, axis, 1);
  const Output batches = SizeOf(s, shape, {0}, batch);
  const Output outer = SizeOf(s, shape, batch, ops::Sub(s, axis, batch));
  const Output count = ops::Slice(s, shape, axis, {1}), inner = SizeOf(s, shape, behind, {-1});
  // As many of each batch as the indices' further axes have.
  const Output taken = SizeOf(s, ops::Shape(s, c.x(1)), batch, {-1});
  const Tensor scalar(kInt32, Shape({0}));
  const Output dy = ops::Transpose(
      s, ops::Reshape(s, c.dy(), ops::ConcatV2(s, {batches, outer, taken, inner}, 0)),
      {0, 2, 1, 3});
  const Output rows = ops::Reshape(s, ops::Mul(s, batches, count), scalar);
  const Output begins = ops::Mul(s, ops::Range(s, 0, ops::Reshape(s, batches, scalar), 1), count);
  const Output indices = ops::Add(
      s, ops::Reshape(s, ops::Cast(s, c.x(1), kInt32), ops::ConcatV2(s, {batches, taken}, 0)),
      ops::ExpandDims(s, begins, 1));
  const Output flat =
      ops::Reshape(s, dy, ops::ConcatV2(s, {ops::Mul(s, batches, taken), outer, inner}, 0));
  const Output sums = ops::UnsortedSegmentSum(s, flat, ops::Reshape(s, indices, {-1}), rows);
  const Output apart = ops::Reshape(s, sums, ops::ConcatV2(s, {batches, count, outer, inner}, 0));
  return ops::Reshape(s, ops::Transpose(s, apart, {0, 2, 1, 3}), shape);
}

// The attribute batch_dims, as a vector of one; it may count from the end of the indices' axes.
Output BatchDims(GradContext& c, int64_t batch_dims) {
  const Scope& s = c.scope();
  const int32_t dims = static_cast<int32_t>(batch_dims);
  if (dims >= 0) return ops::Const(s, Tensor::FromValues<int32_t>({dims}), kInt32);
  return ops::Reshape(s, ops::Add(s, ops::Rank(s, c.x(1)), dims), {1});
}

// Likewise, of the variable behind a handle.
Status ResourceGatherGrad(GradContext& c) {
  const Scope& s = c.scope();
  const Output shape = ops::VariableShape(s, c.x(0));
  const int64_t batch_dims = c.op().node()->attrs().GetOr<int64_t>("batch_dims", 0);
  if (batch_dims != 0) {
    const Output batch = BatchDims(c, batch_dims);
    c.set_dx(0, BatchedGatherGrad(c, shape, batch, batch));
    return OkStatus();
  }
  const Output rows = ops::Reshape(s, ops::Slice(s, shape, {0}, {1}), Tensor(kInt32, Shape({0})));
  const Output indices = ops::Reshape(s, c.x(1), {-1});
  const Output row_shape = ops::Slice(s, shape, {1}, {-1});
  const Output flat = ops::Reshape(s, c.dy(), ops::ConcatV2(s, {Input({-1}), Input(row_shape)}, 0));
  c.set_dx(0, ops::UnsortedSegmentSum(s, flat, indices, rows));
  return OkStatus();
}

// Along any axis: what lies before and behind the axis is flattened, the axis brought to the
// front, where slices taken twice are added up.
Status GatherV2Grad(GradContext& c) {
  const Scope& s = c.scope();
  const int64_t batch_dims = c.op().node()->attrs().GetOr<int64_t>("batch_dims", 0);
  if (batch_dims == 0 && IsKnownZero(c.x(2))) return GatherGrad(c);
  const Output shape = ops::Shape(s, c.x(0)), rank = ops::Size(s, shape);
  const Output scalar_axis =
      ops::FloorMod(s, ops::Add(s, ops::Cast(s, c.x(2), kInt32), rank), rank);
  const Output axis = ops::Reshape(s, scalar_axis, {1});
  if (batch_dims != 0) {
    c.set_dx(0, BatchedGatherGrad(c, shape, axis, BatchDims(c, batch_dims)));
    return OkStatus();
  }
  const Output behind = ops::Add(s, axis, 1);
  const Output outer = SizeOf(s, shape, {0}, axis);
  const Output count = ops::Slice(s, shape, axis, {1});
  const Output inner = SizeOf(s, shape, behind, {-1});
  const Output indices = ops::Reshape(s, c.x(1), {-1});
  const Output taken = ops::Reshape(s, ops::Size(s, indices), {1});
  const Output dy = ops::Reshape(s, c.dy(), ops::ConcatV2(s, {outer, taken, inner}, 0));
  const Output sums = ops::UnsortedSegmentSum(s, ops::Transpose(s, dy, {1, 0, 2}), indices,
                                              ops::Reshape(s, count, Tensor(kInt32, Shape({0}))));
  c.set_dx(0, ops::Reshape(s, ops::Transpose(s, sums, {1, 0, 2}), shape));
  return OkStatus();
}

Status GatherNdGrad(GradContext& c) {
  const Scope& s = c.scope();
  const Output shape = ops::Shape(s, c.x(0), {.out_type = BaseType(c.x(1).dtype())});
  c.set_dx(0, ops::ScatterNd(s, c.x(1), c.dy(), shape));
  return OkStatus();
}

Status ResourceGatherNdGrad(GradContext& c) {
  const Scope& s = c.scope();
  const Output shape = ops::VariableShape(s, c.x(0), {.out_type = BaseType(c.x(1).dtype())});
  c.set_dx(0, ops::ScatterNd(s, c.x(1), c.dy(), shape));
  return OkStatus();
}

// Of (tensor, indices, updates).
Status TensorScatterUpdateGrad(GradContext& c) {
  const Scope& s = c.scope();
  c.set_dx(0, ops::TensorScatterUpdate(s, c.dy(), c.x(1), ops::ZerosLike(s, c.x(2))));
  c.set_dx(2, ops::GatherNd(s, c.dy(), c.x(1)));
  return OkStatus();
}
Status TensorScatterAddGrad(GradContext& c) {
  c.set_dx(0, c.dy());
  c.set_dx(2, ops::GatherNd(c.scope(), c.dy(), c.x(1)));
  return OkStatus();
}
Status TensorScatterSubGrad(GradContext& c) {
  c.set_dx(0, c.dy());
  c.set_dx(2, ops::Neg(c.scope(), ops::GatherNd(c.scope(), c.dy(), c.x(1))));
  return OkStatus();
}

Status ScatterNdGrad(GradContext& c) {
  c.set_dx(1, ops::GatherNd(c.scope(), c.dy(), c.x(0)));
  return OkStatus();
}

// Puts each value back where it was found in its row.
Status TopKGrad(GradContext& c) {
  const Scope& s = c.scope();
  if (!c.dy(0).valid()) return OkStatus();
  const Output shape = ops::Shape(s, c.x(0));
  const Output last = ops::Reshape(s, ops::Sub(s, ops::Size(s, shape), 1), {1});
  const Output row = ops::Reshape(s, ops::Slice(s, shape, last, {1}), Tensor(kInt32, Shape({0})));
  const Output k = ops::Slice(s, ops::Shape(s, c.y(1)), last, {1});
  const Output places = ops::Reshape(s, c.y(1), ops::ConcatV2(s, {Input({-1}), Input(k)}, 0));
  const Output total = ops::Size(s, c.x(0));
  const Output row_begins = ops::ExpandDims(s, ops::Range(s, 0, total, row), 1);
  const Output flat = ops::Reshape(s, ops::Add(s, places, row_begins), {-1, 1});
  const Output back =
      ops::ScatterNd(s, flat, ops::Reshape(s, c.dy(0), {-1}), ops::Reshape(s, total, {1}));
  c.set_dx(0, ops::Reshape(s, back, shape));
  return OkStatus();
}

// --- Partition and stitch -------------------------------------------------------------------
// Every row goes back to where it came from, which partitioning the row numbers tells.
Status DynamicPartitionGrad(GradContext& c) {
  const Scope& s = c.scope();
  const int n = c.op().num_outputs();
  const Output partitions = c.x(1);
  const Output numbers =
      ops::Reshape(s, ops::Range(s, 0, ops::Size(s, partitions), 1), ops::Shape(s, partitions));
  const std::vector<Output> came_from = ops::DynamicPartition(s, numbers, partitions, n);
  if (static_cast<int>(came_from.size()) != n) return OkStatus();
  std::vector<Input> places, rows;
  for (int i = 0; i < n; ++i) {
    places.push_back(came_from[i]);
    rows.push_back(c.dy(i).valid() ? c.dy(i) : ops::ZerosLike(s, c.y(i)));
  }
  c.set_dx(0, ops::Reshape(s, ops::DynamicStitch(s, places, rows), ops::Shape(s, c.x(0))));
  return OkStatus();
}

Status DynamicStitchGrad(GradContext& c) {
  const int n = c.op().num_inputs() / 2;
  for (int i = 0; i < n; ++i) c.set_dx(n + i, ops::Gather(c.scope(), c.dy(), c.x(i)));
  return OkStatus();
}

// --- Segments -------------------------------------------------------------------------------
Status SegmentSumGrad(GradContext& c) {
  c.set_dx(0, ops::Gather(c.scope(), c.dy(), c.x(1)));
  return OkStatus();
}

Status SegmentMeanGrad(GradContext& c) {
  const Scope& s = c.scope();
  const Output ids = c.x(1);
  const Output further =
      ops::Reshape(s, ops::Sub(s, ops::Rank(s, c.x(0)), 1), {1});  // axes behind the first
  const Output shape = ops::ConcatV2(s, {ops::Shape(s, ids), ops::Fill(s, further, 1)}, 0);
  const Output ones = ops::Fill(s, shape, ConstantLike(s, c.x(0), 1));
  const Output mean = ops::RealDiv(s, c.dy(), ops::SegmentSum(s, ones, ids));
  c.set_dx(0, ops::Gather(s, mean, ids));
  return OkStatus();
}

// Shared equally among the elements that attain the extremum of their segment.
Status SegmentExtremumGrad(GradContext& c) {
  const Scope& s = c.scope();
  const Output ids = c.x(1);
  const Output wins = ops::Equal(s, c.x(0), ops::Gather(s, c.y(), ids));
  const Output count = ops::SegmentSum(s, ops::Cast(s, wins, BaseType(c.x(0).dtype())), ids);
  const Output share = ops::Gather(s, ops::RealDiv(s, c.dy(), count), ids);
  c.set_dx(0, ops::SelectV2(s, wins, share, ops::ZerosLike(s, share)));
  return OkStatus();
}

// What `segments` holds for each element; elements with a negative id belong to no segment.
struct BySegment {
  Output values;
  Output belongs;  // bool, broadcasts to values
};
BySegment TakeBySegment(GradContext& c, const Output& segments) {
  const Scope& s = c.scope();
  const Output ids = c.x(1), zeros = ops::ZerosLike(s, ids);
  const Output values = ops::Gather(s, segments, ops::Maximum(s, ids, zeros));
  const Output belongs = ops::GreaterEqual(s, ids, zeros);
  const Output further =
      ops::Reshape(s, ops::Sub(s, ops::Rank(s, values), ops::Rank(s, belongs)), {1});
  const Output shape = ops::ConcatV2(s, {ops::Shape(s, belongs), ops::Fill(s, further, 1)}, 0);
  return {values, ops::Reshape(s, belongs, shape)};
}

Status UnsortedSegmentSumGrad(GradContext& c) {
  const BySegment taken = TakeBySegment(c, c.dy());
  const Scope& s = c.scope();
  c.set_dx(0, ops::SelectV2(s, taken.belongs, taken.values, ops::ZerosLike(s, taken.values)));
  return OkStatus();
}

Status UnsortedSegmentExtremumGrad(GradContext& c) {
  const Scope& s = c.scope();
  const BySegment extremum = TakeBySegment(c, c.y());
  const Output wins = ops::LogicalAnd(s, ops::Equal(s, c.x(0), extremum.values), extremum.belongs);
  const Output count =
      ops::UnsortedSegmentSum(s, ops::Cast(s, wins, BaseType(c.x(0).dtype())), c.x(1), c.x(2));
  const BySegment share = TakeBySegment(c, ops::RealDiv(s, c.dy(), count));
  c.set_dx(0, ops::SelectV2(s, wins, share.values, ops::ZerosLike(s, share.values)));
  return OkStatus();
}

// The product of all others: of a segment with one zero only that element has any, with more none.
Status UnsortedSegmentProdGrad(GradContext& c) {
  const Scope& s = c.scope();
  const Output x = c.x(0), ids = c.x(1);
  const Output is_zero = ops::Equal(s, x, ops::ZerosLike(s, x));
  const Output zeros = ops::UnsortedSegmentSum(s, ops::Cast(s, is_zero, kInt32), ids, c.x(2));
  const Output dy = ops::SelectV2(s, ops::Greater(s, zeros, 1), ops::ZerosLike(s, c.dy()), c.dy());
  const Output nonzero = ops::SelectV2(s, is_zero, ops::OnesLike(s, x), x);
  const Output others = TakeBySegment(c, ops::UnsortedSegmentProd(s, nonzero, ids, c.x(2))).values;
  const Output factor =
      ops::SelectV2(s, is_zero, others, ops::RealDiv(s, TakeBySegment(c, c.y()).values, nonzero));
  const BySegment taken = TakeBySegment(c, dy);
  c.set_dx(0, ops::SelectV2(s, taken.belongs, ops::Mul(s, taken.values, factor),
                            ops::ZerosLike(s, taken.values)));
  return OkStatus();
}

// Of (data, indices, segment_ids): rows are taken, and added up by segment.
Output NumRows(GradContext& c) {
  const Scope& s = c.scope();
  return ops::Reshape(s, ops::Slice(s, ops::Shape(s, c.x(0)), {0}, {1}),
                      Tensor(kInt32, Shape({0})));
}
Status SparseSegmentSumGrad(GradContext& c) {
  c.set_dx(0, ops::SparseSegmentSumGrad(c.scope(), c.dy(), c.x(1), c.x(2), NumRows(c)));
  return OkStatus();
}
Status SparseSegmentMeanGrad(GradContext& c) {
  c.set_dx(0, ops::SparseSegmentMeanGrad(c.scope(), c.dy(), c.x(1), c.x(2), NumRows(c)));
  return OkStatus();
}
Status SparseSegmentSqrtNGrad(GradContext& c) {
  c.set_dx(0, ops::SparseSegmentSqrtNGrad(c.scope(), c.dy(), c.x(1), c.x(2), NumRows(c)));
  return OkStatus();
}

}  // namespace

void RegisterIndexingGradients(GradientRegistry& r) {
  r.Register("Gather", GatherGrad);
  r.Register("GatherV2", GatherV2Grad);
  r.Register("ResourceGather", ResourceGatherGrad);
  r.Register("GatherNd", GatherNdGrad);
  r.Register("ResourceGatherNd", ResourceGatherNdGrad);
  r.Register("ScatterNd", ScatterNdGrad);
  r.Register("TensorScatterUpdate", TensorScatterUpdateGrad);
  r.Register("TensorScatterAdd", TensorScatterAddGrad);
  r.Register("ScatterNdNonAliasingAdd", TensorScatterAddGrad);
  r.Register("TensorScatterSub", TensorScatterSubGrad);
  r.Register("TopKV2", TopKGrad);
  r.Register("DynamicPartition", DynamicPartitionGrad);
  r.Register("DynamicStitch", DynamicStitchGrad);
  r.Register("ParallelDynamicStitch", DynamicStitchGrad);
  r.Register("SegmentSum", SegmentSumGrad);
  r.Register("SegmentMean", SegmentMeanGrad);
  r.Register("UnsortedSegmentSum", UnsortedSegmentSumGrad);
  r.Register("UnsortedSegmentProd", UnsortedSegmentProdGrad);
  for (const char* op : {"SparseSegmentSum", "SparseSegmentSumWithNumSegments"}) {
    r.Register(op, SparseSegmentSumGrad);
  }
  for (const char* op : {"SparseSegmentMean", "SparseSegmentMeanWithNumSegments"}) {
    r.Register(op, SparseSegmentMeanGrad);
  }
  for (const char* op : {"SparseSegmentSqrtN", "SparseSegmentSqrtNWithNumSegments"}) {
    r.Register(op, SparseSegmentSqrtNGrad);
  }
  for (const char* op : {"SegmentMax", "SegmentMin"}) r.Register(op, SegmentExtremumGrad);
  for (const char* op : {"UnsortedSegmentMax", "UnsortedSegmentMin"}) {
    r.Register(op, UnsortedSegmentExtremumGrad);
  }
}

}  // namespace millrace
