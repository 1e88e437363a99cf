// Optimizers as graphs: slots beside their variables, one fused update op per variable.
#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "millrace/training.h"

namespace millrace {

StatusOr<std::vector<GradientAndVariable>> Optimizer::ComputeGradients(
    const Scope& scope, const Output& loss, std::vector<Variable> variables,
    std::source_location where) {
  if (variables.empty()) variables = Variables(scope, kTrainableVariables);
  if (variables.empty()) return errors::InvalidArgument("there are no variables to train");
  std::vector<Output> xs;
  for (const Variable& v : variables) xs.push_back(v.handle);
  MR_ASSIGN_OR_RETURN(const std::vector<Output> gradients,
                      Gradients(scope, {{loss}}, xs, {}, where));
  std::vector<GradientAndVariable> result;
  for (std::size_t i = 0; i < variables.size(); ++i) {
    result.push_back({gradients[i], variables[i]});
  }
  return result;
}

StatusOr<Operation> Optimizer::Minimize(const Scope& scope, const Output& loss,
                                        const Variable* global_step, std::source_location where) {
  MR_ASSIGN_OR_RETURN(const std::vector<GradientAndVariable> gradients,
                      ComputeGradients(scope, loss, {}, where));
  return ApplyGradients(scope, gradients, global_step, where);
}

namespace {

Output AsType(const Scope& scope, const Output& x, DataType dtype) {
  return x.dtype() == dtype ? x : ops::Cast(scope, x, dtype);
}

// A variable of the shape and type of `primary`, beside it, called "<primary>/<suffix>".
Variable MakeSlot(const Scope& root, const Variable& primary, std::string_view suffix,
                  float initial) {
  const Scope beside = root.ColocateWith(primary.handle).WithoutControlDependencies();
  const std::string name = StrCat(primary.name(), "/", suffix);
  const auto shape = primary.shape().AsShape();
  std::vector<int32_t> dims(shape->dims().begin(), shape->dims().end());
  const Output element = AsType(
      beside,
      Constant(beside.WithOpName(name + "/Initializer/value"), Tensor::Scalar<float>(initial)),
      primary.dtype());
  const Output value = ops::Fill(
      beside.WithOpName(name + "/Initializer"),
      Tensor::FromValues<int32_t>(dims, Shape({static_cast<int64_t>(dims.size())})), element);
  return MakeVariable(beside, name, value,
                      {.trainable = false, .use_resource = primary.is_resource()});
}

Variable MakeScalar(const Scope& root, const Variable& beside_this, std::string_view name,
                    float initial) {
  const Scope beside = root.ColocateWith(beside_this.handle).WithoutControlDependencies();
  const Output value =
      Constant(beside.WithOpName(StrCat(name, "/initial_value")), Tensor::Scalar<float>(initial));
  return MakeVariable(beside, name, value,
                      {.trainable = false, .use_resource = beside_this.is_resource()});
}

// The order of events that all optimizers share.
class SlotOptimizer : public Optimizer {
 public:
  explicit SlotOptimizer(std::string name) : name_(std::move(name)) {}

  StatusOr<Operation> ApplyGradients(const Scope& outer,
                                     std::span<const GradientAndVariable> gradients,
                                     const Variable* global_step,
                                     std::source_location where) override {
    const Scope scope = outer.CalledFrom(where);
    std::vector<GradientAndVariable> usable;
    for (const GradientAndVariable& g : gradients) {
      if (g.gradient.valid()) usable.push_back(g);
    }
    if (usable.empty()) {
      return errors::InvalidArgument(
          "no gradient for any variable: the loss depends on none of "
          "them");
    }
    for (const GradientAndVariable& g : usable) {
      if (!g.variable.shape().AsShape()) {
        return errors::InvalidArgument("variable '", g.variable.name(),
                                       "' has no fully known shape");
      }
    }
    Prepare(scope, usable);
    std::vector<Operation> updates;
    const Scope named = scope.Named(name_);
    for (const GradientAndVariable& g : usable) {
      const Scope beside = named.ColocateWith(g.variable.handle);
      updates.push_back(Update(beside.WithOpName("update_" + g.variable.name()), g));
    }
    for (const Operation& op : Finish(named, updates)) updates.push_back(op);
    MR_RETURN_IF_ERROR(scope.status());
    // TensorFlow's names: the whole is called as the optimizer, its part as "Adam/update".
    if (global_step == nullptr) return Group(named.WithScopeName(), updates);
    const Operation update = Group(named.WithOpName("update"), updates);
    const Operation step = AssignAdd(named.WithScopeName().WithControlDependencies({update}),
                                     *global_step, Tensor::Scalar<int64_t>(1));
    MR_RETURN_IF_ERROR(scope.status());
    return step;
  }

