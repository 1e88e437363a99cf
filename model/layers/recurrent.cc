// SPDX-License-Identifier: Apache-2.0
// Recurrent layers: how a cell is taken over the steps of a sequence.
#include "base/errors.h"
#include "base/strings.h"
#include "millrace/control_flow.h"
#include "model/layers/layer_util.h"
#include "model/layers/recurrent_cell.h"

namespace millrace::layers {
namespace {

using MakeCell = std::unique_ptr<RecurrentCell> (*)(int64_t, const RecurrentOptions&);

// The steps of one call, with the axis of steps first.
struct Steps {
  Output inputs{};                // [steps, batch, gates * units]
  Output mask{};                  // [steps, batch, 1], or not valid
  int64_t count = -1;             // if it is known
  std::vector<Output> initial{};  // states
  Output dropped{};               // what the state is multiplied with, or not valid
};

struct Walked {
  Output last;   // [batch, units]
  Output all{};  // [steps, batch, units], if asked for
  std::vector<Output> states;
};

// What a step makes of the output and the states before it.
struct Carried {
  Output output;
  std::vector<Output> states;
};

Tensor Zero(DataType dtype) {
  return dtype == kBfloat16 ? Tensor::Scalar(BFloat16())
         : dtype == kHalf   ? Tensor::Scalar(Half())
                            : Tensor::Scalar<float>(0);
}

class CellLayer : public RecurrentLayer {
 public:
  CellLayer(MakeCell make_cell, int64_t units, const RecurrentOptions& options, Where where)
      : RecurrentLayer(options.name, where),
        make_cell_(make_cell),
        units_(units),
        o_(options),
        cell_(make_cell(units, options)),
        made_at_(where) {
    given_kernel_ = static_cast<bool>(options.kernel_initializer);
    given_recurrent_ = static_cast<bool>(options.recurrent_initializer);
    o_.kernel_initializer = Or(o_.kernel_initializer, initializers::GlorotUniform());
    o_.recurrent_initializer = Or(o_.recurrent_initializer, initializers::Orthogonal());
    set_activity_regularizer(o_.activity_regularizer);
  }
  std::string kind() const override { return cell_->layer_kind(); }
  bool returns_sequences() const override { return o_.return_sequences; }
  void set_zero_output_for_mask(bool zero) override { o_.zero_output_for_mask = zero; }

  std::unique_ptr<RecurrentLayer> Reversed() const override {
    RecurrentOptions options = o_;
    options.go_backwards = !options.go_backwards;
    options.name = name();
    // Values of its own, if they are those of no seed.
    if (!given_kernel_) options.kernel_initializer = {};
    if (!given_recurrent_) options.recurrent_initializer = {};
    return std::make_unique<CellLayer>(make_cell_, units_, options, made_at_);
  }

 protected:
  Output Call(Pass& pass, std::span<const Output> inputs, Where where) override;

 private:
  bool Check(Pass& pass, std::span<const Output> inputs, Where where);
  bool MakeWeights(Pass& pass, int64_t features, Where where);
  std::vector<Output> InitialStates(Pass& pass, const Output& x, std::span<const Output> given,
                                    Where where);
  Output Project(Pass& pass, const Output& x);
  Output Drop(Pass& pass, double rate, const Output& shape);
  Carried Step(const Scope& s, const Output& x, const Output& mask, const Output& dropped,
               const Carried& before) const;
  Walked Unrolled(const Scope& s, const Steps& steps) const;
  Walked Looped(const Scope& s, const Steps& steps) const;
  Output ZeroWhereMasked(const Scope& s, const Output& y, const Output& mask) const;

