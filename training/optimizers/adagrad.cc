// SPDX-License-Identifier: Apache-2.0
// Keras's optimizers that divide by what the squares of gradients were.
#include "training/optimizers/keras_optimizer.h"

namespace millrace::optimizers {
namespace {

class AdagradRule : public Rule {
 public:
  explicit AdagradRule(const AdagradOptions& o) : o_(o) {}
  std::string name() const override { return "adagrad"; }
  void Check(OptionChecks& checks) const override {
    checks.AtLeast("initial_accumulator_value", o_.initial_accumulator_value, 0)
        .AtLeast("epsilon", o_.epsilon, 0);
  }
  std::vector<SlotSpec> Slots(const Variable&) const override {
    return {{"accumulator", static_cast<float>(o_.initial_accumulator_value)}};
  }
  RuleResult Apply(const RuleArgs& a) const override {
    const Expr sum = a.slots[0] + a.g.Square();
    return {a.rate * a.g / (sum + o_.epsilon).Sqrt(), true, {sum}};
  }
  std::optional<std::vector<double>> IdleRows() const override { return std::vector<double>{1}; }

 private:
  const AdagradOptions o_;
};

class AdadeltaRule : public Rule {
 public:
  explicit AdadeltaRule(const AdadeltaOptions& o) : o_(o) {}
  std::string name() const override { return "adadelta"; }
  void Check(OptionChecks& checks) const override {
    checks.Within("rho", o_.rho, 0, 1).AtLeast("epsilon", o_.epsilon, 0);
  }
  std::vector<SlotSpec> Slots(const Variable&) const override {
    return {{"accumulated_grad"}, {"accumulated_delta_var"}};
  }
  RuleResult Apply(const RuleArgs& a) const override {
    const Expr squares = o_.rho * a.slots[0] + (1 - o_.rho) * a.g.Square();
    const Expr delta = (a.slots[1] + o_.epsilon).Sqrt() * a.g / (squares + o_.epsilon).Sqrt();
    const Expr deltas = o_.rho * a.slots[1] + (1 - o_.rho) * delta.Square();
    return {a.rate * delta, true, {squares, deltas}};
  }
  std::optional<std::vector<double>> IdleRows() const override {
    return std::vector<double>{o_.rho, o_.rho};
  }

 private:
  const AdadeltaOptions o_;
};

class RmsPropRule : public Rule {
 public:
  explicit RmsPropRule(const RmsPropOptions& o) : o_(o) {}
  std::string name() const override { return "rm_sprop"; }  // Keras's file names say so
  void Check(OptionChecks& checks) const override {
    checks.Within("rho", o_.rho, 0, 1)
        .AtLeast("momentum", o_.momentum, 0)
        .AtLeast("epsilon", o_.epsilon, 0);
  }
  std::vector<SlotSpec> Slots(const Variable&) const override {
    std::vector<SlotSpec> slots = {{"velocity"}};
    if (o_.momentum > 0) slots.push_back({.name = "momentum", .group = 1});
    if (o_.centered) slots.push_back({.name = "average_gradient", .group = 2});
    return slots;
  }
  RuleResult Apply(const RuleArgs& a) const override {
    const Expr v = o_.rho * a.slots[0] + (1 - o_.rho) * a.g.Square();
    std::vector<Expr> slots = {v};
    Expr denominator = v + o_.epsilon;
    std::optional<Expr> mean;
    if (o_.centered) {
      mean = o_.rho * a.slots.back() + (1 - o_.rho) * a.g;
      denominator = v - mean->Square() + o_.epsilon;
    }
    Expr change = a.rate * a.g / denominator.Sqrt();
    if (o_.momentum > 0) {
      change = o_.momentum * a.slots[1] + change;
      slots.push_back(change);
    }
    if (mean) slots.push_back(*mean);
    return {change, true, slots};
  }
  std::optional<std::vector<double>> IdleRows() const override {
    if (o_.momentum > 0) return std::nullopt;
    return std::vector<double>(o_.centered ? 2 : 1, o_.rho);
  }

