#include "model/replica_views.h"

#include <algorithm>

#include "base/strings.h"
#include "millrace/math.h"

namespace millrace::model {

Steps::ReplicaViews::Seen& Steps::ReplicaViews::Entry(const Variable& variable) {
  const auto found = std::find_if(seen_.begin(), seen_.end(), [&](const Seen& seen) {
    return seen.variable.handle == variable.handle;
  });
  if (found != seen_.end()) return *found;
  seen_.push_back({variable, {}, false});
  return seen_.back();
}

Variable Steps::ReplicaViews::Copy(int local, const Scope& scope, const Variable& v) {
  const std::string name = StrCat(v.name(), "/replica_", strategy_.first_replica() + local);
  auto found = copies_.find(name);
  if (found == copies_.end()) {
    const Scope place = strategy_.ReplicaScope(root_, local);
    const Variable made = MakeVariable(place, name, Zeros(place, *v.shape().AsShape(), v.dtype()),
                                       {.trainable = false, .local = true});
    if (!made.handle.valid()) return made;
    found = copies_.emplace(name, made).first;
  }
  Variable copy = found->second;
  const Operation refreshed = Assign(scope, copy, v.read);
  copy.read = ops::Identity(scope.WithControlDependencies({refreshed}), copy.handle);
  return copy;
}

Pass::LocalVariable Steps::ReplicaViews::Of(int local, const Scope& outer) {
  const Scope scope = outer.WithoutControlDependencies().Named("variables");
  return [this, local, scope](const Variable& variable, bool trained) {
    Seen& seen = Entry(variable);
    const auto found = seen.own.find(local);
    if (found != seen.own.end()) return found->second;
    Variable own = variable;
    if (trained || !training_) {
      own.read = ops::Identity(scope, variable.read);
      own.handle = own.read;
    } else {
      own = Copy(local, scope, variable);
      seen.is_copied = true;
      has_copies_ = true;
    }
    seen.own.emplace(local, own);
    return own;
  };
}

Variable Steps::ReplicaViews::Find(int local, const Variable& variable) const {
  for (const Seen& seen : seen_) {
    if (!(seen.variable.handle == variable.handle)) continue;
    const auto found = seen.own.find(local);
    if (found != seen.own.end()) return found->second;
  }
  return variable;
}

std::vector<Operation> Steps::ReplicaViews::Merge(const Scope& scope, std::span<const Output> rows,
                                                  std::span<const std::vector<Operation>> updates,
                                                  bool only_first, std::source_location where) {
  const auto changes = [&](const Variable& copy) {
    return std::any_of(updates[0].begin(), updates[0].end(), [&](const Operation& update) {
      return update.num_inputs() > 0 && update.input(0).op() == copy.handle.op();
    });
  };
  std::vector<Output> counts;  // whether what the replica says is taken, bool scalars
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const bool is_first = strategy_.first_replica() == 0 && i == 0;
    counts.push_back(only_first ? Constant(scope, Tensor::Scalar<bool>(is_first))
                                : (Expr(scope, rows[i]) > 0).output());
  }
  std::vector<Operation> assigned;
  std::vector<Variable> variables;
  std::vector<Output> sums;
  for (const Seen& seen : seen_) {
    if (!seen.is_copied || !changes(seen.own.at(0))) continue;
    const bool is_float = seen.variable.dtype() == kFloat || seen.variable.dtype() == kDouble;
    Output sum;
    for (const auto& [local, copy] : seen.own) {
      const std::size_t i = static_cast<std::size_t>(local);
      const Scope after = strategy_.ReplicaScope(scope.WithControlDependencies(updates[i]), local);
      const Output value = ops::Identity(after, copy.handle);
      if (!is_float) {
        if (local == 0) assigned.push_back(Assign(scope, seen.variable, value, where));
        continue;
      }
      const Output part = ops::SelectV2(after, counts[i], value, ops::ZerosLike(after, value));
      sum = sum.valid() ? ops::Add(scope, sum, part) : part;
    }
    if (!is_float) continue;
    variables.push_back(seen.variable);
    sums.push_back(sum);
  }
  if (variables.empty()) return assigned;
  Expr replicas(scope, Constant(scope, Tensor::Scalar<float>(0)));
  for (const Output& own : counts) replicas = replicas + Expr(scope, own).Cast(kFloat).output();
  sums.push_back(replicas);
  const std::vector<Output> all = strategy_.SumOverWorkers(scope, sums, where);
  const Expr count(scope, all.back());
  for (std::size_t k = 0; k < variables.size(); ++k) {
    const Expr mean = Expr(scope, all[k]) / count.Cast(variables[k].dtype());
    const Output value = ops::SelectV2(scope, count > 0, mean, variables[k].read);
    assigned.push_back(Assign(scope, variables[k], value, where));
  }
  return assigned;
}

}  // namespace millrace::model