  const MakeCell make_cell_;
  const int64_t units_;
  RecurrentOptions o_;
  const std::unique_ptr<RecurrentCell> cell_;
  const Where made_at_;
  bool given_kernel_ = false, given_recurrent_ = false;
  RecurrentCell::Weights weights_;  // of the call at work
  Output input_bias_;
};

bool CellLayer::Check(Pass& pass, std::span<const Output> inputs, Where where) {
  const std::size_t states = cell_->states();
  std::string wrong;
  if (inputs.size() != 1 && inputs.size() != 1 + states) {
    wrong = StrCat("takes a sequence and, if any, ", states, " initial states, not ", inputs.size(),
                   " inputs");
  } else if (units_ <= 0) {
    wrong = StrCat("units must be positive, not ", units_);
  } else if (!(o_.dropout >= 0 && o_.dropout < 1 && o_.recurrent_dropout >= 0 &&
               o_.recurrent_dropout < 1)) {
    wrong = StrCat("dropout and recurrent_dropout lie between 0 and 1, and are ", o_.dropout,
                   " and ", o_.recurrent_dropout);
  }
  if (!wrong.empty()) {
    pass.scope().RecordError(errors::InvalidArgument("layer ", Description(), ": ", wrong), where);
    return false;
  }
  const PartialShape shape = inputs[0].shape();
  if (shape.rank() != 3 || shape.dim(2) < 0) {
    RecordBadInput(pass, inputs[0], "sequences [batch, steps, features] of known features", where);
    return false;
  }
  if (o_.stateful && shape.dim(0) < 0) {
    RecordBadInput(pass, inputs[0], "batches of known size, since it is stateful", where);
    return false;
  }
  return true;
}

bool CellLayer::MakeWeights(Pass& pass, int64_t features, Where where) {
  const int64_t width = units_ * cell_->gates();
  const auto named = [&](const char* name) { return StrCat(cell_->prefix(), "/", name); };
  const Variable kernel =
      Weight(pass, named("kernel"), Shape({features, width}),
             {o_.kernel_initializer, o_.kernel_regularizer, o_.kernel_constraint}, where);
  const Variable recurrent =
      Weight(pass, named("recurrent_kernel"), Shape({units_, width}),
             {o_.recurrent_initializer, o_.recurrent_regularizer, o_.recurrent_constraint}, where);
  weights_ = {kernel.read, recurrent.read, Output()};
  input_bias_ = Output();
  if (o_.use_bias) {
    const bool two = cell_->has_two_biases();
    const Variable bias =
        Weight(pass, named("bias"), two ? Shape({2, width}) : Shape({width}),
               {cell_->BiasInitializer(), o_.bias_regularizer, o_.bias_constraint}, where);
    if (bias.handle.valid() && two) {
      const std::vector<Output> rows = ops::Unpack(pass.scope(), bias.read, 2);
      if (rows.size() == 2) {
        input_bias_ = rows[0];
        weights_.bias = rows[1];
      }
    } else {
      input_bias_ = bias.read;
    }
  }
  return pass.scope().status().ok();
}

std::vector<Output> CellLayer::InitialStates(Pass& pass, const Output& x,
                                             std::span<const Output> given, Where where) {
  const Scope& s = pass.scope();
  if (!given.empty()) {
    for (const Output& state : given) {
      if (state.shape().IsCompatibleWith(PartialShape({-1, units_}))) continue;
      RecordBadInput(pass, state, StrCat("initial states [batch, ", units_, "]"), where);
    }
    return {given.begin(), given.end()};
  }
  std::vector<Output> states;
  const std::vector<int64_t> dims = {x.shape().dim(0), units_};
  if (!o_.stateful) {
    const Output zeros = ops::Fill(s, ShapeLike(s, x, dims), Zero(pass.compute_type()));
    states.assign(cell_->states(), zeros);
    return states;
  }
  kept_.clear();
  for (int i = 0; i < cell_->states(); ++i) {
    const Variable kept = State(pass, i == 0 ? "rnn_state" : StrCat("rnn_state_", i), Shape(dims),
                                initializers::Zeros(), where);
    if (!kept.handle.valid()) return {};
    kept_.push_back(kept);
    // A copy: gradients look at it after the variable has changed.
    const Output none = ops::Fill(s, Ints(dims), 0.0f);
    states.push_back(CastTo(s, ops::AddN(s, {kept.read, none}), pass.compute_type()));
  }
  return states;
}

// All steps at once: one product of matrices.
Output CellLayer::Project(Pass& pass, const Output& x) {
  const Scope& s = pass.scope();
  const int64_t features = DimOf(x, 2), width = units_ * cell_->gates();
  const Output rows = ReshapeTo(s, x, std::vector<int64_t>{-1, features});
  Output y = ops::MatMul(s, rows, weights_.kernel);
  if (input_bias_.valid()) y = ops::BiasAdd(s, y, input_bias_);
  return ReshapeLike(s, y, x, std::vector<int64_t>{DimOf(x, 0), DimOf(x, 1), width});
}

Output CellLayer::Drop(Pass& pass, double rate, const Output& shape) {
  const Scope& s = pass.scope();
  const Expr drawn(
      s, ops::StatelessRandomUniform(s, shape, NextSeed(pass, o_.seed), {.dtype = kFloat}));
  const DataType type = pass.compute_type();
  return (drawn >= static_cast<float>(rate)).Cast(type) * static_cast<float>(1 / (1 - rate));
}

Carried CellLayer::Step(const Scope& s, const Output& x, const Output& mask, const Output& dropped,
                        const Carried& before) const {
  const Output h = dropped.valid() ? ops::Mul(s, before.states[0], dropped) : before.states[0];
  Carried after;
  after.states = cell_->Step(s, weights_, x, h, before.states);
  if (after.states.empty()) return after;
  after.output = after.states[0];
  if (!mask.valid()) return after;
  after.output = ops::SelectV2(s, mask, after.output, before.output);
  for (std::size_t i = 0; i < after.states.size(); ++i) {
    after.states[i] = ops::SelectV2(s, mask, after.states[i], before.states[i]);
  }
  return after;
}

Walked CellLayer::Unrolled(const Scope& s, const Steps& steps) const {
  const auto unpack = [&](const Output& x) {
    return x.valid() ? ops::Unpack(s, x, steps.count) : std::vector<Output>(steps.count);
  };
  const std::vector<Output> inputs = unpack(steps.inputs), masks = unpack(steps.mask);
  if (!s.status().ok()) return {};
  Carried now{ops::ZerosLike(s, steps.initial[0]), steps.initial};
  std::vector<Input> outputs;
  for (int64_t i = 0; i < steps.count; ++i) {
    const int64_t t = o_.go_backwards ? steps.count - 1 - i : i;
    now = Step(s, inputs[t], masks[t], steps.dropped, now);
    if (!s.status().ok()) return {};
    outputs.emplace_back(now.output);
  }
  Walked walked{.last = now.output, .states = now.states};
  if (o_.return_sequences) walked.all = ops::Pack(s, outputs);
  return walked;
}

Walked CellLayer::Looped(const Scope& s, const Steps& steps) const {
  const Output count = RunDim(s, steps.inputs, 0);
  const Output all = ops::Range(s, 0, count, 1);
  const DataType type = steps.inputs.dtype();
  const auto array_of = [&](const Output& x) {
    const auto array = ops::TensorArrayV3(s, count, x.dtype());
    const Output flow = ops::TensorArrayScatterV3(s, array.handle, all, x, array.flow);
    return std::pair(array.handle, flow);
  };
  const auto inputs = array_of(steps.inputs);
  const bool masked = steps.mask.valid();
  const auto masks = masked ? array_of(steps.mask) : inputs;
  const auto outputs =
      o_.return_sequences ? ops::TensorArrayV3(s, count, type) : ops::TensorArrayV3Outputs{};
  // The step, the output (where masks may hold it back), the states, what was written.
  std::vector<Output> variables = {Constant(s, Tensor::Scalar<int32_t>(0)),
                                   ops::ZerosLike(s, steps.initial[0])};
  variables.insert(variables.end(), steps.initial.begin(), steps.initial.end());
  if (o_.return_sequences) variables.push_back(outputs.flow);
  const PartialShape row({steps.inputs.shape().dim(1), steps.inputs.shape().dim(2)});
  const auto body = [&](const Scope& in, std::span<const Output> v) -> std::vector<Output> {
    const Output t = o_.go_backwards ? ops::Sub(in, ops::Sub(in, count, 1), v[0]) : v[0];
    const Output x =
        ops::EnsureShape(in, ops::TensorArrayReadV3(in, inputs.first, t, inputs.second, type), row);
    const Output mask =
        masked ? ops::TensorArrayReadV3(in, masks.first, t, masks.second, kBool) : Output();
    const Carried before{v[1], {v.begin() + 2, v.begin() + 2 + cell_->states()}};
    const Carried after = Step(in, x, mask, steps.dropped, before);
    if (after.states.empty()) return {};
    std::vector<Output> next = {ops::Add(in, v[0], 1), after.output};
    next.insert(next.end(), after.states.begin(), after.states.end());
    if (o_.return_sequences) {
      next.push_back(ops::TensorArrayWriteV3(in, outputs.handle, v[0], after.output, v.back()));
    }
    return next;
  };
  const std::vector<Output> ends = WhileLoop(
      s, variables,
      [&](const Scope& in, std::span<const Output> v) { return ops::Less(in, v[0], count); }, body);
  if (ends.size() != variables.size()) return {};
  Walked walked{.last = ends[1], .states = {ends.begin() + 2, ends.begin() + 2 + cell_->states()}};
  if (o_.return_sequences) {
    walked.all = ops::TensorArrayGatherV3(s, outputs.handle, all, ends.back(), type);
  }
  return walked;
}

Output CellLayer::ZeroWhereMasked(const Scope& s, const Output& y, const Output& mask) const {
  return ops::Mul(s, y, ops::Cast(s, mask, y.dtype()));
}

Output CellLayer::Call(Pass& pass, std::span<const Output> inputs, Where where) {
  if (!Check(pass, inputs, where)) return Output();
  const Scope& s = pass.scope();
  Output x = CastTo(s, inputs[0], pass.compute_type());
  if (!MakeWeights(pass, DimOf(x, 2), where)) return Output();
  const PartialShape state({DimOf(x, 0), units_});
  Steps steps{.count = DimOf(x, 1)};
  steps.initial = InitialStates(pass, x, inputs.subspan(1), where);
  if (!s.status().ok()) return Output();
  if (pass.training() && o_.dropout > 0) {
    // The same for all steps.
    const Output shape = ShapeLike(s, x, std::vector<int64_t>{DimOf(x, 0), 1, DimOf(x, 2)});
    x = ops::Mul(s, x, Drop(pass, o_.dropout, shape));
  }
  if (pass.training() && o_.recurrent_dropout > 0) {
    steps.dropped = Drop(pass, o_.recurrent_dropout, ops::Shape(s, steps.initial[0]));
  }
  const Tensor swapped = Ints(std::vector<int64_t>{1, 0, 2});
  steps.inputs = Project(pass, ops::Transpose(s, x, swapped));
  if (pass.mask().valid()) {
    steps.mask = ops::Transpose(s, ops::ExpandDims(s, pass.mask(), -1), swapped);
  }
  const bool unroll = steps.count > 0 && (o_.unroll || steps.count <= kUnrolled);
  Walked walked = unroll ? Unrolled(s, steps) : Looped(s, steps);
  if (!s.status().ok() || walked.states.empty()) return Output();
  final_states_.clear();
  for (const Output& end : walked.states) final_states_.push_back(ops::EnsureShape(s, end, state));
  for (std::size_t i = 0; o_.stateful && i < kept_.size(); ++i) {
    pass.AddUpdate(Assign(s, kept_[i], CastTo(s, final_states_[i], kFloat)));
  }
  const bool zero = o_.zero_output_for_mask && steps.mask.valid();
  if (!o_.return_sequences) {
    pass.set_mask(Output());
    if (zero) {
      const Output counts =
          ops::GatherV2(s, steps.mask,
                        o_.go_backwards ? Constant(s, Tensor::Scalar<int32_t>(0))
                                        : ops::Sub(s, RunDim(s, steps.mask, 0), 1),
                        0);
      walked.last = ZeroWhereMasked(s, walked.last, counts);
    }
    return ops::EnsureShape(s, walked.last, state);
  }
  if (zero) {
    const Output in_order =
        o_.go_backwards ? ops::ReverseV2(s, steps.mask, Ints(std::vector<int64_t>{0})) : steps.mask;
    walked.all = ZeroWhereMasked(s, walked.all, in_order);
  }
  return ops::EnsureShape(s, ops::Transpose(s, walked.all, swapped),
                          PartialShape({DimOf(x, 0), DimOf(x, 1), units_}));
}

}  // namespace

Operation RecurrentLayer::ResetStates(const Scope& outer, Where where) const {
  const Scope s = outer.CalledFrom(where);
  std::vector<Operation> resets;
  for (const Variable& kept : kept_) {
    const Output zeros = ops::ZerosLike(s.ColocateWith(kept.handle), kept.read);
    resets.push_back(Assign(s, kept, zeros));
  }
  return resets.empty() ? Operation() : Group(s.WithOpName("reset_states"), resets);
}

RecurrentPtr SimpleRnn(int64_t units, const RecurrentOptions& options, Where where) {
  return std::make_unique<CellLayer>(SimpleRnnCell, units, options, where);
}
RecurrentPtr Lstm(int64_t units, const RecurrentOptions& options, Where where) {
  return std::make_unique<CellLayer>(LstmCell, units, options, where);
}
RecurrentPtr Gru(int64_t units, const RecurrentOptions& options, Where where) {
  return std::make_unique<CellLayer>(GruCell, units, options, where);
}

}  // namespace millrace::layers