 private:
  const RmsPropOptions o_;
};

class FtrlRule : public Rule {
 public:
  explicit FtrlRule(const FtrlOptions& o) : o_(o) {}
  std::string name() const override { return "ftrl"; }
  void Check(OptionChecks& checks) const override {
    // It divides by the rate.
    if (o_.learning_rate.is_number()) checks.Above("learning_rate", o_.learning_rate.number(), 0);
    checks.AtMost("learning_rate_power", o_.learning_rate_power, 0)
        .AtLeast("initial_accumulator_value", o_.initial_accumulator_value, 0)
        .AtLeast("l1_regularization_strength", o_.l1_regularization_strength, 0)
        .AtLeast("l2_regularization_strength", o_.l2_regularization_strength, 0)
        .AtLeast("l2_shrinkage_regularization_strength", o_.l2_shrinkage_regularization_strength, 0)
        .AtLeast("beta", o_.beta, 0);
  }
  std::vector<SlotSpec> Slots(const Variable&) const override {
    return {{"accumulator", static_cast<float>(o_.initial_accumulator_value)}, {"linear"}};
  }
  RuleResult Apply(const RuleArgs& a) const override {
    const double l1 = o_.l1_regularization_strength;
    const Expr l2 = o_.l2_regularization_strength + o_.beta / (2.0 * a.rate);
    const Expr gradient = a.g + 2 * o_.l2_shrinkage_regularization_strength * a.w;
    const Expr sum = a.slots[0] + a.g.Square();
    const Expr power = sum.Pow(-o_.learning_rate_power);
    const Expr linear =
        a.slots[1] + (gradient - (power - a.slots[0].Pow(-o_.learning_rate_power)) / a.rate * a.w);
    const Expr quadratic = power / a.rate + 2.0 * l2;
    return {(linear.Clip(-l1, l1) - linear) / quadratic, false, {sum, linear}};
  }

 private:
  const FtrlOptions o_;
};

class AdafactorRule : public Rule {
 public:
  explicit AdafactorRule(const AdafactorOptions& o) : o_(o) {}
  std::string name() const override { return "adafactor"; }
  void Check(OptionChecks& checks) const override {
    // At the first step 1 - step^beta_2_decay is 0, and must not become negative.
    checks.AtMost("beta_2_decay", o_.beta_2_decay, 0)
        .AtLeast("epsilon_1", o_.epsilon_1, 0)
        .AtLeast("epsilon_2", o_.epsilon_2, 0)
        .Above("clip_threshold", o_.clip_threshold, 0);
  }
  // Means over the last and over the last but one axis; numbers nobody uses where there are none.
  std::vector<SlotSpec> Slots(const Variable& v) const override {
    const Shape shape = *v.shape().AsShape();
    SlotSpec row{.name = "r", .shape = Shape({})}, column{.name = "c", .shape = Shape({})};
    if (shape.rank() < 2) {
      row.integer = column.integer = true;
    } else {
      std::vector<int64_t> dims(shape.dims().begin(), shape.dims().end());
      const int64_t last = dims.back();
      dims.pop_back();
      row.shape = Shape(dims);
      dims.back() = last;
      column.shape = Shape(dims);
    }
    return {row, column, {"velocity"}};
  }
  RuleResult Apply(const RuleArgs& a) const override {
    const auto rms = [](const Expr& x) { return x.Square().Mean().Sqrt(); };
    const Expr root = 1.0 / a.step.Sqrt();
    Expr rate = a.rate;
    if (o_.relative_step && !o_.learning_rate.is_schedule()) rate = rate.Min(root);
    const Expr alpha = rms(a.w).Max(o_.epsilon_2) * rate.Min(root);
    const Expr squares = a.g.Square() + o_.epsilon_1;
    const Expr beta = 1.0 - a.step.Pow(o_.beta_2_decay);
    const auto mean = [&](const Expr& before, const Expr& now) {
      return beta * before + (1.0 - beta) * now;
    };
    Expr r = a.slots[0], c = a.slots[1], v = a.slots[2];
    if (a.variable.shape().rank() >= 2) {
      r = mean(r, squares.Mean({-1}));
      c = mean(c, squares.Mean({-2}));
      v = (r / r.Mean({-1}, /*keep_dims=*/true)).ExpandDims(-1) * c.ExpandDims(-2);
    } else {
      v = mean(v, squares);
    }
    const Expr u = a.g / v.Sqrt();
    const Expr clipped = u / (rms(u) / o_.clip_threshold).Max(1.0);
    return {alpha * clipped, true, {r, c, v}};
  }

 private:
  const AdafactorOptions o_;
};

}  // namespace

std::unique_ptr<KerasOptimizer> Adagrad(const AdagradOptions& options) {
  return MakeKerasOptimizer(std::make_unique<AdagradRule>(options), options.learning_rate,
                            options.common);
}
std::unique_ptr<KerasOptimizer> Adadelta(const AdadeltaOptions& options) {
  return MakeKerasOptimizer(std::make_unique<AdadeltaRule>(options), options.learning_rate,
                            options.common);
}
std::unique_ptr<KerasOptimizer> RmsProp(const RmsPropOptions& options) {
  return MakeKerasOptimizer(std::make_unique<RmsPropRule>(options), options.learning_rate,
                            options.common);
}
std::unique_ptr<KerasOptimizer> Ftrl(const FtrlOptions& options) {
  return MakeKerasOptimizer(std::make_unique<FtrlRule>(options), options.learning_rate,
                            options.common);
}
std::unique_ptr<KerasOptimizer> Adafactor(const AdafactorOptions& options) {
  return MakeKerasOptimizer(std::make_unique<AdafactorRule>(options), options.learning_rate,
                            options.common);
}

}  // namespace millrace::optimizers
