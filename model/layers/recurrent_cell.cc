// SPDX-License-Identifier: Apache-2.0
#include "model/layers/recurrent_cell.h"

#include "model/layers/layer_util.h"

namespace millrace::layers {
namespace {

// Sums of values of one shape: unlike Add's, their gradient need not find out what was broadcast.
Output Sum(const Scope& s, std::initializer_list<Output> values) {
  const std::vector<Input> inputs(values.begin(), values.end());
  return ops::AddN(s, inputs);
}

class Cell : public RecurrentCell {
 public:
  Cell(int64_t units, const RecurrentOptions& options) : units_(units), o_(options) {}
  Initializer BiasInitializer() const override {
    return Or(o_.bias_initializer, initializers::Zeros());
  }

 protected:
  Output Activate(const Scope& s, const Output& x) const { return o_.activation(Expr(s, x)); }
  Output Gate(const Scope& s, const Output& x) const { return o_.recurrent_activation(Expr(s, x)); }

  const int64_t units_;
  const RecurrentOptions o_;
};

class SimpleCell : public Cell {
 public:
  using Cell::Cell;
  const char* layer_kind() const override { return "SimpleRNN"; }
  std::string prefix() const override { return "simple_rnn_cell"; }
  int gates() const override { return 1; }
  std::vector<Output> Step(const Scope& s, const Weights& w, const Output& x, const Output& h,
                           const std::vector<Output>&) const override {
    return {Activate(s, Sum(s, {x, ops::MatMul(s, h, w.recurrent)}))};
  }
};

class LongShortTermCell : public Cell {
 public:
  using Cell::Cell;
  const char* layer_kind() const override { return "LSTM"; }
  std::string prefix() const override { return "lstm_cell"; }
  int gates() const override { return 4; }
  int states() const override { return 2; }

  // Ones for the forget gate, the second of four.
  Initializer BiasInitializer() const override {
    const Initializer all = Cell::BiasInitializer();
    if (!o_.unit_forget_bias) return all;
    return [all, units = units_](const Scope& scope, const Shape&) -> Output {
      const std::vector<Input> parts = {all(scope, Shape({units})),
                                        initializers::Ones()(scope, Shape({units})),
                                        all(scope, Shape({units * 2}))};
      return ops::ConcatV2(scope, parts, 0);
    };
  }

  std::vector<Output> Step(const Scope& s, const Weights& w, const Output& x, const Output& h,
                           const std::vector<Output>& states) const override {
    const Output z = Sum(s, {x, ops::MatMul(s, h, w.recurrent)});
    const std::vector<Output> parts = ops::Split(s, 1, z, 4);
    if (parts.size() != 4) return {};
    const Output in = Gate(s, parts[0]), forget = Gate(s, parts[1]), out = Gate(s, parts[3]);
    const Output carry =
        Sum(s, {ops::Mul(s, forget, states[1]), ops::Mul(s, in, Activate(s, parts[2]))});
    return {ops::Mul(s, out, Activate(s, carry)), carry};
  }
};

class GatedCell : public Cell {
 public:
  using Cell::Cell;
  const char* layer_kind() const override { return "GRU"; }
  std::string prefix() const override { return "gru_cell"; }
  int gates() const override { return 3; }
  bool has_two_biases() const override { return o_.reset_after; }

  std::vector<Output> Step(const Scope& s, const Weights& w, const Output& x, const Output& h,
                           const std::vector<Output>& states) const override {
    const std::vector<Output> from_x = ops::Split(s, 1, x, 3);
    if (from_x.size() != 3) return {};
    Output update, candidate;
    if (o_.reset_after) {
      Output inner = ops::MatMul(s, h, w.recurrent);
      if (w.bias.valid()) inner = ops::BiasAdd(s, inner, w.bias);
      const std::vector<Output> from_h = ops::Split(s, 1, inner, 3);
      update = Gate(s, Sum(s, {from_x[0], from_h[0]}));
      const Output reset = Gate(s, Sum(s, {from_x[1], from_h[1]}));
      candidate = Sum(s, {from_x[2], ops::Mul(s, reset, from_h[2])});
    } else {
      const std::vector<Output> kernels =
          ops::SplitV(s, w.recurrent, Ints(std::vector<int64_t>{2 * units_, units_}), 1, 2);
      const std::vector<Output> from_h = ops::Split(s, 1, ops::MatMul(s, h, kernels[0]), 2);
      update = Gate(s, Sum(s, {from_x[0], from_h[0]}));
      const Output reset = Gate(s, Sum(s, {from_x[1], from_h[1]}));
      candidate = Sum(s, {from_x[2], ops::MatMul(s, ops::Mul(s, reset, h), kernels[1])});
    }
    const Output fresh = Activate(s, candidate);
    const Output kept = ops::Mul(s, update, Sum(s, {states[0], ops::Neg(s, fresh)}));
    return {Sum(s, {fresh, kept})};
  }
};

}  // namespace

std::unique_ptr<RecurrentCell> SimpleRnnCell(int64_t units, const RecurrentOptions& options) {
  return std::make_unique<SimpleCell>(units, options);
}
std::unique_ptr<RecurrentCell> LstmCell(int64_t units, const RecurrentOptions& options) {
  return std::make_unique<LongShortTermCell>(units, options);
}
std::unique_ptr<RecurrentCell> GruCell(int64_t units, const RecurrentOptions& options) {
  return std::make_unique<GatedCell>(units, options);
}

}  // namespace millrace::layers