 protected:
  virtual void Prepare(const Scope&, std::span<const GradientAndVariable>) {}
  virtual Operation Update(const Scope& scope, const GradientAndVariable& g) = 0;
  virtual std::vector<Operation> Finish(const Scope&, std::span<const Operation>) { return {}; }

  const std::string name_;
};

class GradientDescentOptimizer : public SlotOptimizer {
 public:
  explicit GradientDescentOptimizer(const GradientDescentOptions& o)
      : SlotOptimizer("GradientDescent"), o_(o) {}

 private:
  Operation Update(const Scope& s, const GradientAndVariable& g) override {
    const Output& v = g.variable.handle;
    if (g.variable.is_resource()) {
      return ops::ResourceApplyGradientDescent(s, v, o_.learning_rate, g.gradient);
    }
    return ops::ApplyGradientDescent(s, v, o_.learning_rate, g.gradient);
  }
  const GradientDescentOptions o_;
};

class MomentumOptimizer : public SlotOptimizer {
 public:
  explicit MomentumOptimizer(const MomentumOptions& o) : SlotOptimizer("Momentum"), o_(o) {}

 private:
  void Prepare(const Scope& root, std::span<const GradientAndVariable> gradients) override {
    for (const auto& g : gradients) slots_.push_back(MakeSlot(root, g.variable, "Momentum", 0));
  }
  Operation Update(const Scope& s, const GradientAndVariable& g) override {
    const Output& v = g.variable.handle;
    const Output& m = slots_[next_++].handle;
    if (g.variable.is_resource()) {
      return ops::ResourceApplyMomentum(s, v, m, o_.learning_rate, g.gradient, o_.momentum,
                                        {.use_nesterov = o_.use_nesterov});
    }
    return ops::ApplyMomentum(s, v, m, o_.learning_rate, g.gradient, o_.momentum,
                              {.use_nesterov = o_.use_nesterov});
  }
  const MomentumOptions o_;
  std::vector<Variable> slots_;
  std::size_t next_ = 0;
};

class AdagradOptimizer : public SlotOptimizer {
 public:
  explicit AdagradOptimizer(const AdagradOptions& o) : SlotOptimizer("Adagrad"), o_(o) {}

 private:
  void Prepare(const Scope& root, std::span<const GradientAndVariable> gradients) override {
    for (const auto& g : gradients) {
      slots_.push_back(MakeSlot(root, g.variable, "Adagrad", o_.initial_accumulator));
    }
  }
  Operation Update(const Scope& s, const GradientAndVariable& g) override {
    const Output& v = g.variable.handle;
    const Output& a = slots_[next_++].handle;
    if (g.variable.is_resource()) {
      return ops::ResourceApplyAdagrad(s, v, a, o_.learning_rate, g.gradient);
    }
    return ops::ApplyAdagrad(s, v, a, o_.learning_rate, g.gradient);
  }
  const AdagradOptions o_;
  std::vector<Variable> slots_;
  std::size_t next_ = 0;
};

class RmsPropOptimizer : public SlotOptimizer {
 public:
  explicit RmsPropOptimizer(const RmsPropOptions& o) : SlotOptimizer("RMSProp"), o_(o) {}

 private:
  void Prepare(const Scope& root, std::span<const GradientAndVariable> gradients) override {
    for (const auto& g : gradients) {
      ms_.push_back(MakeSlot(root, g.variable, "RMSProp", 1));
      mom_.push_back(MakeSlot(root, g.variable, "RMSProp_1", 0));
    }
  }
  Operation Update(const Scope& s, const GradientAndVariable& g) override {
    const std::size_t i = next_++;
    const Output &v = g.variable.handle, &ms = ms_[i].handle, &mom = mom_[i].handle;
    if (g.variable.is_resource()) {
      return ops::ResourceApplyRMSProp(s, v, ms, mom, o_.learning_rate, o_.decay, o_.momentum,
                                       o_.epsilon, g.gradient);
    }
    return ops::ApplyRMSProp(s, v, ms, mom, o_.learning_rate, o_.decay, o_.momentum, o_.epsilon,
                             g.gradient);
  }
  const RmsPropOptions o_;
  std::vector<Variable> ms_, mom_;
  std::size_t next_ = 0;
};

class AdamOptimizer : public SlotOptimizer {
 public:
  explicit AdamOptimizer(const AdamOptions& o) : SlotOptimizer("Adam"), o_(o) {}

