// SPDX-License-Identifier: Apache-2.0
// Keras's Muon: matrices move along an orthogonal matrix near the gradient's momentum.
#include <cmath>
#include <regex>

#include "training/optimizers/adam_rule.h"

namespace millrace::optimizers {
namespace {

class MuonRule : public Rule {
 public:
  explicit MuonRule(const MuonOptions& o) : o_(o) {}
  std::string name() const override { return "muon"; }
  void Check(OptionChecks& checks) const override {
    checks.Below("adam_beta_1", o_.adam_beta_1, 0, 1)
        .Below("adam_beta_2", o_.adam_beta_2, 0, 1)
        .AtLeast("epsilon", o_.epsilon, 0)
        .Finite("weight_decay", o_.weight_decay)
        .Finite("adam_weight_decay", o_.adam_weight_decay)
        .Patterns("exclude_layers", o_.exclude_layers)
        .Finite("muon_a", o_.muon_a)
        .Finite("muon_b", o_.muon_b)
        .Finite("muon_c", o_.muon_c)
        .Finite("adam_lr_ratio", o_.adam_lr_ratio)
        .Within("momentum", o_.momentum, 0, 1)
        .AtLeast("ns_steps", o_.ns_steps, 0)
        .Finite("rms_rate", o_.rms_rate);
  }
  std::vector<SlotSpec> Slots(const Variable& v) const override {
    std::vector<SlotSpec> slots = {{"momentum"}};
    if (UsesAdam(v)) slots.push_back({"velocity"});
    return slots;
  }
  std::optional<double> WeightDecay(const Variable& v, std::optional<double>) const override {
    return UsesAdam(v) ? o_.adam_weight_decay : o_.weight_decay;
  }
  RuleResult Apply(const RuleArgs& a) const override {
    if (UsesAdam(a.variable)) {
      return AdamStep(a, a.rate * o_.adam_lr_ratio, o_.adam_beta_1, o_.adam_beta_2, o_.epsilon,
                      /*amsgrad=*/false);
    }
    const Expr m = a.slots[0] + (a.g + a.slots[0] * (o_.momentum - 1));
    const Expr g = o_.nesterov ? a.g + o_.momentum * m : m;
    const Shape shape = *a.variable.shape().AsShape();
    Expr change = a.rate * Orthogonal(g, shape.dim(0) > shape.dim(1));
    if (o_.rms_rate) {
      change = change * std::sqrt(static_cast<double>(std::max(shape.dim(0), shape.dim(1)))) *
               *o_.rms_rate;
    }
    return {change, true, {m}};
  }

 private:
  bool UsesAdam(const Variable& v) const {
    if (v.shape().rank() != 2) return true;
    if (o_.exclude_embeddings && v.name().find("embedding") != std::string::npos) return true;
    for (const std::string& layer : o_.exclude_layers) {
      if (std::regex_search(v.name(), std::regex(layer))) return true;
    }
    return false;
  }
  // Newton and Schulz's iteration, on the side on which it is smaller.
  Expr Orthogonal(const Expr& g, bool tall) const {
    const Tensor swap = Tensor::FromValues<int32_t>({1, 0});
    Expr x = tall ? g.Transpose(swap) : g;
    x = x / (x.Square().Sum({}, /*keep_dims=*/true).Sqrt() + 1e-7);
    for (int i = 0; i < o_.ns_steps; ++i) {
      const Expr square = x.MatMul(x.Transpose(swap));
      const Expr even = o_.muon_b * square + (o_.muon_c * square).MatMul(square);
      x = o_.muon_a * x + even.MatMul(x);
    }
    return tall ? x.Transpose(swap) : x;
  }
  const MuonOptions o_;
};

}  // namespace

std::unique_ptr<KerasOptimizer> Muon(const MuonOptions& options) {
  return MakeKerasOptimizer(std::make_unique<MuonRule>(options), options.learning_rate,
                            options.common);
}

}  // namespace millrace::optimizers
