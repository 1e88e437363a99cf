// SPDX-License-Identifier: Apache-2.0
// What the optimizers of tf.compat.v1.train share: slots beside variables, and the order of events.
#ifndef TRAINING_OPTIMIZERS_SLOT_OPTIMIZER_H_
#define TRAINING_OPTIMIZERS_SLOT_OPTIMIZER_H_

#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/options/option_checks.h"
#include "millrace/optimizers.h"

namespace millrace {

// A variable of the shape and type of `primary`, beside it, called `name`, that starts with
// `initial` everywhere.
Variable MakeSlot(const Scope& root, const Variable& primary, const std::string& name,
                  float initial);
// A float variable beside `primary`.
Variable MakeScalar(const Scope& root, const Variable& primary, const std::string& name,
                    float initial);
// The same output as the given type.
Output AsType(const Scope& scope, const Output& x, DataType dtype);
// The value at the time when all control dependencies of the scope are met.
Output ReadNow(const Scope& scope, const Variable& variable);

// Of a variable that is being updated.
struct SlotUpdate {
  Scope scope;   // beside the variable; names nothing
  Scope update;  // the same; names the op that updates
  const GradientAndVariable& g;
  std::span<const Variable> slots;
  Output rate;  // of the variable's type
  const Output& var() const { return g.variable.handle; }
  const Output& slot(int i) const { return slots[i].handle; }
  const Output& grad() const { return g.gradient; }
  const Output& indices() const { return g.indices; }
  bool resource() const { return g.variable.is_resource(); }
};

class SlotOptimizer : public Optimizer, public ChecksOptions {
 public:
  // `initial`: for each slot what it starts with.
  SlotOptimizer(std::string name, LearningRate rate, std::vector<float> initial)
      : name_(std::move(name)), rate_(std::move(rate)), initial_(std::move(initial)) {}

  StatusOr<Operation> ApplyGradients(const Scope& outer,
                                     std::span<const GradientAndVariable> gradients,
                                     const Variable* global_step,
                                     std::source_location where) override;
  std::vector<Variable> variables() const override;
  Status CheckOptions() const override;

 protected:
  // What the optimizer's own options must be: as TensorFlow says, and so that no step makes NaN of
  // numbers.
  virtual void Check(OptionChecks&, const LearningRate& /*rate*/) const {}
  // Once for each call of ApplyGradients, before all updates.
  virtual void Prepare(const Scope&, std::span<const GradientAndVariable>, const Variable*) {}
  virtual Operation Update(const SlotUpdate& u) = 0;
  // The gradient has indices, all of them different unless SumsDuplicates.
  virtual Operation SparseUpdate(const SlotUpdate& u) = 0;
  virtual bool SumsDuplicates() const { return false; }
  virtual std::vector<Operation> Finish(const Scope&, std::span<const Operation>) { return {}; }

 private:
  std::vector<Variable>& SlotsOf(const Scope& scope, const Variable& primary);

  const std::string name_;
  const LearningRate rate_;
  const std::vector<float> initial_;
  std::map<std::string, std::vector<Variable>, std::less<>> slots_;
  std::vector<std::string> order_;  // of the variables that have slots

 protected:
  std::vector<Variable> globals_;  // before the slots
};

}  // namespace millrace

#endif  // TRAINING_OPTIMIZERS_SLOT_OPTIMIZER_H_