 private:
  void Prepare(const Scope& root, std::span<const GradientAndVariable> gradients) override {
    // The powers of the betas sit beside the variable that comes first by name.
    const auto first = std::min_element(
        gradients.begin(), gradients.end(),
        [](const auto& a, const auto& b) { return a.variable.name() < b.variable.name(); });
    beta1_power_ = MakeScalar(root, first->variable, "beta1_power", o_.beta1);
    beta2_power_ = MakeScalar(root, first->variable, "beta2_power", o_.beta2);
    for (const auto& g : gradients) {
      m_.push_back(MakeSlot(root, g.variable, "Adam", 0));
      v_.push_back(MakeSlot(root, g.variable, "Adam_1", 0));
    }
  }
  Operation Update(const Scope& s, const GradientAndVariable& g) override {
    const std::size_t i = next_++;
    const Output &var = g.variable.handle, &m = m_[i].handle, &v = v_[i].handle;
    // One power for variables of all types.
    const Scope beside = s.WithOpName("");
    const Output power1 = AsType(beside, beta1_power_.read, g.variable.dtype());
    const Output power2 = AsType(beside, beta2_power_.read, g.variable.dtype());
    if (g.variable.is_resource()) {
      return ops::ResourceApplyAdam(s, var, m, v, power1, power2, o_.learning_rate, o_.beta1,
                                    o_.beta2, o_.epsilon, g.gradient);
    }
    return ops::ApplyAdam(s, var, m, v, power1, power2, o_.learning_rate, o_.beta1, o_.beta2,
                          o_.epsilon, g.gradient);
  }
  std::vector<Operation> Finish(const Scope& s, std::span<const Operation> updates) override {
    const Scope after = s.WithControlDependencies(updates);
    const auto advance = [&](const Variable& power, float beta, std::string_view name) {
      const Scope beside = after.ColocateWith(power.handle);
      const Output next = ops::Mul(beside.WithOpName(StrCat(name, "_mul")), power.read, beta);
      return Assign(beside.WithOpName(StrCat(name, "_assign")), power, next);
    };
    return {advance(beta1_power_, o_.beta1, "beta1"), advance(beta2_power_, o_.beta2, "beta2")};
  }
  const AdamOptions o_;
  Variable beta1_power_, beta2_power_;
  std::vector<Variable> m_, v_;
  std::size_t next_ = 0;
};

}  // namespace

std::unique_ptr<Optimizer> GradientDescent(const GradientDescentOptions& options) {
  return std::make_unique<GradientDescentOptimizer>(options);
}
std::unique_ptr<Optimizer> Momentum(const MomentumOptions& options) {
  return std::make_unique<MomentumOptimizer>(options);
}
std::unique_ptr<Optimizer> Adagrad(const AdagradOptions& options) {
  return std::make_unique<AdagradOptimizer>(options);
}
std::unique_ptr<Optimizer> RmsProp(const RmsPropOptions& options) {
  return std::make_unique<RmsPropOptimizer>(options);
}
std::unique_ptr<Optimizer> Adam(const AdamOptions& options) {
  return std::make_unique<AdamOptimizer>(options);
}

StatusOr<std::unique_ptr<Optimizer>> OptimizerByName(const std::string& name, float learning_rate) {
  if (name == "sgd") return GradientDescent({.learning_rate = learning_rate});
  if (name == "momentum") return Momentum({.learning_rate = learning_rate});
  if (name == "adagrad") return Adagrad({.learning_rate = learning_rate});
  if (name == "rmsprop") return RmsProp({.learning_rate = learning_rate});
  if (name == "adam") return Adam({.learning_rate = learning_rate});
  return errors::InvalidArgument("unknown optimizer '", name,
                                 "'; there are sgd, momentum, adagrad, rmsprop, adam");
}

}  // namespace millrace
