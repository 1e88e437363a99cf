// SPDX-License-Identifier: Apache-2.0
// Cells of recurrent networks, one step or a sequence at a time, and what is read off sequences
// without alignment (CTC).
#include <algorithm>

#include "base/errors.h"
#include "base/status_macros.h"
#include "ops/all_ops.h"
#include "ops/op_def_builder.h"
#include "ops/shape_fns.h"

namespace millrace {
namespace {

// -- Cells --

// Every output: one row of cells for each example.
Status CellShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape x, c.WithRank(0, 2));
  MR_ASSIGN_OR_RETURN(const PartialShape state, c.WithRank(1, 2));
  for (int i = 0; i < c.num_outputs(); ++i) {
    c.set_output(i, PartialShape({x.dim(0), state.dim(1)}));
  }
  return OkStatus();
}

Status GruCellGradShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape x, c.WithRank(0, 2));
  MR_ASSIGN_OR_RETURN(const PartialShape state, c.WithRank(1, 2));
  MR_ASSIGN_OR_RETURN(const PartialShape gates, c.WithRank(2, 2));
  const int64_t batch = x.dim(0);
  c.set_output(0, std::move(x));
  c.set_output(1, PartialShape({batch, state.dim(1)}));
  c.set_output(2, PartialShape({batch, state.dim(1)}));
  c.set_output(3, PartialShape({batch, gates.dim(1)}));
  return OkStatus();
}

Status LstmCellGradShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape x, c.WithRank(0, 2));
  MR_ASSIGN_OR_RETURN(const PartialShape state, c.WithRank(1, 2));
  const int64_t batch = x.dim(0), cells = state.dim(1);
  if (cells > INT64_MAX / 4) return errors::InvalidArgument("too many cells: ", cells);
  c.set_output(0, PartialShape({batch, cells}));
  c.set_output(1, PartialShape({batch, cells < 0 ? -1 : 4 * cells}));
  for (int i = 2; i < 5; ++i) c.set_output(i, PartialShape({cells}));
  return OkStatus();
}

// The bias, which comes last, has an element for each cell and gate.
Status LstmShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape x, c.WithRank(1, 3));
  MR_ASSIGN_OR_RETURN(const PartialShape bias, c.WithRank(c.num_inputs() - 1, 1));
  const int64_t gates = bias.dim(0);
  if (gates >= 0 && gates % 4 != 0) {
    return errors::InvalidArgument("Dimension size must be evenly divisible by 4 but is ", gates);
  }
  for (int i = 0; i < c.num_outputs(); ++i) {
    c.set_output(i, PartialShape({x.dim(0), x.dim(1), gates < 0 ? -1 : gates / 4}));
  }
  return OkStatus();
}

// A gradient for each of inputs 1 to 8.
Status LstmGradShape(InferenceContext& c) {
  constexpr int kRanks[] = {3, 2, 2, 2, 1, 1, 1, 1};
  for (int i = 0; i < 8; ++i) {
    MR_ASSIGN_OR_RETURN(PartialShape shape, c.WithRank(i + 1, kRanks[i]));
    c.set_output(i, std::move(shape));
  }
  return OkStatus();
}

// -- CTC --

// Input 0: [times, examples, classes]; input `lengths`: the times of each example.
StatusOr<PartialShape> LogitsShape(const InferenceContext& c, int lengths) {
  MR_ASSIGN_OR_RETURN(PartialShape logits, c.WithRank(0, 3));
  MR_ASSIGN_OR_RETURN(const PartialShape times, c.WithRank(lengths, 1));
  MR_ASSIGN_OR_RETURN(const int64_t batch, MergeDim(logits.dim(1), times.dim(0)));
  logits.SetDim(1, batch);
  return logits;
}

Status CtcLossShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape indices, c.WithRank(1, 2));
  MR_ASSIGN_OR_RETURN(const PartialShape values, c.WithRank(2, 1));
  MR_RETURN_IF_ERROR(MergeDim(indices.dim(0), values.dim(0)).status());
  MR_ASSIGN_OR_RETURN(PartialShape logits, LogitsShape(c, 3));
  c.set_output(0, PartialShape({logits.dim(1)}));
  c.set_output(1, std::move(logits));
  return OkStatus();
}

// `paths` sparse tensors (all indices, all values, all shapes) and how likely they are.
Status DecodedPathsShape(InferenceContext& c, int64_t paths) {
  MR_ASSIGN_OR_RETURN(const PartialShape logits, LogitsShape(c, 1));
  const int count = (c.num_outputs() - 1) / 3;
  for (int i = 0; i < count; ++i) {
    c.set_output(i, PartialShape({-1, 2}));
    c.set_output(count + i, PartialShape({-1}));
    c.set_output(2 * count + i, PartialShape({2}));
  }
  c.set_output(c.num_outputs() - 1, PartialShape({logits.dim(1), paths}));
  return OkStatus();
}
Status GreedyShape(InferenceContext& c) { return DecodedPathsShape(c, 1); }
Status BeamsShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const int64_t paths, c.attr<int64_t>("top_paths"));
  return DecodedPathsShape(c, paths);
}

