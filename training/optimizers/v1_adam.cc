// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/strings.h"
#include "millrace/math.h"
#include "training/optimizers/slot_optimizer.h"

namespace millrace {
namespace {

class AdamOptimizer : public SlotOptimizer {
 public:
  explicit AdamOptimizer(const AdamOptions& o)
      : SlotOptimizer("Adam", o.learning_rate, {0, 0}), o_(o) {}

 private:
  void Check(OptionChecks& checks, const LearningRate&) const override {
    checks.Below("beta1", o_.beta1, 0, 1)
        .Below("beta2", o_.beta2, 0, 1)
        .AtLeast("epsilon", o_.epsilon, 0);
  }
  void Prepare(const Scope& root, std::span<const GradientAndVariable> gradients,
               const Variable*) override {
    if (!globals_.empty()) return;
    // The powers of the betas sit beside the variable that comes first by name.
    const auto first = std::min_element(
        gradients.begin(), gradients.end(),
        [](const auto& a, const auto& b) { return a.variable.name() < b.variable.name(); });
    globals_ = {MakeScalar(root, first->variable, "beta1_power", o_.beta1),
                MakeScalar(root, first->variable, "beta2_power", o_.beta2)};
  }
  Operation Update(const SlotUpdate& u) override {
    // One power for variables of all types.
    const Output power1 = AsType(u.scope, globals_[0].read, u.g.variable.dtype());
    const Output power2 = AsType(u.scope, globals_[1].read, u.g.variable.dtype());
    if (u.resource()) {
      return ops::ResourceApplyAdam(u.update, u.var(), u.slot(0), u.slot(1), power1, power2, u.rate,
                                    o_.beta1, o_.beta2, o_.epsilon, u.grad());
    }
    return ops::ApplyAdam(u.update, u.var(), u.slot(0), u.slot(1), power1, power2, u.rate, o_.beta1,
                          o_.beta2, o_.epsilon, u.grad());
  }
  // As TensorFlow: the moments of all rows decay, and all rows move.
  Operation SparseUpdate(const SlotUpdate& u) override {
    const DataType dtype = u.g.variable.dtype();
    const Expr grad(u.scope, u.grad());
    const Expr power1 = Expr(u.scope, globals_[0].read).Cast(dtype);
    const Expr power2 = Expr(u.scope, globals_[1].read).Cast(dtype);
    const Output m = Moment(u, 0, o_.beta1, grad * (1.0f - o_.beta1));
    const Output v = Moment(u, 1, o_.beta2, grad.Square() * (1.0f - o_.beta2));
    const Expr rate = Expr(u.scope, u.rate) * (1.0f - power2).Sqrt() / (1.0f - power1);
    const Expr step = rate * m / (Expr(u.scope, v).Sqrt() + o_.epsilon);
    if (u.resource()) return ops::AssignSubVariableOp(u.update, u.var(), step);
    return ops::AssignSub(u.update, u.var(), step);
  }
  // What the moment is after it decayed and got the rows.
  Output Moment(const SlotUpdate& u, int i, float beta, const Output& rows) {
    const Output decayed = ops::Mul(u.scope, u.slots[i].read, beta);
    const Operation decay = Assign(u.scope, u.slots[i], decayed);
    const Scope after = u.scope.WithControlDependencies({decay});
    const Operation added = u.resource()
                                ? ops::ResourceScatterAdd(after, u.slot(i), u.indices(), rows)
                                : ops::ScatterAdd(after, u.slot(i), u.indices(), rows).op();
    return ReadNow(u.scope.WithControlDependencies({added}), u.slots[i]);
  }
  std::vector<Operation> Finish(const Scope& s, std::span<const Operation> updates) override {
    const Scope after = s.WithControlDependencies(updates);
    const auto advance = [&](const Variable& power, float beta, std::string_view name) {
      const Scope beside = after.ColocateWith(power.handle);
      const Output next = ops::Mul(beside.WithOpName(StrCat(name, "_mul")), power.read, beta);
      return Assign(beside.WithOpName(StrCat(name, "_assign")), power, next);
    };
    return {advance(globals_[0], o_.beta1, "beta1"), advance(globals_[1], o_.beta2, "beta2")};
  }
  const AdamOptions o_;
};

class FtrlOptimizer : public SlotOptimizer {
 public:
  explicit FtrlOptimizer(const FtrlOptions& o)
      : SlotOptimizer("Ftrl", o.learning_rate, {o.initial_accumulator, 0}), o_(o) {}

