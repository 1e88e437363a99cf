// SPDX-License-Identifier: Apache-2.0
// Derivatives of rows of different lengths, and of samples by the parameters of their distribution.
#include "base/errors.h"
#include "graph/gradients/grad_families.h"
#include "graph/gradients/grad_util.h"

namespace millrace {
namespace {

// ---- Samples (Figurnov, Mohamed and Mnih, 2018)

template <int kAlpha>
Status GammaGrad(GradContext& c) {
  const Scope& s = c.scope();
  const Output slope = ops::RandomGammaGrad(s, c.x(kAlpha), c.y());
  SetReducedGradient(c, kAlpha, ops::Mul(s, c.dy(), slope));
  return OkStatus();
}

// ---- Rows

// A table of the first `outer` dimensions of `of` in one, whatever the sizes.
Output Flatten(const Scope& s, const Output& of, const Output& rows, const Output& row_shape) {
  const Output first = ops::Reshape(s, rows, {1});
  return ops::Reshape(s, of, ops::ConcatV2(s, {Input(first), Input(row_shape)}, 0));
}

Status RaggedGatherGrad(GradContext& c) {
  const Scope& s = c.scope();
  const int depth = c.op().num_inputs() - 2, values = depth;
  const Output dy = c.dy(c.op().num_outputs() - 1);
  if (!dy.valid()) return OkStatus();
  // Where the values of each row of the outermost level begin.
  Output begins = c.x(0);
  for (int i = 1; i < depth; ++i) begins = ops::GatherV2(s, c.x(i), begins, 0);
  const Output rows = ops::Reshape(s, c.x(depth + 1), {-1});
  const Output ends = ops::Slice(s, begins, {1}, {-1});
  const DataType type = begins.dtype();
  const Input one = type == kInt64 ? Input(int64_t{1}) : Input(int32_t{1});
  const auto taken = ops::RaggedRange(s, ops::GatherV2(s, begins, rows, 0),
                                      ops::GatherV2(s, ends, rows, 0), one, {.Tsplits = type});
  const Output count = ops::Reshape(s, ops::Slice(s, ops::Shape(s, c.x(values)), {0}, {1}),
                                    Tensor(kInt32, Shape({0})));
  c.set_dx(values, ops::UnsortedSegmentSum(s, dy, taken.rt_dense_values, count));
  return OkStatus();
}

Status RaggedToSparseGrad(GradContext& c) {
  if (!c.dy(1).valid()) return OkStatus();
  const int values = c.op().num_inputs() - 1;
  c.set_dx(values, ops::Reshape(c.scope(), c.dy(1), ops::Shape(c.scope(), c.x(values))));
  return OkStatus();
}

// Each element of the output came from a value, whose index the same op tells, or is the default.
Status RaggedToTensorGrad(GradContext& c) {
  const Scope& s = c.scope();
  const AttrValue attr = c.op().attr("row_partition_types");
  const auto* const types = attr.get_if<std::vector<std::string>>();
  if (types == nullptr) return OkStatus();
  std::vector<Input> partitions;
  for (int i = 3; i < c.op().num_inputs(); ++i) partitions.emplace_back(c.x(i));
  const bool has_size = !types->empty() && (*types)[0] == "FIRST_DIM_SIZE";
  const int outer = static_cast<int>(types->size()) + (has_size ? 0 : 1);
  const Output shape = ops::Shape(s, c.x(1)), row_shape = ops::Slice(s, shape, {1}, {-1});
  const Output count = ops::Reshape(s, ops::Slice(s, shape, {0}, {1}), Tensor(kInt32, Shape({0})));
  const Output from =
      ops::RaggedTensorToTensor(s, ops::Slice(s, ops::Shape(s, c.dy()), {0}, {outer}),
                                ops::Range(s, 0, count, 1), -1, partitions, *types);
  const Output indices = ops::Reshape(s, from, {-1});
  const Output rows = Flatten(s, c.dy(), ops::Size(s, indices), row_shape);
  c.set_dx(1, ops::UnsortedSegmentSum(s, rows, indices, count));
  if (!c.needs_dx(2)) return OkStatus();
  // The others are summed, over the axes that the default was broadcast along too.
  const Output other = ops::Cast(s, ops::NotEqual(s, indices, -1), kInt32);
  const Output sum =
      ops::Reshape(s, ops::UnsortedSegmentSum(s, rows, ops::Neg(s, other), 1), row_shape);
  const Output standard = ops::Shape(s, c.x(2));
  const auto axes = ops::BroadcastGradientArgs(s, standard, row_shape);
  c.set_dx(2, ops::Reshape(s, ops::Sum(s, sum, axes.r0), standard));
  return OkStatus();
}

Status FromVariantGrad(GradContext& c) {
  const int rows = c.op().num_outputs() - 1;
  if (!c.dy(rows).valid()) return OkStatus();
  std::vector<Input> splits;
  for (int i = 0; i < rows; ++i) splits.emplace_back(c.y(i));
  const PartialShape& shape = c.x(0).shape();
  if (shape.has_rank() && shape.rank() > 1) {
    return errors::InvalidArgument(
        "Unable to compute gradient: RaggedTensorToVariant can currently only generate 0D "
        "or 1D output.");
  }
  const bool batched = shape.has_rank() ? shape.rank() == 1 : rows > 0;
  c.set_dx(0, ops::RaggedTensorToVariant(c.scope(), splits, c.dy(rows), batched));
  return OkStatus();
}

Status ToVariantGrad(GradContext& c) {
  const Scope& s = c.scope();
  const int values = c.op().num_inputs() - 1;
  const Input splits = values == 0 ? Input(int64_t{0}) : Input(c.x(0));
  c.set_dx(values, ops::RaggedTensorToVariantGradient(s, c.dy(), splits, ops::Shape(s, c.x(values)),
                                                      c.x(values).dtype()));
  return OkStatus();
}

}  // namespace

void RegisterRaggedGradients(GradientRegistry& r) {
  r.Register("RandomGamma", GammaGrad<1>);
  r.Register("StatelessRandomGammaV2", GammaGrad<2>);
  r.Register("StatelessRandomGammaV3", GammaGrad<4>);
  r.Register("RaggedGather", RaggedGatherGrad);
  r.Register("RaggedTensorToSparse", RaggedToSparseGrad);
  r.Register("RaggedTensorToTensor", RaggedToTensorGrad);
  r.Register("RaggedTensorFromVariant", FromVariantGrad);
  r.Register("RaggedTensorToVariant", ToVariantGrad);
  for (const char* op : {"AudioSummary", "AudioSummaryV2", "ParameterizedTruncatedNormal",
                         "RandomCrop", "StatelessRandomBinomial", "StatelessRandomPoisson"}) {
    r.RegisterNotDifferentiable(op);
  }
}

}  // namespace millrace
