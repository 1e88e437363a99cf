// What all strategies share: scopes, sessions, and how the values of replicas become one.
#include "millrace/strategy.h"

#include "base/errors.h"
#include "base/strings.h"
#include "millrace/math.h"
#include "strategy/replica_threads.h"

namespace millrace {

std::string Strategy::Description() const {
  std::string devices;
  for (const std::string& device : layout_.devices) {
    StrAppend(&devices, devices.empty() ? "" : ", ", device.empty() ? "any device" : device);
  }
  std::string text = StrCat(name(), " with devices [", devices, "]");
  if (num_workers() > 1) {
    StrAppend(&text, ", worker ", first_replica() / num_local_replicas(), " of ", num_workers());
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

Output Strategy::FromChief(const Scope&, const Output& value, std::source_location) {
  return value;
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
  Output sum = values.values[0];
  for (std::size_t i = 1; i < values.values.size(); ++i) {
    sum = ops::Add(scope, sum, values.values[i]);
  }
  if (num_workers() > 1) sum = SumOverWorkers(scope, {{sum}}, where)[0];
  if (op == ReduceOp::kSum || num_replicas_in_sync() == 1) return sum;
  const Expr count = Expr(scope, Constant(scope, Tensor::Scalar<int32_t>(num_replicas_in_sync())));
  return Expr(scope, sum) / count.Cast(sum.dtype());
}

Output Strategy::Reduce(const Scope& outer, ReduceOp op, const PerReplica& values, int axis,
                        std::source_location where) {
  const Scope scope = outer.CalledFrom(where).Named("ReduceAxis");
  PerReplica sums, sizes;
  for (std::size_t i = 0; i < values.values.size(); ++i) {
    const Scope s = ReplicaScope(scope, static_cast<int>(i));
    const Expr value(s, values.values[i]);
    sums.values.push_back(value.Sum({axis}));
    const Expr size(s, ops::GatherV2(s, ops::Shape(s, value), axis, 0));
    sizes.values.push_back(size.Cast(value.dtype()));
  }
  const Output sum = Reduce(scope, ReduceOp::kSum, sums, where);
  if (op == ReduceOp::kSum) return sum;
  return Expr(scope, sum).DivNoNan(Reduce(scope, ReduceOp::kSum, sizes, where));
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