 private:
  void Check(OptionChecks& checks, const LearningRate& rate) const override {
    // It divides by the rate.
    if (rate.is_number()) checks.Above("learning_rate", rate.number(), 0);
    checks.AtMost("learning_rate_power", o_.learning_rate_power, 0)
        .AtLeast("initial_accumulator", o_.initial_accumulator, 0)
        .AtLeast("l1", o_.l1, 0)
        .AtLeast("l2", o_.l2, 0)
        .AtLeast("l2_shrinkage", o_.l2_shrinkage, 0)
        .AtLeast("beta", o_.beta, 0);
  }
  // TensorFlow adds beta to l2 with a rate that is not zero.
  Output L2(const SlotUpdate& u) const {
    return o_.l2 + (o_.beta / 2.0f) / Expr(u.scope, u.rate).Max(1e-36f);
  }
  Operation Update(const SlotUpdate& u) override {
    const Output l2 = L2(u);
    if (o_.l2_shrinkage <= 0) {
      if (u.resource()) {
        return ops::ResourceApplyFtrl(u.update, u.var(), u.slot(0), u.slot(1), u.grad(), u.rate,
                                      o_.l1, l2, o_.learning_rate_power);
      }
      return ops::ApplyFtrl(u.update, u.var(), u.slot(0), u.slot(1), u.grad(), u.rate, o_.l1, l2,
                            o_.learning_rate_power);
    }
    if (u.resource()) {
      return ops::ResourceApplyFtrlV2(u.update, u.var(), u.slot(0), u.slot(1), u.grad(), u.rate,
                                      o_.l1, l2, o_.l2_shrinkage, o_.learning_rate_power);
    }
    return ops::ApplyFtrlV2(u.update, u.var(), u.slot(0), u.slot(1), u.grad(), u.rate, o_.l1, l2,
                            o_.l2_shrinkage, o_.learning_rate_power);
  }
  Operation SparseUpdate(const SlotUpdate& u) override {
    if (o_.l2_shrinkage > 0) return ShrunkSparseUpdate(u);
    const Output l2 = L2(u);
    if (u.resource()) {
      return ops::ResourceSparseApplyFtrl(u.update, u.var(), u.slot(0), u.slot(1), u.grad(),
                                          u.indices(), u.rate, o_.l1, l2, o_.learning_rate_power);
    }
    return ops::SparseApplyFtrl(u.update, u.var(), u.slot(0), u.slot(1), u.grad(), u.indices(),
                                u.rate, o_.l1, l2, o_.learning_rate_power);
  }
  // No op of ours does this to rows: the rows are taken, updated and put back.
  Operation ShrunkSparseUpdate(const SlotUpdate& u) {
    const auto rows = [&](const Variable& v) {
      return Expr(u.scope, u.resource()
                               ? ops::ResourceGather(u.scope, v.handle, u.indices(), v.dtype())
                               : ops::GatherV2(u.scope, v.read, u.indices(), 0));
    };
    const Expr w = rows(u.g.variable), n = rows(u.slots[0]), z = rows(u.slots[1]);
    const Expr g(u.scope, u.grad()), rate(u.scope, u.rate), l2(u.scope, L2(u));
    const Expr n_new = n + g.Square();
    const Expr power = n_new.Pow(-o_.learning_rate_power);
    const Expr z_new =
        z + g + 2.0f * o_.l2_shrinkage * w - (power - n.Pow(-o_.learning_rate_power)) / rate * w;
    const Expr w_new = (z_new.Clip(-o_.l1, o_.l1) - z_new) / (power / rate + 2.0f * l2);
    const Scope all = u.scope.WithControlDependencies(
        {w_new.output().op(), z_new.output().op(), n_new.output().op()});
    const auto put = [&](const Scope& s, const Output& to, const Output& value) -> Operation {
      if (u.resource()) return ops::ResourceScatterUpdate(s, to, u.indices(), value);
      return ops::ScatterUpdate(s, to, u.indices(), value);
    };
    const Operation puts[] = {put(all, u.slot(0), n_new), put(all, u.slot(1), z_new),
                              put(all, u.var(), w_new)};
    return Group(u.update, puts);
  }
  const FtrlOptions o_;
};

}  // namespace

std::unique_ptr<Optimizer> Adam(const AdamOptions& options) {
  return std::make_unique<AdamOptimizer>(options);
}
std::unique_ptr<Optimizer> Ftrl(const FtrlOptions& options) {
  return std::make_unique<FtrlOptimizer>(options);
}

}  // namespace millrace
