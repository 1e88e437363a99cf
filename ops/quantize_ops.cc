// SPDX-License-Identifier: Apache-2.0
// Floats that are rounded to what a number of bits can tell apart, and quantized numbers.
#include "base/errors.h"
#include "base/status_macros.h"
#include "ops/all_ops.h"
#include "ops/op_def_builder.h"
#include "ops/shape_fns.h"

namespace millrace {
namespace {

// Numbers of any shape with one range, or one for each slice along the axis: inputs `first`,
// and, for the bounds, the two after it. The shape of the bounds.
StatusOr<PartialShape> BoundsShape(InferenceContext& c, int first) {
  const int64_t axis = c.attrs().GetOr<int64_t>("axis", -1);
  if (axis < -1) return errors::InvalidArgument("axis should be at least -1, got ", axis);
  const int rank = axis < 0 ? 0 : 1;
  MR_ASSIGN_OR_RETURN(const PartialShape low, c.WithRank(first + 1, rank));
  MR_ASSIGN_OR_RETURN(const PartialShape high, c.WithRank(first + 2, rank));
  MR_ASSIGN_OR_RETURN(PartialShape bounds, low.MergeWith(high));
  if (axis >= 0) {
    // No tensor has more axes than 254, and WithRankAtLeast takes an int.
    const int least = axis < 254 ? static_cast<int>(axis) + 1 : 255;
    MR_ASSIGN_OR_RETURN(const PartialShape input, c.WithRankAtLeast(first, least));
    if (input.has_rank() && bounds.has_rank()) {
      MR_RETURN_IF_ERROR(MergeDim(bounds.dim(0), input.dim(static_cast<int>(axis))).status());
    }
  }
  return bounds;
}

Status QuantizeAndDequantizeShape(InferenceContext& c) {
  if (c.num_inputs() > 3) MR_RETURN_IF_ERROR(c.WithRank(3, 0).status());
  MR_RETURN_IF_ERROR(BoundsShape(c, 0).status());
  c.set_output(0, c.input(0));
  return OkStatus();
}
Status QuantizeAndDequantizeGradShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape merged, c.input(0).MergeWith(c.input(1)));
  MR_ASSIGN_OR_RETURN(PartialShape bounds, BoundsShape(c, 1));
  c.set_output(0, std::move(merged));
  c.set_output(1, bounds);
  c.set_output(2, std::move(bounds));
  return OkStatus();
}

// With the range that the quantized numbers stand for.
Status QuantizeShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape bounds, BoundsShape(c, 0));
  c.set_output(0, c.input(0));
  c.set_output(1, bounds);
  c.set_output(2, std::move(bounds));
  return OkStatus();
}
Status DequantizeShape(InferenceContext& c) {
  MR_RETURN_IF_ERROR(BoundsShape(c, 0).status());
  c.set_output(0, c.input(0));
  return OkStatus();
}

// Bounds are scalars.
Status FakeQuantShape(InferenceContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(1, 0).status());
  MR_RETURN_IF_ERROR(c.WithRank(2, 0).status());
  c.set_output(0, c.input(0));
  return OkStatus();
}
Status FakeQuantGradShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape merged, c.input(0).MergeWith(c.input(1)));
  MR_RETURN_IF_ERROR(c.WithRank(2, 0).status());
  MR_RETURN_IF_ERROR(c.WithRank(3, 0).status());
  c.set_output(0, std::move(merged));
  for (int i = 1; i <= 2; ++i) c.set_output(i, PartialShape({}));
  return OkStatus();
}

// Bounds are vectors as long as the last axis of `numbers`, which is written there as well.
Status MergeChannels(InferenceContext& c, int low, PartialShape* numbers, int64_t* channels) {
  const int last = numbers->rank() - 1;  // -2: unknown
  *channels = numbers->has_rank() ? numbers->dim(last) : -1;
  for (int i = low; i <= low + 1; ++i) {
    MR_ASSIGN_OR_RETURN(const PartialShape bounds, c.WithRank(i, 1));
    MR_ASSIGN_OR_RETURN(*channels, MergeDim(*channels, bounds.dim(0)));
  }
  if (numbers->has_rank()) numbers->SetDim(last, *channels);
  return OkStatus();
}
Status FakeQuantChannelsShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape numbers, c.WithRankAtLeast(0, 1));
  int64_t channels;
  MR_RETURN_IF_ERROR(MergeChannels(c, 1, &numbers, &channels));
  c.set_output(0, std::move(numbers));
  return OkStatus();
}
Status FakeQuantChannelsGradShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape gradients, c.WithRankAtLeast(0, 1));
  MR_ASSIGN_OR_RETURN(PartialShape numbers, gradients.MergeWith(c.input(1)));
  int64_t channels;
  MR_RETURN_IF_ERROR(MergeChannels(c, 2, &numbers, &channels));
  c.set_output(0, std::move(numbers));
  for (int i = 1; i <= 2; ++i) c.set_output(i, PartialShape({channels}));
  return OkStatus();
}

