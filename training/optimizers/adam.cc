// SPDX-License-Identifier: Apache-2.0
// Keras's optimizers with two moments: Adam and its kin.
#include "training/optimizers/adam_rule.h"

namespace millrace::optimizers {

Expr FirstMoment(const Expr& m, const Expr& g, double beta) { return m + (g - m) * (1 - beta); }
Expr SecondMoment(const Expr& v, const Expr& g, double beta) {
  return v + (g.Square() - v) * (1 - beta);
}

void CheckMoments(double beta_1, double beta_2, double epsilon, OptionChecks* checks) {
  checks->Below("beta_1", beta_1, 0, 1)
      .Below("beta_2", beta_2, 0, 1)
      .AtLeast("epsilon", epsilon, 0);
}

RuleResult AdamStep(const RuleArgs& a, const Expr& rate, double beta_1, double beta_2,
                    double epsilon, bool amsgrad) {
  const Expr scale = rate * (1.0 - a.step.PowerOf(beta_2)).Sqrt() / (1.0 - a.step.PowerOf(beta_1));
  const Expr m = FirstMoment(a.slots[0], a.g, beta_1);
  const Expr v = SecondMoment(a.slots[1], a.g, beta_2);
  std::vector<Expr> slots = {m, v};
  if (amsgrad) slots.push_back(a.slots[2].Max(v));
  return {m * scale / (slots.back().Sqrt() + epsilon), true, slots};
}

namespace {

class AdamRule : public Rule {
 public:
  AdamRule(const AdamOptions& o, std::string name) : o_(o), name_(std::move(name)) {}
  std::string name() const override { return name_; }
  void Check(OptionChecks& checks) const override {
    CheckMoments(o_.beta_1, o_.beta_2, o_.epsilon, &checks);
  }
  std::vector<SlotSpec> Slots(const Variable&) const override {
    std::vector<SlotSpec> slots = {{"momentum"}, {"velocity"}};
    if (o_.amsgrad) slots.push_back({.name = "velocity_hat", .group = 1});
    return slots;
  }
  RuleResult Apply(const RuleArgs& a) const override {
    return AdamStep(a, a.rate, o_.beta_1, o_.beta_2, o_.epsilon, o_.amsgrad);
  }

 private:
  const AdamOptions o_;
  const std::string name_;
};

class AdamaxRule : public Rule {
 public:
  explicit AdamaxRule(const AdamaxOptions& o) : o_(o) {}
  std::string name() const override { return "adamax"; }
  void Check(OptionChecks& checks) const override {
    // The norm is not corrected: it may be kept for ever.
    checks.Below("beta_1", o_.beta_1, 0, 1)
        .Within("beta_2", o_.beta_2, 0, 1)
        .AtLeast("epsilon", o_.epsilon, 0);
  }
  std::vector<SlotSpec> Slots(const Variable&) const override { return {{"momentum"}, {"norm"}}; }
  RuleResult Apply(const RuleArgs& a) const override {
    const Expr m = FirstMoment(a.slots[0], a.g, o_.beta_1);
    const Expr norm = (o_.beta_2 * a.slots[1]).Max(a.g.Abs());
    const Expr correction = 1.0 - a.step.PowerOf(o_.beta_1);
    return {a.rate * m / (correction * (norm + o_.epsilon)), true, {m, norm}};
  }

 private:
  const AdamaxOptions o_;
};

class NadamRule : public Rule {
 public:
  explicit NadamRule(const NadamOptions& o) : o_(o) {}
  std::string name() const override { return "nadam"; }
  void Check(OptionChecks& checks) const override {
    CheckMoments(o_.beta_1, o_.beta_2, o_.epsilon, &checks);
  }
  std::vector<SlotSpec> Slots(const Variable&) const override {
    return {{"momentum"}, {"velocity"}};
  }
  // The product of all momenta up to now.
  std::vector<float> Globals() const override { return {1}; }
  Expr NextGlobal(int, const Expr& value, const Expr& step) const override {
    return value * Momentum(step);
  }
  RuleResult Apply(const RuleArgs& a) const override {
    const Expr now = Momentum(a.step), next = Momentum(a.step + 1.0);
    const Expr& product = a.globals[0];
    const Expr m = FirstMoment(a.slots[0], a.g, o_.beta_1);
    const Expr v = SecondMoment(a.slots[1], a.g, o_.beta_2);
    const Expr m_hat = next * m / (1.0 - product * next) + (1.0 - now) * a.g / (1.0 - product);
    const Expr v_hat = v / (1.0 - a.step.PowerOf(o_.beta_2));
    return {m_hat * a.rate / (v_hat.Sqrt() + o_.epsilon), true, {m, v}};
  }

