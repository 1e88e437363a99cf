// How the functions of a model are built for several replicas: each goes through the layers with
// its part of the batch, on its device; then losses, metrics, gradients and what layers changed
// become one, in the order of the replicas, and the weights are updated once.
#include <algorithm>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "model/replica_views.h"

namespace millrace::model {
namespace {

Expr Zero(const Scope& scope) { return Expr(scope, Constant(scope, Tensor::Scalar<float>(0))); }

// In the order of the values; those that are not valid are left out.
Output SumInOrder(const Scope& scope, std::span<const Output> values) {
  Output sum;
  for (const Output& value : values) {
    if (!value.valid()) continue;
    sum = sum.valid() ? ops::Add(scope, sum, value) : value;
  }
  return sum;
}

// `value` where the replica has samples, else zeros: of none, batch statistics are not numbers.
Output UnlessEmpty(const Scope& scope, const Output& rows, const Output& value) {
  return ops::SelectV2(scope, Expr(scope, rows) > 0, value, ops::ZerosLike(scope, value));
}

// The rows of all replicas one behind the other.
GradientAndVariable ConcatenatedRows(const Scope& scope, const Variable& variable,
                                     std::span<const GradientAndVariable> parts) {
  std::vector<Input> values, indices;
  for (const GradientAndVariable& part : parts) {
    if (!part.gradient.valid()) continue;
    values.emplace_back(part.gradient);
    indices.emplace_back(part.indices);
  }
  if (values.size() == 1) return {values[0].output(), variable, indices[0].output()};
  return {ops::ConcatV2(scope, values, 0), variable, ops::ConcatV2(scope, indices, 0)};
}

}  // namespace

// The part of the batch that each replica has, and its pass.
StatusOr<Steps::Replicas> Steps::GoThroughAll(Kind kind, const StepInputs& inputs,
                                              const Scope& scope, ReplicaViews* views) {
  // Predictions are made by each worker for itself, of all rows.
  const bool alone = kind == Kind::kPredict;
  const int local = strategy_->num_local_replicas();
  Replicas replicas;
  replicas.rows = CountSamples(scope, inputs.x[0]);
  replicas.shards.resize(static_cast<std::size_t>(local));
  const auto split = [&](const Output& batch, auto member) {
    if (!batch.valid()) return;
    const PerReplica parts = alone ? strategy_->SplitLocally(scope, batch, where_)
                                   : strategy_->Split(scope, batch, where_);
    for (std::size_t i = 0; i < replicas.shards.size(); ++i) {
      member(replicas.shards[i].inputs, parts.values[i]);
    }
  };
  for (const Output& x : inputs.x) {
    split(x, [](StepInputs& part, const Output& rows) { part.x.push_back(rows); });
  }
  split(inputs.y, [](StepInputs& part, const Output& rows) { part.y = rows; });
  split(inputs.sample_weight,
        [](StepInputs& part, const Output& rows) { part.sample_weight = rows; });
  std::vector<Pass> passes;
  passes.reserve(static_cast<std::size_t>(local));
  for (int i = 0; i < local; ++i) {
    const int id = strategy_->first_replica() + i;
    Shard& shard = replicas.shards[static_cast<std::size_t>(i)];
    replicas.scopes.push_back(strategy_->ReplicaScope(scope.Named(StrCat("replica_", id)), i));
    const Scope& s = replicas.scopes.back();
    shard.rows = CountSamples(s, shard.inputs.x[0]);
    passes.emplace_back(s, variables_, kind == Kind::kTrain);
    passes.back().SetReplica(alone ? 0 : id, views->Of(i, s), i > 0 ? &passes[0] : nullptr);
    MR_ASSIGN_OR_RETURN(Passed passed, GoThrough(kind, shard.inputs, &passes.back()));
    replicas.passed.push_back(std::move(passed));
  }
  return replicas;
}

// What the mean of a replica's loss is over: samples, or what of them counts.
Output Steps::CountsOf(const Scope& s, const Shard& shard, const Passed& passed) {
  const losses::Loss& loss = *compiled_->loss;
  if (loss.reduction() == losses::Reduction::kMeanWithSampleWeight &&
      shard.inputs.sample_weight.valid()) {
    return Expr(s, shard.inputs.sample_weight).Sum();
  }
  const losses::LossValues values =
      loss.Values(s.Named("counts"), shard.inputs.y, passed.y_pred, where_);
  std::vector<Expr> masks;
  for (const Output& mask : {passed.mask, values.mask}) {
    if (mask.valid()) masks.push_back(Expr(s, mask).Cast(kFloat));
  }
  if (masks.empty()) return shard.rows;
  Expr counts = masks[0];
  for (std::size_t i = 1; i < masks.size(); ++i) counts = counts * masks[i];
  return counts.Sum();
}

// What each replica minimises: their sum is the loss of the whole batch, or Keras' mean of
// replicas. `measured` gets the part of this process in the former.
std::vector<Output> Steps::Objectives(const Scope& scope, const Replicas& replicas,
                                      Output* measured) {
  const std::size_t local = replicas.passed.size();
  const bool has_data = replicas.passed[0].data_loss.valid();
  std::vector<Output> counts(local), exact(local), equal(local);
  Output count = replicas.rows;
  const bool is_sum = has_data && compiled_->loss->reduction() == losses::Reduction::kSum;
  if (has_data && !is_sum) {
    bool by_rows = true;
    for (std::size_t i = 0; i < local; ++i) {
      counts[i] = CountsOf(replicas.scopes[i], replicas.shards[i], replicas.passed[i]);
      by_rows = by_rows && counts[i] == replicas.shards[i].rows;
    }
    if (!by_rows) {
      const Output sum = SumInOrder(scope, counts);
      if (sum.valid()) count = strategy_->SumOverWorkers(scope, {{sum}}, where_)[0];
    }
  }
  const float share = 1.0f / static_cast<float>(strategy_->num_replicas_in_sync());
  for (std::size_t i = 0; i < local; ++i) {
    const Scope& s = replicas.scopes[i];
    const Passed& p = replicas.passed[i];
    const Expr rows(s, replicas.shards[i].rows);
    Expr weighed = Zero(s), mean = Zero(s);
    if (has_data) {
      const Expr data(s, p.data_loss);
      weighed = is_sum ? data : data * Expr(s, counts[i]).DivNoNan(count);
      mean = data * share;
    }
    if (p.added_loss.valid()) {
      const Expr added = weighed + Expr(s, p.added_loss) * rows.DivNoNan(replicas.rows);
      weighed = has_data ? added : Expr(s, p.added_loss) * rows.DivNoNan(replicas.rows);
      mean = mean + Expr(s, p.added_loss) * share;
    }
    exact[i] = weighed;
    equal[i] = mean;
  }
  *measured = SumInOrder(scope, exact);
  return compiled_->replica_loss == ReplicaLoss::kMeanOfReplicas ? equal : exact;
}

// Of all replicas of all workers.
StatusOr<std::vector<GradientAndVariable>> Steps::SumOfGradients(const Scope& scope,
                                                                 const Replicas& replicas,
                                                                 std::span<const Output> objectives,
                                                                 ReplicaViews* views) {
  const std::vector<Variable> trained = root_->trainable_weights();
  std::vector<std::vector<GradientAndVariable>> of_variable(trained.size());
  for (std::size_t i = 0; i < objectives.size(); ++i) {
    std::vector<Variable> own;
    for (const Variable& v : trained) own.push_back(views->Find(static_cast<int>(i), v));
    MR_ASSIGN_OR_RETURN(const std::vector<GradientAndVariable> gradients,
                        GradientsOf(replicas.scopes[i], objectives[i], std::move(own)));
    for (std::size_t k = 0; k < trained.size(); ++k) {
      GradientAndVariable g{gradients[k].gradient, trained[k], gradients[k].indices};
      if (g.gradient.valid() && views->has_copies()) {
        g.gradient = UnlessEmpty(replicas.scopes[i], replicas.shards[i].rows, g.gradient);
      }
      of_variable[k].push_back(std::move(g));
    }
  }
  std::vector<GradientAndVariable> sums;
  std::vector<Output> dense(trained.size());
  for (std::size_t k = 0; k < trained.size(); ++k) {
    const Scope beside = scope.ColocateWith(trained[k].handle);
    const auto is_dense = [](const GradientAndVariable& g) {
      return g.gradient.valid() && !g.is_sparse();
    };
    if (strategy_->num_workers() == 1 &&
        std::none_of(of_variable[k].begin(), of_variable[k].end(), is_dense) &&
        of_variable[k][0].gradient.valid()) {
      sums.push_back(ConcatenatedRows(beside, trained[k], of_variable[k]));
      continue;
    }
    std::vector<Output> parts;
    for (const GradientAndVariable& g : of_variable[k]) {
      parts.push_back(g.gradient.valid() ? DenseGradient(beside, g) : Output());
    }
    dense[k] = SumInOrder(beside, parts);
    if (dense[k].valid() && !dense[k].shape().IsFullyDefined()) {
      dense[k] = ops::EnsureShape(beside, dense[k], trained[k].shape());
    }
    sums.push_back({dense[k], trained[k]});
  }
  if (strategy_->num_workers() > 1) {
    const std::vector<Output> all = strategy_->SumOverWorkers(scope, dense, where_);
    for (std::size_t k = 0; k < sums.size(); ++k) sums[k].gradient = all[k];
  }
  MR_RETURN_IF_ERROR(graph_.status());
  return sums;
}

StatusOr<Operation> Steps::TakeStep(const Scope& scope, const Replicas& replicas,
                                    std::span<const Output> objectives,
                                    std::span<const Operation> measured, ReplicaViews* views) {
  MR_ASSIGN_OR_RETURN(const std::vector<GradientAndVariable> gradients,
                      SumOfGradients(scope, replicas, objectives, views));
  std::vector<Operation> before(measured.begin(), measured.end());
  for (const Output& objective : objectives) before.push_back(objective.op());
  std::vector<Output> rows;
  std::vector<std::vector<Operation>> updates;
  for (std::size_t i = 0; i < replicas.passed.size(); ++i) {
    rows.push_back(replicas.shards[i].rows);
    updates.push_back(replicas.passed[i].updates);
  }
  const bool only_first = compiled_->replica_loss == ReplicaLoss::kMeanOfReplicas;
  std::vector<Operation> done = views->Merge(scope, rows, updates, only_first, where_);
  MR_ASSIGN_OR_RETURN(const Operation applied, Apply(scope, gradients, std::move(before)));
  done.push_back(applied);
  return Group(scope.WithOpName("step"), done);
}

StatusOr<Steps::Function> Steps::MakeReplicated(Kind kind, const StepInputs& inputs) {
  const Scope scope = RootScope().Named(NameOf(kind));
  ReplicaViews views(strategy_.get(), graph_.root(), &copies_, kind == Kind::kTrain);
  MR_ASSIGN_OR_RETURN(const Replicas replicas, GoThroughAll(kind, inputs, scope, &views));
  Function function;
  std::vector<Operation> updates;
  for (const Passed& p : replicas.passed) {
    updates.insert(updates.end(), p.updates.begin(), p.updates.end());
  }
  if (kind == Kind::kPredict) {
    PerReplica predicted;
    for (const Passed& p : replicas.passed) predicted.values.push_back(p.y_pred);
    function.fetches = {strategy_->GatherLocal(scope, predicted, 0, where_)};
  } else {
    Output loss;
    const std::vector<Output> objectives = Objectives(scope, replicas, &loss);
    std::vector<Output> rows;
    for (const Shard& shard : replicas.shards) rows.push_back(shard.rows);
    const Expr own_rows(scope, SumInOrder(scope, rows));
    // The sums of all workers are the loss times the samples, and the samples.
    const Output own_loss = (Expr(scope, loss) * replicas.rows).DivNoNan(own_rows);
    MR_ASSIGN_OR_RETURN(Operation last, MeasureLoss(own_loss, own_rows));
    std::vector<Operation> measured = {last};
    last = Operation();
    for (std::size_t i = 0; i < replicas.passed.size(); ++i) {
      MR_ASSIGN_OR_RETURN(
          const std::vector<Operation> more,
          Measures(replicas.scopes[i], replicas.shards[i].inputs, replicas.passed[i], last));
      if (!more.empty()) last = Group(scope, more);
      measured.insert(measured.end(), more.begin(), more.end());
    }
    updates.insert(updates.end(), measured.begin(), measured.end());
    if (kind == Kind::kTrain) {
      MR_ASSIGN_OR_RETURN(const Operation stepped,
                          TakeStep(scope, replicas, objectives, measured, &views));
      updates.push_back(stepped);
    }
    function.fetches = ReadResults(scope.Named("results").WithControlDependencies(measured));
  }
  function.done = Group(scope.WithOpName("done"), updates);
  MR_RETURN_IF_ERROR(graph_.status());
  return function;
}

// Of all workers: their sums take the place of this one's for as long as the results are computed.
std::vector<Output> Steps::ReadResultsOfAll(const Scope& scope, std::vector<Operation>* after) {
  if (strategy_->num_workers() == 1) return ReadResults(scope);
  std::vector<Variable> variables;
  std::vector<Output> own;
  for (const Measure& measure : compiled_->measures) {
    for (const Variable& v : measure.metric->variables()) {
      variables.push_back(v);
      // A value of its own, which a later assignment does not change.
      own.push_back(ops::Add(scope, v.read, ops::ZerosLike(scope, v.read)));
    }
  }
  const std::vector<Output> all = strategy_->SumOverWorkers(scope, own, where_);
  std::vector<Operation> assigned, computed;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Scope all_read = scope.WithControlDependencies({own[i].op()});
    assigned.push_back(Assign(all_read, variables[i], all[i], where_));
  }
  const std::vector<Output> results = ReadResults(scope.WithControlDependencies(assigned));
  for (const Output& result : results) computed.push_back(result.op());
  const Scope last = scope.WithControlDependencies(computed);
  for (std::size_t i = 0; i < own.size(); ++i) {
    after->push_back(Assign(last, variables[i], own[i], where_));
  }
  return results;
}

// The chief's weights, and what else layers keep; the optimizer's begin with the same everywhere.
Status Steps::ShareInitialValues(std::span<const Variable> fresh) {
  if (strategy_->num_workers() == 1 || root_ == nullptr) return OkStatus();
  const std::vector<Variable> shared = root_->variables();
  const Scope scope = RootScope().Named("initial_values");
  std::vector<Operation> assigned;
  for (const Variable& v : shared) {
    const bool is_fresh = std::any_of(fresh.begin(), fresh.end(),
                                      [&](const Variable& f) { return f.handle == v.handle; });
    if (!is_fresh) continue;
    const Output value = strategy_->FromChief(scope, v.read, where_);
    assigned.push_back(Assign(scope, v, value, where_));
  }
  if (assigned.empty()) return OkStatus();
  MR_RETURN_IF_ERROR(graph_.status());
  return session_->Run({}, {}, assigned).status();
}

}  // namespace millrace::model
