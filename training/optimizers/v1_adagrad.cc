// SPDX-License-Identifier: Apache-2.0
// Optimizers that divide by the root of a sum or mean of squares.
#include "millrace/math.h"
#include "training/optimizers/slot_optimizer.h"

namespace millrace {
namespace {

class AdagradOptimizer : public SlotOptimizer {
 public:
  explicit AdagradOptimizer(const AdagradOptions& o)
      : SlotOptimizer("Adagrad", o.learning_rate, {o.initial_accumulator}),
        initial_accumulator_(o.initial_accumulator) {}

 private:
  void Check(OptionChecks& checks, const LearningRate&) const override {
    checks.Above("initial_accumulator", initial_accumulator_, 0);
  }
  Operation Update(const SlotUpdate& u) override {
    if (u.resource()) {
      return ops::ResourceApplyAdagrad(u.update, u.var(), u.slot(0), u.rate, u.grad());
    }
    return ops::ApplyAdagrad(u.update, u.var(), u.slot(0), u.rate, u.grad());
  }
  Operation SparseUpdate(const SlotUpdate& u) override {
    if (u.resource()) {
      return ops::ResourceSparseApplyAdagrad(u.update, u.var(), u.slot(0), u.rate, u.grad(),
                                             u.indices());
    }
    return ops::SparseApplyAdagrad(u.update, u.var(), u.slot(0), u.rate, u.grad(), u.indices());
  }
  const float initial_accumulator_;
};

class ProximalAdagradOptimizer : public SlotOptimizer {
 public:
  explicit ProximalAdagradOptimizer(const ProximalAdagradOptions& o)
      : SlotOptimizer("ProximalAdagrad", o.learning_rate, {o.initial_accumulator}), o_(o) {}

 private:
  void Check(OptionChecks& checks, const LearningRate&) const override {
    checks.Above("initial_accumulator", o_.initial_accumulator, 0)
        .AtLeast("l1", o_.l1, 0)
        .AtLeast("l2", o_.l2, 0);
  }
  Operation Update(const SlotUpdate& u) override {
    if (u.resource()) {
      return ops::ResourceApplyProximalAdagrad(u.update, u.var(), u.slot(0), u.rate, o_.l1, o_.l2,
                                               u.grad());
    }
    return ops::ApplyProximalAdagrad(u.update, u.var(), u.slot(0), u.rate, o_.l1, o_.l2, u.grad());
  }
  Operation SparseUpdate(const SlotUpdate& u) override {
    if (u.resource()) {
      return ops::ResourceSparseApplyProximalAdagrad(u.update, u.var(), u.slot(0), u.rate, o_.l1,
                                                     o_.l2, u.grad(), u.indices());
    }
    return ops::SparseApplyProximalAdagrad(u.update, u.var(), u.slot(0), u.rate, o_.l1, o_.l2,
                                           u.grad(), u.indices());
  }
  const ProximalAdagradOptions o_;
};

class AdagradDaOptimizer : public SlotOptimizer {
 public:
  explicit AdagradDaOptimizer(const AdagradDaOptions& o)
      : SlotOptimizer("AdagradDA", o.learning_rate, {0, o.initial_gradient_squared_accumulator}),
        o_(o) {}

 private:
  void Check(OptionChecks& checks, const LearningRate&) const override {
    checks.Above("initial_gradient_squared_accumulator", o_.initial_gradient_squared_accumulator, 0)
        .AtLeast("l1", o_.l1, 0)
        .AtLeast("l2", o_.l2, 0);
  }
  void Prepare(const Scope& scope, std::span<const GradientAndVariable>,
               const Variable* global_step) override {
    const Output step = global_step != nullptr ? global_step->read : GlobalStep(scope).read;
    step_ = ops::Add(scope.Named("AdagradDA_step"), step, 1);
  }
  Operation Update(const SlotUpdate& u) override {
    if (u.resource()) {
      return ops::ResourceApplyAdagradDA(u.update, u.var(), u.slot(0), u.slot(1), u.grad(), u.rate,
                                         o_.l1, o_.l2, step_);
    }
    return ops::ApplyAdagradDA(u.update, u.var(), u.slot(0), u.slot(1), u.grad(), u.rate, o_.l1,
                               o_.l2, step_);
  }
  Operation SparseUpdate(const SlotUpdate& u) override {
    if (u.resource()) {
      return ops::ResourceSparseApplyAdagradDA(u.update, u.var(), u.slot(0), u.slot(1), u.grad(),
                                               u.indices(), u.rate, o_.l1, o_.l2, step_);
    }
    return ops::SparseApplyAdagradDA(u.update, u.var(), u.slot(0), u.slot(1), u.grad(), u.indices(),
                                     u.rate, o_.l1, o_.l2, step_);
  }
  const AdagradDaOptions o_;
  Output step_;
};

class AdadeltaOptimizer : public SlotOptimizer {
 public:
  explicit AdadeltaOptimizer(const AdadeltaOptions& o)
      : SlotOptimizer("Adadelta", o.learning_rate, {0, 0}), o_(o) {}

