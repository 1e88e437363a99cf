// SPDX-License-Identifier: Apache-2.0
#include "model/replica_views.h"

#include <algorithm>

#include "base/strings.h"
#include "millrace/distributed_values.h"
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

// The variable of this name on the replica's device; no handle on an error.
Variable Steps::ReplicaViews::Made(int local, const std::string& name, const Output& initial) {
  const auto found = copies_.find(name);
  if (found != copies_.end()) return found->second;
  const Variable made = MakeReplicaVariable(strategy_.ReplicaScope(root_, local), name, initial);
  if (made.handle.valid()) copies_.emplace(name, made);
  return made;
}

// What has the variable's value between steps, beside the replica.
Variable Steps::ReplicaViews::Mirror(int local, const Variable& v) {
  if (local == 0 || !strategy_.mirrors_variables()) return v;
  const std::string name = StrCat(v.name(), "/replica_", strategy_.first_replica() + local);
  const bool is_new = !copies_.contains(name);
  const Variable mirror = Made(local, name, v.read);
  if (is_new && mirror.handle.valid()) AddCopy(v, mirror, CopiesAre::kEqual);
  return mirror;
}

Variable Steps::ReplicaViews::Copy(int local, const Scope& scope, const Variable& v) {
  const Output now = Mirror(local, v).read;
  if (!now.valid()) return Variable();
  const int id = strategy_.first_replica() + local;
  Variable copy = Made(local, StrCat(v.name(), "/changed_by_replica_", id), v.read);
  if (!copy.handle.valid()) return copy;
  const Operation refreshed = Assign(scope, copy, now);
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
    if (variable.is_resource()) {
      // Of tables rows are taken where they lie.
      const Scope beside = scope.WithDevice(variable.handle.op().device());
      own.handle = ops::Identity(beside, variable.handle);
      own.read = ops::ReadVariableOp(beside, own.handle, variable.dtype());
    } else if ((trained || !training_) && strategy_.mirrors_variables()) {
      own = Mirror(local, variable);
    } else if (trained || !training_) {
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
  std::vector<PerReplica> parts;
  for (const Seen& seen : seen_) {
    if (!seen.is_copied || !changes(seen.own.at(0))) continue;
    const bool is_float = seen.variable.dtype() == kFloat || seen.variable.dtype() == kDouble;
    PerReplica taken;
    for (const auto& [local, copy] : seen.own) {
      const std::size_t i = static_cast<std::size_t>(local);
      const Scope after = strategy_.ReplicaScope(scope.WithControlDependencies(updates[i]), local);
      const Output value = ops::Identity(after, copy.handle);
      if (!is_float) {
        if (local == 0) assigned.push_back(AssignWhole(scope, seen.variable, value, where));
        continue;
      }
      taken.values.push_back(ops::SelectV2(after, counts[i], value, ops::ZerosLike(after, value)));
    }
    if (!is_float) continue;
    variables.push_back(seen.variable);
    parts.push_back(std::move(taken));
  }
  if (variables.empty()) return assigned;
  PerReplica& taken = parts.emplace_back();
  for (const Output& own : counts) taken.values.push_back(Expr(scope, own).Cast(kFloat));
  const std::vector<Output> all = strategy_.SumOverReplicas(scope, parts, where);
  const Expr count(scope, all.back());
  for (std::size_t k = 0; k < variables.size(); ++k) {
    const Expr mean = Expr(scope, all[k]) / count.Cast(variables[k].dtype());
    const Output value = ops::SelectV2(scope, count > 0, mean, variables[k].read);
    assigned.push_back(AssignWhole(scope, variables[k], value, where));
  }
  return assigned;
}

}  // namespace millrace::model
