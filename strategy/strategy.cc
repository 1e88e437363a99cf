// SPDX-License-Identifier: Apache-2.0
// What all strategies share: scopes, sessions, and how the values of replicas become one.
#include "millrace/strategy.h"

#include <algorithm>
#include <numeric>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "millrace/math.h"
#include "ranks/member_nodes.h"
#include "strategy/replica_threads.h"

namespace millrace {
namespace {

// What a mean is computed of: numbers of 16 bits in float, so that their mean is rounded once.
PerReplica SummandsOf(const Strategy& strategy, const Scope& scope, const PerReplica& values) {
  PerReplica summands = values;
  for (std::size_t i = 0; i < summands.values.size(); ++i) {
    Output& value = summands.values[i];
    if (!value.valid() || (value.dtype() != kHalf && value.dtype() != kBfloat16)) continue;
    const int local = std::min(static_cast<int>(i), strategy.num_local_replicas() - 1);
    value = ops::Cast(strategy.ReplicaScope(scope, local), value, kFloat);
  }
  return summands;
}

DataType TypeOf(const PerReplica& values) {
  for (const Output& value : values.values) {
    if (value.valid()) return value.dtype();
  }
  return DataType::kInvalid;
}

Output As(DataType dtype, const Scope& scope, const Output& value) {
  return !value.valid() || value.dtype() == dtype ? value : ops::Cast(scope, value, dtype);
}

Status CheckMean(ReduceOp op, const PerReplica& values) {
  for (const Output& value : values.values) {
    if (value.valid()) MR_RETURN_IF_ERROR(millrace::CheckMean(op, value.dtype()));
  }
  return OkStatus();
}

}  // namespace

std::string Strategy::Description() const {
  std::string devices;
  for (const std::string& device : layout_.devices) {
    StrAppend(&devices, devices.empty() ? "" : ", ", device.empty() ? "any device" : device);
  }
  std::string text = StrCat(name(), " with devices [", devices, "]");
  if (num_workers() > 1) {
    StrAppend(&text, ", worker ", worker(), " of ", num_workers(), ", replicas ", first_replica(),
              " to ", first_replica() + num_local_replicas() - 1, " of ", num_replicas_in_sync());
  }
  return text;
}

Scope Strategy::RootScope(const Scope& scope) const {
  return layout_.root_device.empty() ? scope : scope.WithDevice(layout_.root_device);
}

Scope Strategy::VariableScope(const Scope& scope) const {
  if (layout_.variable_device) return scope.WithDevice(layout_.variable_device);
  return RootScope(scope);
}

Scope Strategy::ReplicaScope(const Scope& scope, int local) const {
  const std::string& device = layout_.devices[static_cast<std::size_t>(local)];
  return device.empty() ? scope : scope.WithDevice(device);
}

Status Strategy::ConfigureSession(SessionOptions* options) const {
  if (layout_.is_led) {
    return errors::FailedPrecondition(
        "the strategy ", name(), " is led by a coordinator, which has a session at each worker: ",
        "schedule functions, or make another strategy for Fit");
  }
  if (!layout_.target.empty()) {
    if (!options->target.empty() && options->target != layout_.target) {
      return errors::InvalidArgument("SessionOptions.target is ", options->target,
                                     ", and the strategy ", Description(),
                                     " opens its sessions at ", layout_.target,
                                     ": leave the option out, or give StrategyOptions.target");
    }
    options->target = layout_.target;
  }
  if (!layout_.device_filter.empty() && options->device_filters.empty()) {
    options->device_filters = {layout_.device_filter};
  }
  if (options->target.empty() && options->num_cpu_devices < layout_.cpu_devices) {
    options->num_cpu_devices = layout_.cpu_devices;
  }
  return OkStatus();
}

std::vector<Output> Strategy::SumOverWorkers(const Scope&, std::span<const Output> values,
                                             std::source_location) {
  return {values.begin(), values.end()};
}

std::vector<Output> Strategy::GatherOverWorkers(const Scope&, std::span<const Output> values,
                                                std::source_location) {
  return {values.begin(), values.end()};
}

Output Strategy::FromChief(const Scope&, const Output& value, std::source_location) {
  return value;
}

// In the order of this process' replicas.
std::vector<Output> Strategy::SumLocally(const Scope& scope,
                                         std::span<const PerReplica> values) const {
  std::vector<Output> sums;
  for (const PerReplica& value : values) {
    Output sum;
    for (const Output& own : value.values) {
      if (own.valid()) sum = sum.valid() ? ops::Add(scope, sum, own) : own;
    }
    sums.push_back(sum);
  }
  return sums;
}

std::vector<Output> Strategy::SumOverReplicas(const Scope& outer,
                                              std::span<const PerReplica> values,
                                              std::source_location where) {
  const Scope scope = ReplicaScope(outer.CalledFrom(where), 0);
  if (layout_.is_deterministic && num_workers() > 1) return SumInOrder(scope, values, where);
  const std::vector<Output> sums = SumLocally(scope, values);
  return num_workers() > 1 ? SumOverWorkers(scope, sums, where) : sums;
}

std::vector<Output> Strategy::SumGradients(const Scope& outer, std::span<const PerReplica> values,
                                           std::source_location where) {
  if (num_workers() == 1 || layout_.compression == GradientCompression::kNone) {
    return SumOverReplicas(outer, values, where);
  }
  const Scope scope = ReplicaScope(outer.CalledFrom(where), 0);
  const DataType wire = layout_.compression == GradientCompression::kFp16 ? kHalf : kBfloat16;
  const std::vector<Output> own = SumLocally(scope, values);
  const auto rounds = [](const Output& value) {
    return value.valid() && (value.dtype() == kFloat || value.dtype() == kDouble);
  };
  std::vector<Output> sent = own;
  for (Output& value : sent) {
    if (rounds(value)) value = ops::Cast(scope, value, wire);
  }
  std::vector<Output> sums = SumOverWorkers(scope, sent, where);
  for (std::size_t k = 0; k < sums.size(); ++k) {
    if (sums[k].valid() && rounds(own[k])) sums[k] = ops::Cast(scope, sums[k], own[k].dtype());
  }
  return sums;
}

// Everybody gets what all replicas have, and adds it alike.
std::vector<Output> Strategy::SumInOrder(const Scope& scope, std::span<const PerReplica> values,
                                         std::source_location where) {
  std::vector<Output> own(values.size()), sums(values.size());
  for (std::size_t k = 0; k < values.size(); ++k) {
    const std::vector<Output>& of_replicas = values[k].values;
    const auto some = std::find_if(of_replicas.begin(), of_replicas.end(),
                                   [](const Output& value) { return value.valid(); });
    if (some == of_replicas.end()) continue;
    std::vector<Input> rows;
    for (const Output& value : of_replicas) {
      rows.emplace_back(value.valid() ? value : ops::ZerosLike(scope, *some));
    }
    own[k] = ops::Pack(scope, rows);
  }
  const std::vector<Output> all = GatherOverWorkers(scope, own, where);
  for (std::size_t k = 0; k < values.size(); ++k) {
    if (!all[k].valid()) continue;
    const std::vector<Output> parts = ops::Unpack(scope, all[k], num_replicas_in_sync());
    for (const Output& part : parts) {
      sums[k] = sums[k].valid() ? ops::Add(scope, sums[k], part) : part;
    }
  }
  return sums;
}

Output Strategy::Gather(const Scope& outer, const PerReplica& values, int axis,
                        std::source_location where) {
  const Scope scope = ReplicaScope(outer.CalledFrom(where).Named("GatherAll"), 0);
  const Output own = GatherLocal(scope, values, axis, where);
  if (num_workers() == 1 || !own.valid()) return own;
  const int rank = own.shape().has_rank() ? own.shape().rank() : -1;
  if (axis < -rank || axis >= rank) {
    scope.RecordError(errors::InvalidArgument(own.name(), " of shape ", own.shape().DebugString(),
                                              " has no axis ", axis, " to be gathered along"),
                      where);
    return Output();
  }
  // Workers gather along the first axis: the one that is meant changes places with it, twice.
  std::vector<int32_t> turned(static_cast<std::size_t>(rank));
  std::iota(turned.begin(), turned.end(), 0);
  std::swap(turned[0], turned[static_cast<std::size_t>(axis < 0 ? axis + rank : axis)]);
  if (turned[0] == 0) return GatherOverWorkers(scope, {{own}}, where)[0];
  const Tensor places = Tensor::FromValues<int32_t>(turned, Shape({rank}));
  const Output first = ops::Transpose(scope, own, places);
  return ops::Transpose(scope, GatherOverWorkers(scope, {{first}}, where)[0], places);
}

StatusOr<std::vector<PerReplica>> Strategy::Run(const Scope& scope, const ReplicaFunction& function,
                                                std::source_location where) {
  std::vector<Scope> scopes;
  for (int i = 0; i < num_local_replicas(); ++i) {
    const Scope named =
        num_replicas_in_sync() == 1 ? scope : scope.Named(StrCat("replica_", first_replica() + i));
    scopes.push_back(ReplicaScope(named.CalledFrom(where), i));
  }
  ReplicaThreads threads(this, scope.CalledFrom(where), scopes);
  return threads.Run(function);
}

Output Strategy::Reduce(const Scope& outer, ReduceOp op, const PerReplica& values,
                        std::source_location where) {
  const Scope scope = ReplicaScope(outer.CalledFrom(where).Named("Reduce"), 0);
  if (values.values.empty()) {
    scope.RecordError(errors::InvalidArgument("there are no values to reduce"), where);
    return Output();
  }
  if (op != ReduceOp::kSum && op != ReduceOp::kMean) {
    scope.RecordError(errors::Unimplemented("the ", ReduceOpName(op),
                                            " over replicas: strategies "
                                            "sum and average (ProcessGroup does the others, "
                                            "between tasks)"),
                      where);
    return Output();
  }
  if (const Status s = CheckMean(op, values); !s.ok()) {
    scope.RecordError(s, where);
    return Output();
  }
  if (op == ReduceOp::kSum || num_replicas_in_sync() == 1) {
    return SumOverReplicas(scope, {{values}}, where)[0];
  }
  const PerReplica summands = SummandsOf(*this, scope, values);
  const Output sum = SumOverReplicas(scope, {{summands}}, where)[0];
  if (!sum.valid()) return sum;
  const Expr count = Expr(scope, Constant(scope, Tensor::Scalar<int32_t>(num_replicas_in_sync())));
  return As(TypeOf(values), scope, Expr(scope, sum) / count.Cast(sum.dtype()));
}

Output Strategy::Reduce(const Scope& outer, ReduceOp op, const PerReplica& values, int axis,
                        std::source_location where) {
  const Scope scope = outer.CalledFrom(where).Named("ReduceAxis");
  if (const Status s = CheckMean(op, values); !s.ok()) {
    scope.RecordError(s, where);
    return Output();
  }
  const PerReplica summands = op == ReduceOp::kMean ? SummandsOf(*this, scope, values) : values;
  PerReplica sums, sizes;
  for (std::size_t i = 0; i < summands.values.size(); ++i) {
    const Scope s = ReplicaScope(scope, static_cast<int>(i));
    const Expr value(s, summands.values[i]);
    sums.values.push_back(value.Sum({axis}));
    const Expr size(s, ops::GatherV2(s, ops::Shape(s, value), axis, 0));
    sizes.values.push_back(size.Cast(value.dtype()));
  }
  const Output sum = Reduce(scope, op == ReduceOp::kMean ? ReduceOp::kSum : op, sums, where);
  if (op != ReduceOp::kMean) return sum;
  const Expr mean = Expr(scope, sum).DivNoNan(Reduce(scope, ReduceOp::kSum, sizes, where));
  return As(TypeOf(values), scope, mean);
}

Output Strategy::GatherLocal(const Scope& scope, const PerReplica& values, int axis,
                             std::source_location where) {
  if (values.values.size() == 1) return values.values[0];
  const Scope s = ReplicaScope(scope.CalledFrom(where).Named("Gather"), 0);
  return ops::ConcatV2(s, std::vector<Input>(values.values.begin(), values.values.end()), axis);
}

PerReplica Strategy::Split(const Scope& scope, const Output& batch, std::source_location where) {
  return Split(scope, batch, first_replica(), num_replicas_in_sync(), where);
}

PerReplica Strategy::SplitLocally(const Scope& scope, const Output& batch,
                                  std::source_location where) {
  return Split(scope, batch, 0, num_local_replicas(), where);
}

PerReplica Strategy::Split(const Scope& outer, const Output& batch, int first, int replicas,
                           std::source_location where) {
  if (replicas == 1) return {{batch}};
  const Scope scope = outer.CalledFrom(where).Named("Split");
  if (!batch.shape().has_rank() || batch.shape().rank() == 0) {
    scope.RecordError(
        errors::InvalidArgument(batch.name(), " of shape ", batch.shape().DebugString(),
                                " has no first axis to be split along"),
        where);
    return {std::vector<Output>(layout_.devices.size())};
  }
  const Expr rows = Expr(scope, ops::StridedSlice(scope, ops::Shape(scope, batch), {0}, {1}, {1}));
  const Expr chunk(scope, ops::FloorDiv(scope, rows + (replicas - 1), replicas));
  PerReplica shards;
  for (int i = 0; i < num_local_replicas(); ++i) {
    const int id = first + i;
    const Output begin = (chunk * id).Min(rows);
    const Output end = (chunk * (id + 1)).Min(rows);
    shards.values.push_back(ops::StridedSlice(ReplicaScope(scope, i), batch, begin, end, {1}));
  }
  return shards;
}

PerReplica Strategy::ValuesOf(const Scope& scope,
                              const std::function<Output(const Scope& scope, int replica)>& value) {
  PerReplica values;
  for (int i = 0; i < num_local_replicas(); ++i) {
    values.values.push_back(value(ReplicaScope(scope, i), first_replica() + i));
  }
  return values;
}

}  // namespace millrace