// Two sparse tensors, compared along their last axis.
Status EditDistanceShape(InferenceContext& c) {
  for (const int first : {0, 3}) {
    MR_ASSIGN_OR_RETURN(const PartialShape indices, c.WithRank(first, 2));
    MR_ASSIGN_OR_RETURN(const PartialShape values, c.WithRank(first + 1, 1));
    MR_ASSIGN_OR_RETURN(const PartialShape shape, c.WithRank(first + 2, 1));
    MR_RETURN_IF_ERROR(MergeDim(indices.dim(0), values.dim(0)).status());
    MR_RETURN_IF_ERROR(MergeDim(indices.dim(1), shape.dim(0)).status());
  }
  Dims hypothesis, truth;
  if (!ConstantInts(c, 2, &hypothesis) || !ConstantInts(c, 5, &truth)) return UnknownShape(c);
  if (hypothesis.size() != truth.size()) {
    return errors::InvalidArgument("Num elements of hypothesis_shape does not match truth_shape: ",
                                   hypothesis.size(), " vs. ", truth.size());
  }
  PartialShape out = UnknownDims(0);
  for (std::size_t i = 0; i + 1 < hypothesis.size(); ++i) {
    out.AddDim(std::max<int64_t>(std::max(hypothesis[i], truth[i]), -1));
  }
  c.set_output(0, std::move(out));
  return OkStatus();
}

constexpr char kLstmOutputs[] = "i: T, cs: T, f: T, o: T, ci: T, co: T, h: T";
constexpr char kLstmInputs[] =
    "seq_len_max: int64, x: T, cs_prev: T, h_prev: T, w: T, wci: T, wcf: T, wco: T, b: T";
constexpr char kLstmGradInputs[] =
    "seq_len_max: int64, x: T, cs_prev: T, h_prev: T, w: T, wci: T, wcf: T, wco: T, b: T, i: T, "
    "cs: T, f: T, o: T, ci: T, co: T, h: T, cs_grad: T, h_grad: T";
constexpr char kLstmGradOutputs[] =
    "x_grad: T, cs_prev_grad: T, h_prev_grad: T, w_grad: T, wci_grad: T, wcf_grad: T, wco_grad: T, "
    "b_grad: T";

constexpr OpSpec kOps[] = {
    {"BlockLSTM", kLstmInputs, kLstmOutputs,
     "forget_bias: float = 1.0; cell_clip: float = 3.0; use_peephole: bool = false; "
     "T: {half, float}",
     LstmShape},
    {"BlockLSTMGrad", kLstmGradInputs, kLstmGradOutputs, "use_peephole: bool; T: {half, float}",
     LstmGradShape},
    {"BlockLSTMGradV2", kLstmGradInputs, kLstmGradOutputs, "use_peephole: bool; T: {half, float}",
     LstmGradShape},
    {"BlockLSTMV2", kLstmInputs, kLstmOutputs,
     "cell_clip: float = 0.0; use_peephole: bool = false; T: {half, float}", LstmShape},
    {"CTCBeamSearchDecoder", "inputs: T, sequence_length: int32",
     "decoded_indices: top_paths * int64, decoded_values: top_paths * int64, "
     "decoded_shape: top_paths * int64, log_probability: T",
     "beam_width: int >= 1; top_paths: int >= 1; merge_repeated: bool = true; "
     "T: {float, double} = float",
     BeamsShape},
    {"CTCGreedyDecoder", "inputs: T, sequence_length: int32",
     "decoded_indices: int64, decoded_values: int64, decoded_shape: int64, log_probability: T",
     "merge_repeated: bool = false; blank_index: int = -1; T: {float, double} = float",
     GreedyShape},
    {"CTCLoss", "inputs: T, labels_indices: int64, labels_values: int32, sequence_length: int32",
     "loss: T, gradient: T",
     "preprocess_collapse_repeated: bool = false; ctc_merge_repeated: bool = true; "
     "ignore_longer_outputs_than_inputs: bool = false; T: {float, double} = float",
     CtcLossShape},
    {"EditDistance",
     "hypothesis_indices: int64, hypothesis_values: T, hypothesis_shape: int64, "
     "truth_indices: int64, truth_values: T, truth_shape: int64",
     "output: float", "normalize: bool = true; T: type", EditDistanceShape},
    {"GRUBlockCell", "x: T, h_prev: T, w_ru: T, w_c: T, b_ru: T, b_c: T", "r: T, u: T, c: T, h: T",
     "T: {float}", CellShape},
    {"GRUBlockCellGrad",
     "x: T, h_prev: T, w_ru: T, w_c: T, b_ru: T, b_c: T, r: T, u: T, c: T, d_h: T",
     "d_x: T, d_h_prev: T, d_c_bar: T, d_r_bar_u_bar: T", "T: {float}", GruCellGradShape},
    {"LSTMBlockCell", "x: T, cs_prev: T, h_prev: T, w: T, wci: T, wcf: T, wco: T, b: T",
     kLstmOutputs,
     "forget_bias: float = 1.0; cell_clip: float = 3.0; use_peephole: bool = false; "
     "T: {half, float}",
     CellShape},
    {"LSTMBlockCellGrad",
     "x: T, cs_prev: T, h_prev: T, w: T, wci: T, wcf: T, wco: T, b: T, i: T, cs: T, f: T, o: T, "
     "ci: T, co: T, cs_grad: T, h_grad: T",
     "cs_prev_grad: T, dicfo: T, wci_grad: T, wcf_grad: T, wco_grad: T",
     "use_peephole: bool; T: {half, float}", LstmCellGradShape},
};

}  // namespace

Status RegisterRnnOps(OpRegistry& registry) { return RegisterOps(registry, kOps); }

}  // namespace millrace
