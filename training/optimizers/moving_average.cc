// SPDX-License-Identifier: Apache-2.0
#include "base/errors.h"
#include "base/strings.h"
#include "millrace/math.h"
#include "training/optimizers/slot_optimizer.h"

namespace millrace {

Operation MovingAverage::Apply(const Scope& scope, std::span<const Variable> variables,
                               std::source_location where) {
  const Scope root = scope.CalledFrom(where);
  const Scope s = root.Named("ExponentialMovingAverage");
  std::vector<Operation> updates;
  for (const Variable& v : variables) {
    if (!v.shape().AsShape()) {
      root.RecordError(
          errors::InvalidArgument("variable '", v.name(), "' has no fully known shape"), where);
      return Operation();
    }
    const Scope beside = s.ColocateWith(v.handle);
    const Output now = ReadNow(beside, v);
    const std::string name = StrCat(v.name(), "/ExponentialMovingAverage");
    Expr keep(beside, Constant(beside, Tensor::Scalar<float>(static_cast<float>(options_.decay))));
    if (options_.num_updates.valid()) {
      const Expr n = Expr(beside, options_.num_updates).Cast(kFloat);
      keep = keep.Min((1.0 + n) / (10.0 + n));
    }
    const Expr change = (1.0 - keep).Cast(v.dtype());
    const Variable average =
        MakeVariable(root.ColocateWith(v.handle).WithoutControlDependencies(), name,
                     v.initial_value, {.trainable = false, .use_resource = v.is_resource()});
    averages_.emplace_back(v.name(), average);
    const Expr step = (Expr(beside, average.read) - now) * change;
    updates.push_back(AssignAdd(beside, average, -step));
  }
  return Group(s.WithScopeName(), updates);
}

Variable MovingAverage::Average(const Variable& variable) const {
  for (const auto& [name, average] : averages_) {
    if (name == variable.name()) return average;
  }
  return Variable();
}

}  // namespace millrace