constexpr OpSpec kOps[] = {
    {"Dequantize", "input: T, min_range: float, max_range: float", "output: dtype",
     "T: {qint8, quint8, qint32, qint16, quint16}; "
     "mode: {'MIN_COMBINED', 'MIN_FIRST', 'SCALED'} = 'MIN_COMBINED'; narrow_range: bool = false; "
     "axis: int = -1; dtype: {bfloat16, float} = float",
     DequantizeShape},
    {"FakeQuantWithMinMaxArgs", "inputs: float", "outputs: float",
     "min: float = -6.0; max: float = 6.0; num_bits: int = 8; narrow_range: bool = false",
     UnchangedShape},
    {"FakeQuantWithMinMaxArgsGradient", "gradients: float, inputs: float", "backprops: float",
     "min: float = -6.0; max: float = 6.0; num_bits: int = 8; narrow_range: bool = false",
     UnchangedShape},
    {"FakeQuantWithMinMaxVars", "inputs: float, min: float, max: float", "outputs: float",
     "num_bits: int = 8; narrow_range: bool = false", FakeQuantShape},
    {"FakeQuantWithMinMaxVarsGradient", "gradients: float, inputs: float, min: float, max: float",
     "backprops_wrt_input: float, backprop_wrt_min: float, backprop_wrt_max: float",
     "num_bits: int = 8; narrow_range: bool = false", FakeQuantGradShape},
    {"FakeQuantWithMinMaxVarsPerChannel", "inputs: float, min: float, max: float", "outputs: float",
     "num_bits: int = 8; narrow_range: bool = false", FakeQuantChannelsShape},
    {"FakeQuantWithMinMaxVarsPerChannelGradient",
     "gradients: float, inputs: float, min: float, max: float",
     "backprops_wrt_input: float, backprop_wrt_min: float, backprop_wrt_max: float",
     "num_bits: int = 8; narrow_range: bool = false", FakeQuantChannelsGradShape},
    {"QuantizeAndDequantizeV2", "input: T, input_min: T, input_max: T", "output: T",
     "signed_input: bool = true; num_bits: int = 8; range_given: bool = false; "
     "T: {bfloat16, half, float, double}; "
     "round_mode: {'HALF_TO_EVEN', 'HALF_UP'} = 'HALF_TO_EVEN'; narrow_range: bool = false; "
     "axis: int = -1",
     QuantizeAndDequantizeShape},
    {"QuantizeAndDequantizeV3", "input: T, input_min: T, input_max: T, num_bits: int32",
     "output: T",
     "signed_input: bool = true; range_given: bool = true; T: {bfloat16, half, float, double}; "
     "narrow_range: bool = false; axis: int = -1",
     QuantizeAndDequantizeShape},
    {"QuantizeAndDequantizeV4", "input: T, input_min: T, input_max: T", "output: T",
     "signed_input: bool = true; num_bits: int = 8; range_given: bool = false; "
     "T: {bfloat16, half, float, double}; "
     "round_mode: {'HALF_TO_EVEN', 'HALF_UP'} = 'HALF_TO_EVEN'; narrow_range: bool = false; "
     "axis: int = -1",
     QuantizeAndDequantizeShape},
    {"QuantizeAndDequantizeV4Grad", "gradients: T, input: T, input_min: T, input_max: T",
     "input_backprop: T, input_min_backprop: T, input_max_backprop: T",
     "T: {bfloat16, half, float, double}; axis: int = -1", QuantizeAndDequantizeGradShape},
    {"QuantizeV2", "input: float, min_range: float, max_range: float",
     "output: T, output_min: float, output_max: float",
     "T: {qint8, quint8, qint32, qint16, quint16}; "
     "mode: {'MIN_COMBINED', 'MIN_FIRST', 'SCALED'} = 'MIN_COMBINED'; "
     "round_mode: {'HALF_AWAY_FROM_ZERO', 'HALF_TO_EVEN'} = 'HALF_AWAY_FROM_ZERO'; "
     "narrow_range: bool = false; axis: int = -1; ensure_minimum_range: float = 0.01",
     QuantizeShape},
};

}  // namespace

Status RegisterQuantizeOps(OpRegistry& registry) { return RegisterOps(registry, kOps); }

}  // namespace millrace
