// SPDX-License-Identifier: Apache-2.0
// Keras's optimizers without a second moment: SGD, Lion.
#include "training/optimizers/keras_optimizer.h"

namespace millrace::optimizers {
namespace {

class SgdRule : public Rule {
 public:
  explicit SgdRule(const SgdOptions& o) : o_(o) {}
  std::string name() const override { return "sgd"; }
  void Check(OptionChecks& checks) const override { checks.Within("momentum", o_.momentum, 0, 1); }
  std::vector<SlotSpec> Slots(const Variable&) const override {
    if (o_.momentum == 0) return {};
    return {{"momentum"}};
  }
  RuleResult Apply(const RuleArgs& a) const override {
    if (o_.momentum == 0) return {a.rate * a.g};
    const Expr m = o_.momentum * a.slots[0] - a.rate * a.g;
    if (o_.nesterov) return {a.rate * a.g - o_.momentum * m, true, {m}};
    return {-m, true, {m}};
  }
  std::optional<std::vector<double>> IdleRows() const override {
    if (o_.momentum == 0) return std::vector<double>();
    return std::nullopt;
  }

 private:
  const SgdOptions o_;
};

class LionRule : public Rule {
 public:
  explicit LionRule(const LionOptions& o) : o_(o) {}
  std::string name() const override { return "lion"; }
  void Check(OptionChecks& checks) const override {
    // Without beta_1 it would be the descent along signs.
    checks.Above("beta_1", o_.beta_1, 0)
        .Within("beta_1", o_.beta_1, 0, 1)
        .Within("beta_2", o_.beta_2, 0, 1);
  }
  std::vector<SlotSpec> Slots(const Variable&) const override { return {{"momentum"}}; }
  RuleResult Apply(const RuleArgs& a) const override {
    const Expr& m = a.slots[0];
    const Expr direction = (m * o_.beta_1 + a.g * (1 - o_.beta_1)).Sign();
    return {a.rate * direction, true, {m * o_.beta_2 + a.g * (1 - o_.beta_2)}};
  }

 private:
  const LionOptions o_;
};

}  // namespace

std::unique_ptr<KerasOptimizer> Sgd(const SgdOptions& options) {
  return MakeKerasOptimizer(std::make_unique<SgdRule>(options), options.learning_rate,
                            options.common);
}
std::unique_ptr<KerasOptimizer> Lion(const LionOptions& options) {
  return MakeKerasOptimizer(std::make_unique<LionRule>(options), options.learning_rate,
                            options.common);
}

}  // namespace millrace::optimizers