 private:
  Expr Momentum(const Expr& step) const { return o_.beta_1 * (1.0 - 0.5 * step.PowerOf(0.96)); }
  const NadamOptions o_;
};

class LambRule : public Rule {
 public:
  explicit LambRule(const LambOptions& o) : o_(o) {}
  std::string name() const override { return "lamb"; }
  void Check(OptionChecks& checks) const override {
    CheckMoments(o_.beta_1, o_.beta_2, o_.epsilon, &checks);
  }
  std::vector<SlotSpec> Slots(const Variable&) const override {
    return {{"momentum"}, {"velocity"}};
  }
  RuleResult Apply(const RuleArgs& a) const override {
    const Expr m = FirstMoment(a.slots[0], a.g, o_.beta_1);
    const Expr v = SecondMoment(a.slots[1], a.g, o_.beta_2);
    const Expr m_hat = m / (1.0 - a.step.PowerOf(o_.beta_1));
    const Expr v_hat = v / (1.0 - a.step.PowerOf(o_.beta_2));
    const Expr update = m_hat / (v_hat.Sqrt() + o_.epsilon);
    const Expr w_norm = a.w.Square().Sum().Sqrt(), u_norm = update.Square().Sum().Sqrt();
    const Expr both = (w_norm > 0.0).And(u_norm > 0.0);
    const Expr ratio = both.Select(w_norm.DivNoNan(u_norm), ops::OnesLike(a.scope, w_norm));
    return {ratio * a.rate * update, true, {m, v}};
  }

 private:
  const LambOptions o_;
};

// The weight is where gradients are taken (y); the slot "momentum" is z.
class ScheduleFreeRule : public Rule {
 public:
  explicit ScheduleFreeRule(const ScheduleFreeAdamWOptions& o) : o_(o) {}
  std::string name() const override { return "schedule_free_adam_w"; }
  void Check(OptionChecks& checks) const override {
    // What was averaged is found again by dividing by beta_1.
    checks.Above("beta_1", o_.beta_1, 0)
        .Within("beta_1", o_.beta_1, 0, 1)
        .Below("beta_2", o_.beta_2, 0, 1)
        .AtLeast("epsilon", o_.epsilon, 0)
        .AtLeast("warmup_steps", static_cast<double>(o_.warmup_steps), 0);
  }
  std::vector<SlotSpec> Slots(const Variable&) const override {
    return {{.name = "momentum", .like_weight = true}, {"velocity"}};
  }
  RuleResult Apply(const RuleArgs& a) const override {
    Expr rate = a.rate;
    if (o_.warmup_steps > 0) {
      rate = rate * (a.step / static_cast<double>(o_.warmup_steps)).Min(1.0);
    }
    const Expr v = SecondMoment(a.slots[1], a.g, o_.beta_2);
    const Expr denominator = (v / (1.0 - a.step.PowerOf(o_.beta_2))).Sqrt() + o_.epsilon;
    const Expr& z_old = a.slots[0];
    const Expr z = z_old - rate * a.g / denominator;
    // Keras takes the new z here, where Defazio et al. take the old one: so do we.
    const Expr x_old = (a.w - (1 - o_.beta_1) * z) / o_.beta_1;
    const Expr part = 1.0 / a.step;
    const Expr x = (1.0 - part) * x_old + part * z;
    return {(1 - o_.beta_1) * z + o_.beta_1 * x, false, {z, v}};
  }

 private:
  const ScheduleFreeAdamWOptions o_;
};

}  // namespace

std::unique_ptr<KerasOptimizer> Adam(const AdamOptions& options) {
  return MakeKerasOptimizer(std::make_unique<AdamRule>(options, "adam"), options.learning_rate,
                            options.common);
}
std::unique_ptr<KerasOptimizer> AdamW(const AdamOptions& options) {
  CommonOptions common = options.common;
  if (!common.weight_decay) common.weight_decay = 0.004;
  return MakeKerasOptimizer(std::make_unique<AdamRule>(options, "adam_w"), options.learning_rate,
                            common);
}
std::unique_ptr<KerasOptimizer> Adamax(const AdamaxOptions& options) {
  return MakeKerasOptimizer(std::make_unique<AdamaxRule>(options), options.learning_rate,
                            options.common);
}
std::unique_ptr<KerasOptimizer> Nadam(const NadamOptions& options) {
  return MakeKerasOptimizer(std::make_unique<NadamRule>(options), options.learning_rate,
                            options.common);
}
std::unique_ptr<KerasOptimizer> Lamb(const LambOptions& options) {
  return MakeKerasOptimizer(std::make_unique<LambRule>(options), options.learning_rate,
                            options.common);
}
std::unique_ptr<KerasOptimizer> ScheduleFreeAdamW(const ScheduleFreeAdamWOptions& options) {
  return MakeKerasOptimizer(std::make_unique<ScheduleFreeRule>(options), options.learning_rate,
                            options.common);
}

}  // namespace millrace::optimizers
