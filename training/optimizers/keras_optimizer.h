// SPDX-License-Identifier: Apache-2.0
// What the optimizers of Keras share: one update as an expression of the values before it.
#ifndef TRAINING_OPTIMIZERS_KERAS_OPTIMIZER_H_
#define TRAINING_OPTIMIZERS_KERAS_OPTIMIZER_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/options/option_checks.h"
#include "millrace/keras_optimizers.h"
#include "millrace/math.h"

namespace millrace::optimizers {

// A variable that the rule keeps for each weight.
struct SlotSpec {
  std::string name;
  float initial = 0;
  bool like_weight = false;  // starts as a copy of it
  // Slots of all weights are made group by group: their order is what checkpoints count on.
  int group = 0;
  std::optional<Shape> shape{};  // another than the weight's
  bool integer = false;          // an int32 that nobody changes
};

// What a rule computes from. All of it is of the weight's type, and from before the update.
struct RuleArgs {
  const Scope& scope;
  const Variable& variable;
  Expr g, w;  // after clipping, and after weights decayed
  Expr rate;
  Expr step;  // counts from 1
  std::vector<Expr> slots;
  std::vector<Expr> globals;  // after their own update
};

// What there is afterwards. A change of the weight is subtracted, so that updates of several
// workers at once all count; a value replaces it.
struct RuleResult {
  Expr weight;
  bool is_change = true;
  std::vector<Expr> slots{};
};

class Rule {
 public:
  virtual ~Rule() = default;
  // The name of the class in Keras's file names, such as "adam_w".
  virtual std::string name() const = 0;
  // What the rule's own options must be: as Keras says, and so that no step makes NaN of numbers.
  virtual void Check(OptionChecks&) const {}
  virtual std::vector<SlotSpec> Slots(const Variable& weight) const = 0;
  virtual RuleResult Apply(const RuleArgs& a) const = 0;
  // Scalars that belong to no weight: what they start with, and what comes after a value.
  virtual std::vector<float> Globals() const { return {}; }
  virtual Expr NextGlobal(int, const Expr& value, const Expr& step) const { return value; }
  // Numbers, one for each slot, by which a row of it is multiplied where the gradient is zero, of a
  // rule that leaves the weight's row as it is then, and takes rows apart from each other. Without
  // a value: a gradient moves all rows.
  virtual std::optional<std::vector<double>> IdleRows() const { return std::nullopt; }
  // Of this weight, instead of what all of them have.
  virtual std::optional<double> WeightDecay(const Variable&, std::optional<double> common) const {
    return common;
  }
};

std::unique_ptr<KerasOptimizer> MakeKerasOptimizer(std::unique_ptr<Rule> rule,
                                                   const LearningRate& rate,
                                                   const CommonOptions& options);

}  // namespace millrace::optimizers

#endif  // TRAINING_OPTIMIZERS_KERAS_OPTIMIZER_H_
