// SPDX-License-Identifier: Apache-2.0
// Variables with a copy for every replica: who may change them how, and what they are together.
#include <optional>

#include "base/errors.h"
#include "base/strings.h"
#include "millrace/distributed_values.h"
#include "millrace/math.h"
#include "millrace/strategy.h"

namespace millrace {
namespace {

using Update = DistributedVariable::Update;

const char* NameOf(Update update) {
  return update == Update::kAssign ? "assign"
         : update == Update::kAdd  ? "assign_add"
                                   : "assign_sub";
}

const char* NameOf(VariableAggregation aggregation) {
  switch (aggregation) {
    case VariableAggregation::kSum:
      return "SUM";
    case VariableAggregation::kMean:
      return "MEAN";
    case VariableAggregation::kOnlyFirstReplica:
      return "ONLY_FIRST_REPLICA";
    default:
      return "NONE";
  }
}

Operation Change(const Scope& scope, const Variable& v, Update update, const Output& value,
                 std::source_location where) {
  switch (update) {
    case Update::kAdd:
      return AssignAdd(scope, v, value, where);
    case Update::kSubtract:
      return AssignAdd(scope, v, ops::Neg(scope, value), where);
    default:
      return Assign(scope, v, value, where);
  }
}

Output ReadNow(const Scope& scope, const Variable& v) {
  return v.is_resource() ? ops::ReadVariableOp(scope, v.handle, v.dtype())
                         : ops::Identity(scope, v.handle);
}

bool IsFloat(DataType dtype) {
  return dtype == kFloat || dtype == kDouble || dtype == kHalf || dtype == kBfloat16;
}

bool IsOnRead(const DistributedVariableOptions& o) {
  return o.synchronization == VariableSynchronization::kOnRead;
}

// For checkpoints; none: they keep the first copy and restore that alone.
std::optional<CopiesAre> WhatCopiesAre(const DistributedVariableOptions& o) {
  if (!IsOnRead(o)) return CopiesAre::kEqual;
  switch (o.aggregation) {
    case VariableAggregation::kSum:
      return CopiesAre::kSum;
    case VariableAggregation::kMean:
      return CopiesAre::kMean;
    case VariableAggregation::kOnlyFirstReplica:
      return CopiesAre::kEqual;
    default:
      return std::nullopt;
  }
}

}  // namespace

DistributedVariable Strategy::MakeVariable(const Scope& outer, std::string_view name,
                                           const Output& initial_value,
                                           const DistributedVariableOptions& options,
                                           std::source_location where) {
  DistributedVariable made;
  made.strategy_ = this;
  made.options_ = options;
  const Scope scope = outer.CalledFrom(where);
  if (options.synchronization == VariableSynchronization::kNone) {
    scope.RecordError(
        errors::InvalidArgument(
            "`NONE` variable synchronization mode is not supported with a strategy: variable '",
            name, "' takes kAuto, kOnWrite or kOnRead"),
        where);
    return made;
  }
  if (initial_value.valid() && options.aggregation == VariableAggregation::kMean &&
      !IsFloat(initial_value.dtype())) {
    scope.RecordError(errors::InvalidArgument(
                          "variable '", name, "' is of type ", DataTypeName(initial_value.dtype()),
                          ", of which there is no mean: choose another aggregation"),
                      where);
    return made;
  }
  const Variable primary = millrace::MakeVariable(VariableScope(scope), name, initial_value,
                                                  {.trainable = options.trainable}, where);
  if (!primary.handle.valid()) return made;
  made.copies_.push_back(primary);
  const std::optional<CopiesAre> are = WhatCopiesAre(options);
  for (int i = 1; i < num_local_replicas(); ++i) {
    // All copies begin with the value that was drawn for the first.
    const Scope after = scope.WithControlDependencies({primary.initializer});
    made.copies_.push_back(millrace::MakeVariable(
        ReplicaScope(scope, i), StrCat(name, "/replica_", i), ReadNow(after, primary),
        {.trainable = false, .local = true}, where));
    if (are && made.copies_.back().handle.valid()) AddCopy(primary, made.copies_.back(), *are);
  }
  return made;
}

Output DistributedVariable::Read(ReplicaContext& context) const {
  if (copies_.empty()) return Output();
  return ReadNow(context.scope(), copies_[static_cast<std::size_t>(context.local_replica())]);
}

Operation DistributedVariable::Apply(ReplicaContext& context, Update update, const Output& value,
                                     std::source_location where) const {
  if (copies_.empty()) return Operation();
  const std::size_t local = static_cast<std::size_t>(context.local_replica());
  if (IsOnRead(options_)) {
    return Change(context.scope(), copies_[local], update, value, where);
  }
  const VariableAggregation aggregation = options_.aggregation;
  if (aggregation == VariableAggregation::kNone) {
    context.scope().RecordError(
        errors::InvalidArgument(
            "You must specify an aggregation method to update a variable in Replica Context. (",
            NameOf(update), " of '", copies_[0].name(),
            "': give DistributedVariableOptions.aggregation)"),
        where);
    return Operation();
  }
  const Output one = context.MergeCall(value, [&](const Scope& scope, const PerReplica& values) {
    if (aggregation == VariableAggregation::kOnlyFirstReplica) {
      const Output first = strategy_->FromChief(scope, values.values[0], where);
      return std::vector<Output>(values.values.size(), first);
    }
    const ReduceOp op = aggregation == VariableAggregation::kSum ? ReduceOp::kSum : ReduceOp::kMean;
    return std::vector<Output>(values.values.size(), strategy_->Reduce(scope, op, values, where));
  });
  if (!one.valid()) return Operation();
  return Change(context.scope(), copies_[local], update, one, where);
}

Output DistributedVariable::Read(const Scope& outer, std::source_location where) const {
  if (copies_.empty()) return Output();
  const Scope scope = outer.CalledFrom(where);
  if (!IsOnRead(options_) || options_.aggregation == VariableAggregation::kOnlyFirstReplica) {
    return ReadNow(scope, copies_[0]);
  }
  if (options_.aggregation == VariableAggregation::kNone) {
    scope.RecordError(
        errors::InvalidArgument(
            "Could not convert from `VariableAggregation` NONE to one value: variable '",
            copies_[0].name(), "' is read outside of its replicas; read it within, or choose ",
            "another aggregation"),
        where);
    return Output();
  }
  PerReplica values;
  for (const Variable& copy : copies_) values.values.push_back(ReadNow(scope, copy));
  return strategy_->Reduce(
      scope, options_.aggregation == VariableAggregation::kSum ? ReduceOp::kSum : ReduceOp::kMean,
      values, where);
}

Operation DistributedVariable::Apply(const Scope& outer, Update update, const Output& value,
                                     std::source_location where) const {
  if (copies_.empty()) return Operation();
  const Scope scope = outer.CalledFrom(where);
  Output each = value;
  if (IsOnRead(options_) && options_.aggregation == VariableAggregation::kSum) {
    if (update != Update::kAssign) {
      scope.RecordError(
          errors::InvalidArgument("SyncOnReadVariable does not support `", NameOf(update),
                                  "` in cross-replica context when aggregation is set to `",
                                  NameOf(options_.aggregation), "`: assign '", copies_[0].name(),
                                  "', or update it in its replicas"),
          where);
      return Operation();
    }
    const Expr count(scope,
                     Constant(scope, Tensor::Scalar<int32_t>(strategy_->num_replicas_in_sync())));
    const Expr whole(scope, value);
    each = IsFloat(value.dtype()) ? (whole / count.Cast(value.dtype())).output()
                                  : ops::FloorDiv(scope, whole, count.Cast(value.dtype()));
  }
  std::vector<Operation> changes;
  for (const Variable& copy : copies_) {
    changes.push_back(Change(scope, copy, update, each, where));
  }
  return Group(scope, changes, where);
}

}  // namespace millrace
