// SPDX-License-Identifier: Apache-2.0
// Gradient descent, with momentum, and with proximal steps.
#include "training/optimizers/slot_optimizer.h"

namespace millrace {
namespace {

class GradientDescentOptimizer : public SlotOptimizer {
 public:
  explicit GradientDescentOptimizer(const GradientDescentOptions& o)
      : SlotOptimizer("GradientDescent", o.learning_rate, {}) {}

 private:
  Operation Update(const SlotUpdate& u) override {
    if (u.resource()) {
      return ops::ResourceApplyGradientDescent(u.update, u.var(), u.rate, u.grad());
    }
    return ops::ApplyGradientDescent(u.update, u.var(), u.rate, u.grad());
  }
  Operation SparseUpdate(const SlotUpdate& u) override {
    const Output step = ops::Mul(u.scope, u.grad(), u.rate);
    if (u.resource()) return ops::ResourceScatterSub(u.update, u.var(), u.indices(), step);
    return ops::ScatterSub(u.update, u.var(), u.indices(), step);
  }
  bool SumsDuplicates() const override { return true; }
};

class ProximalGradientDescentOptimizer : public SlotOptimizer {
 public:
  explicit ProximalGradientDescentOptimizer(const ProximalGradientDescentOptions& o)
      : SlotOptimizer("ProximalGradientDescent", o.learning_rate, {}), o_(o) {}

 private:
  void Check(OptionChecks& checks, const LearningRate&) const override {
    checks.AtLeast("l1", o_.l1, 0).AtLeast("l2", o_.l2, 0);
  }
  Operation Update(const SlotUpdate& u) override {
    if (u.resource()) {
      return ops::ResourceApplyProximalGradientDescent(u.update, u.var(), u.rate, o_.l1, o_.l2,
                                                       u.grad());
    }
    return ops::ApplyProximalGradientDescent(u.update, u.var(), u.rate, o_.l1, o_.l2, u.grad());
  }
  Operation SparseUpdate(const SlotUpdate& u) override {
    if (u.resource()) {
      return ops::ResourceSparseApplyProximalGradientDescent(u.update, u.var(), u.rate, o_.l1,
                                                             o_.l2, u.grad(), u.indices());
    }
    return ops::SparseApplyProximalGradientDescent(u.update, u.var(), u.rate, o_.l1, o_.l2,
                                                   u.grad(), u.indices());
  }
  const ProximalGradientDescentOptions o_;
};

class MomentumOptimizer : public SlotOptimizer {
 public:
  explicit MomentumOptimizer(const MomentumOptions& o)
      : SlotOptimizer("Momentum", o.learning_rate, {0}), o_(o) {}

 private:
  void Check(OptionChecks& checks, const LearningRate&) const override {
    checks.Finite("momentum", o_.momentum);
  }
  Operation Update(const SlotUpdate& u) override {
    if (u.resource()) {
      return ops::ResourceApplyMomentum(u.update, u.var(), u.slot(0), u.rate, u.grad(), o_.momentum,
                                        {.use_nesterov = o_.use_nesterov});
    }
    return ops::ApplyMomentum(u.update, u.var(), u.slot(0), u.rate, u.grad(), o_.momentum,
                              {.use_nesterov = o_.use_nesterov});
  }
  Operation SparseUpdate(const SlotUpdate& u) override {
    if (u.resource()) {
      return ops::ResourceSparseApplyMomentum(u.update, u.var(), u.slot(0), u.rate, u.grad(),
                                              u.indices(), o_.momentum,
                                              {.use_nesterov = o_.use_nesterov});
    }
    return ops::SparseApplyMomentum(u.update, u.var(), u.slot(0), u.rate, u.grad(), u.indices(),
                                    o_.momentum, {.use_nesterov = o_.use_nesterov});
  }
  const MomentumOptions o_;
};

}  // namespace

std::unique_ptr<Optimizer> GradientDescent(const GradientDescentOptions& options) {
  return std::make_unique<GradientDescentOptimizer>(options);
}
std::unique_ptr<Optimizer> ProximalGradientDescent(const ProximalGradientDescentOptions& options) {
  return std::make_unique<ProximalGradientDescentOptimizer>(options);
}
std::unique_ptr<Optimizer> Momentum(const MomentumOptions& options) {
  return std::make_unique<MomentumOptimizer>(options);
}

}  // namespace millrace