 private:
  void Check(OptionChecks& checks, const LearningRate&) const override {
    checks.Within("rho", o_.rho, 0, 1).AtLeast("epsilon", o_.epsilon, 0);
  }
  Operation Update(const SlotUpdate& u) override {
    if (u.resource()) {
      return ops::ResourceApplyAdadelta(u.update, u.var(), u.slot(0), u.slot(1), u.rate, o_.rho,
                                        o_.epsilon, u.grad());
    }
    return ops::ApplyAdadelta(u.update, u.var(), u.slot(0), u.slot(1), u.rate, o_.rho, o_.epsilon,
                              u.grad());
  }
  Operation SparseUpdate(const SlotUpdate& u) override {
    if (u.resource()) {
      return ops::ResourceSparseApplyAdadelta(u.update, u.var(), u.slot(0), u.slot(1), u.rate,
                                              o_.rho, o_.epsilon, u.grad(), u.indices());
    }
    return ops::SparseApplyAdadelta(u.update, u.var(), u.slot(0), u.slot(1), u.rate, o_.rho,
                                    o_.epsilon, u.grad(), u.indices());
  }
  const AdadeltaOptions o_;
};

// Slots: the mean square, (if centered) the mean, the momentum.
class RmsPropOptimizer : public SlotOptimizer {
 public:
  explicit RmsPropOptimizer(const RmsPropOptions& o)
      : SlotOptimizer("RMSProp", o.learning_rate,
                      o.centered ? std::vector<float>{1, 0, 0} : std::vector<float>{1, 0}),
        o_(o) {}

 private:
  void Check(OptionChecks& checks, const LearningRate&) const override {
    checks.Within("decay", o_.decay, 0, 1)
        .Finite("momentum", o_.momentum)
        .AtLeast("epsilon", o_.epsilon, 0);
  }
  Operation Update(const SlotUpdate& u) override {
    if (o_.centered) {
      if (u.resource()) {
        return ops::ResourceApplyCenteredRMSProp(u.update, u.var(), u.slot(1), u.slot(0), u.slot(2),
                                                 u.rate, o_.decay, o_.momentum, o_.epsilon,
                                                 u.grad());
      }
      return ops::ApplyCenteredRMSProp(u.update, u.var(), u.slot(1), u.slot(0), u.slot(2), u.rate,
                                       o_.decay, o_.momentum, o_.epsilon, u.grad());
    }
    if (u.resource()) {
      return ops::ResourceApplyRMSProp(u.update, u.var(), u.slot(0), u.slot(1), u.rate, o_.decay,
                                       o_.momentum, o_.epsilon, u.grad());
    }
    return ops::ApplyRMSProp(u.update, u.var(), u.slot(0), u.slot(1), u.rate, o_.decay, o_.momentum,
                             o_.epsilon, u.grad());
  }
  Operation SparseUpdate(const SlotUpdate& u) override {
    if (o_.centered) {
      if (u.resource()) {
        return ops::ResourceSparseApplyCenteredRMSProp(u.update, u.var(), u.slot(1), u.slot(0),
                                                       u.slot(2), u.rate, o_.decay, o_.momentum,
                                                       o_.epsilon, u.grad(), u.indices());
      }
      return ops::SparseApplyCenteredRMSProp(u.update, u.var(), u.slot(1), u.slot(0), u.slot(2),
                                             u.rate, o_.decay, o_.momentum, o_.epsilon, u.grad(),
                                             u.indices());
    }
    if (u.resource()) {
      return ops::ResourceSparseApplyRMSProp(u.update, u.var(), u.slot(0), u.slot(1), u.rate,
                                             o_.decay, o_.momentum, o_.epsilon, u.grad(),
                                             u.indices());
    }
    return ops::SparseApplyRMSProp(u.update, u.var(), u.slot(0), u.slot(1), u.rate, o_.decay,
                                   o_.momentum, o_.epsilon, u.grad(), u.indices());
  }
  const RmsPropOptions o_;
};

}  // namespace

std::unique_ptr<Optimizer> Adagrad(const AdagradOptions& options) {
  return std::make_unique<AdagradOptimizer>(options);
}
std::unique_ptr<Optimizer> ProximalAdagrad(const ProximalAdagradOptions& options) {
  return std::make_unique<ProximalAdagradOptimizer>(options);
}
std::unique_ptr<Optimizer> AdagradDa(const AdagradDaOptions& options) {
  return std::make_unique<AdagradDaOptimizer>(options);
}
std::unique_ptr<Optimizer> Adadelta(const AdadeltaOptions& options) {
  return std::make_unique<AdadeltaOptimizer>(options);
}
std::unique_ptr<Optimizer> RmsProp(const RmsPropOptions& options) {
  return std::make_unique<RmsPropOptimizer>(options);
}

}  // namespace millrace
