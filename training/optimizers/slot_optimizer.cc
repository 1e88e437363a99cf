// SPDX-License-Identifier: Apache-2.0
#include "training/optimizers/slot_optimizer.h"

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "training/sharding/part_marks.h"

namespace millrace {

Output AsType(const Scope& scope, const Output& x, DataType dtype) {
  return x.dtype() == dtype ? x : ops::Cast(scope, x, dtype);
}

Variable MakeSlot(const Scope& root, const Variable& primary, const std::string& name,
                  float initial) {
  const Scope beside = root.ColocateWith(primary.handle).WithoutControlDependencies();
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

Variable MakeScalar(const Scope& root, const Variable& primary, const std::string& name,
                    float initial) {
  const Scope beside = root.ColocateWith(primary.handle).WithoutControlDependencies();
  const Output value =
      Constant(beside.WithOpName(name + "/initial_value"), Tensor::Scalar<float>(initial));
  return MakeVariable(beside, name, value,
                      {.trainable = false, .use_resource = primary.is_resource()});
}

Output ReadNow(const Scope& scope, const Variable& variable) {
  if (variable.is_resource()) return ops::ReadVariableOp(scope, variable.handle, variable.dtype());
  return ops::Identity(scope, variable.handle);
}

std::vector<Variable>& SlotOptimizer::SlotsOf(const Scope& scope, const Variable& primary) {
  const auto [it, is_new] = slots_.try_emplace(primary.name());
  if (!is_new) return it->second;
  order_.push_back(primary.name());
  for (std::size_t i = 0; i < initial_.size(); ++i) {
    // TensorFlow's names: made unique in order of creation.
    const std::string suffix = i == 0 ? name_ : StrCat(name_, "_", i);
    it->second.push_back(
        MakeSlot(scope, primary, StrCat(primary.name(), "/", suffix), initial_[i]));
    MarkLike(primary, it->second.back());
  }
  return it->second;
}

std::vector<Variable> SlotOptimizer::variables() const {
  std::vector<Variable> all = globals_;
  for (const std::string& name : order_) {
    const std::vector<Variable>& slots = slots_.find(name)->second;
    all.insert(all.end(), slots.begin(), slots.end());
  }
  return all;
}

Status SlotOptimizer::CheckOptions() const {
  OptionChecks checks(StrCat("optimizer '", name_, "'"));
  if (rate_.is_number()) checks.Finite("learning_rate", rate_.number());
  Check(checks, rate_);
  return checks.status();
}

StatusOr<Operation> SlotOptimizer::ApplyGradients(const Scope& outer,
                                                  std::span<const GradientAndVariable> gradients,
                                                  const Variable* global_step,
                                                  std::source_location where) {
  MR_RETURN_IF_ERROR(CheckOptions());
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
      return errors::InvalidArgument("variable '", g.variable.name(), "' has no fully known shape");
    }
  }
  Prepare(scope, usable, global_step);
  for (const GradientAndVariable& g : usable) SlotsOf(scope, g.variable);
  const Scope named = scope.Named(name_);
  Output step;
  if (rate_.is_schedule())
    step = global_step != nullptr ? global_step->read : GlobalStep(scope).read;
  // One rate per device: nothing of it has to be sent.
  std::map<std::string, Output> rates;
  std::vector<Operation> updates;
  for (const GradientAndVariable& g : usable) {
    const Scope beside = named.ColocateWith(g.variable.handle);
    Output& rate = rates[g.variable.handle.op().device()];
    if (!rate.valid()) rate = rate_.At(rate_.is_schedule() ? beside : named, step);
    const bool sum = g.is_sparse() && !SumsDuplicates();
    const GradientAndVariable unique = sum ? SumDuplicates(beside, g) : g;
    const SlotUpdate u{beside, beside.WithOpName("update_" + g.variable.name()), unique,
                       SlotsOf(scope, g.variable), AsType(beside, rate, g.variable.dtype())};
    if (!scope.status().ok()) break;
    updates.push_back(g.is_sparse() ? SparseUpdate(u) : Update(u));
  }
  MR_RETURN_IF_ERROR(scope.status());
  for (const Operation& op : Finish(named, updates)) updates.push_back(op);
  MR_RETURN_IF_ERROR(scope.status());
  // As in TensorFlow, the whole has the optimizer's name. No node stands between the updates and
  // the step: on the device of the scope it would be a way there and back.
  if (global_step == nullptr) return Group(named.WithScopeName(), updates);
  const Operation step_op = AssignAdd(named.WithScopeName().WithControlDependencies(updates),
                                      *global_step, Tensor::Scalar<int64_t>(1));
  MR_RETURN_IF_ERROR(scope.status());
  return step_op;
}

}  // namespace millrace
