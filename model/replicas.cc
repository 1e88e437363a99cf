// SPDX-License-Identifier: Apache-2.0
// How the functions of a model are built for several replicas: each goes through the layers with
// its part of the batch, on its device; then losses, metrics, gradients and what layers changed
// become one, in the order of the replicas, and the weights are updated once.
#include <algorithm>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "frontend/graph_builder.h"
#include "millrace/distributed_values.h"
#include "model/layers/layer_util.h"
#include "model/numeric_checks.h"
#include "model/replica_views.h"

namespace millrace::model {
namespace {

// In the order of the values; those that are not valid are left out.
Output SumInOrder(const Scope& scope, std::span<const Output> values) {
  Output sum;
  for (const Output& value : values) {
    if (!value.valid()) continue;
    sum = sum.valid() ? ops::Add(scope, sum, value) : value;
  }
  return sum;
}

// Nodes that are made while it lives ask for the device that what they use is on: the last input
// that asks for one, which is that of the pass where one comes from there and another from a sum.
class DevicesOfInputs {
 public:
  DevicesOfInputs(Graph* graph, std::string otherwise)
      : state_(*graph->root().graph()),
        first_(state_.graph->num_node_ids()),
        otherwise_(std::move(otherwise)) {}

  void Put() const {
    for (int id = first_; id < state_.graph->num_node_ids(); ++id) {
      Node* const node = state_.graph->node(id);
      const Operation op(&state_, node);
      if (node == nullptr || !op.device().empty() || op.attr("_class").has_value()) continue;
      std::string device = otherwise_;
      for (int i = 0; i < op.num_inputs(); ++i) {
        const Operation input = op.input(i).op();
        if (input.valid() && !input.device().empty()) device = input.device();
      }
      node->set_requested_device(device);
    }
  }

 private:
  GraphState& state_;
  const int first_;
  const std::string otherwise_;
};

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

// The rows of a batch that each replica of this process has: of all, or `alone` of this process.
std::vector<StepInputs> Steps::SplitInputs(const StepInputs& inputs, const Scope& scope,
                                           bool alone) {
  std::vector<StepInputs> parts(static_cast<std::size_t>(strategy_->num_local_replicas()));
  const auto split = [&](const Output& batch, auto member) {
    if (!batch.valid()) return;
    const PerReplica rows = alone ? strategy_->SplitLocally(scope, batch, where_)
                                  : strategy_->Split(scope, batch, where_);
    for (std::size_t i = 0; i < parts.size(); ++i) member(parts[i], rows.values[i]);
  };
  for (const Output& x : inputs.x) {
    split(x, [](StepInputs& part, const Output& rows) { part.x.push_back(rows); });
  }
  for (const Output& y : inputs.y) {
    split(y, [](StepInputs& part, const Output& rows) { part.y.push_back(rows); });
  }
  split(inputs.sample_weight,
        [](StepInputs& part, const Output& rows) { part.sample_weight = rows; });
  return parts;
}

// Of all replicas: by an all-reduce between workers, whatever other sums are made of.
Output Steps::SumThatHasADerivative(ReplicaContext* context, const Output& value) {
  const Output all = context->MergeCall(value, [&](const Scope& scope, const PerReplica& values) {
    const Scope first = strategy_->ReplicaScope(scope, 0);
    const Output own = SumInOrder(first, values.values);
    const Output sum = strategy_->SumOverWorkers(first, {{own}}, where_)[0];
    return std::vector<Output>(values.values.size(), sum);
  });
  return all.valid() ? ops::Identity(context->scope(), all) : all;
}

// The part of the batch that each replica has, and its pass.
StatusOr<Steps::Replicas> Steps::GoThroughAll(Kind kind, const StepInputs& inputs,
                                              const Scope& scope, ReplicaViews* views) {
  // Predictions are made by each worker for itself, of all rows.
  const bool alone = kind == Kind::kPredict;
  const int local = strategy_->num_local_replicas();
  Replicas replicas;
  const std::vector<StepInputs> parts =
      inputs.parts.empty() ? SplitInputs(inputs, scope, alone) : inputs.parts;
  replicas.rows = inputs.parts.empty() ? CountSamples(scope, inputs.x[0]) : inputs.rows;
  for (const StepInputs& part : parts) replicas.shards.push_back({part, Output()});
  std::vector<Pass> passes;
  passes.reserve(static_cast<std::size_t>(local));
  // One after the other, but where layers wait for what the others bring.
  const auto go_through = [&](ReplicaContext& context) -> Status {
    const int i = context.local_replica();
    Shard& shard = replicas.shards[static_cast<std::size_t>(i)];
    const Scope& s = replicas.scopes.emplace_back(context.scope());
    shard.rows = CountSamples(s, shard.inputs.x[0]);
    Pass& pass = passes.emplace_back(s, variables_, kind == Kind::kTrain);
    pass.SetPrecision(options_.precision, where_);
    pass.SetPartitioner(strategy_->variable_partitioner());
    pass.SetReplica(alone ? 0 : context.replica_id_in_sync_group(), views->Of(i, s),
                    i > 0 ? &passes[0] : nullptr);
    pass.SetSumOverReplicas([&](const Output& value) {
      replicas.depend_on_each_other = true;
      return SumThatHasADerivative(&context, value);
    });
    MR_ASSIGN_OR_RETURN(replicas.passed[static_cast<std::size_t>(i)],
                        GoThrough(kind, shard.inputs, &pass));
    return OkStatus();
  };
  replicas.scopes.reserve(static_cast<std::size_t>(local));
  replicas.passed.resize(static_cast<std::size_t>(local));
  Status status;
  const auto went = strategy_->Run(
      scope,
      [&](ReplicaContext& context) {
        const Status own = go_through(context);
        if (status.ok()) status = own;
        return std::vector<Output>();
      },
      where_);
  MR_RETURN_IF_ERROR(status);
  MR_RETURN_IF_ERROR(went.status());
  return replicas;
}

// What the mean of a replica's loss is over: samples, or what of them counts.
Output Steps::CountsOf(const Scope& s, const Shard& shard, const Passed& passed,
                       std::size_t output) {
  const losses::Loss& loss = *compiled_->losses[output].loss;
  const Predicted& predicted = passed.outputs[output];
  if (loss.reduction() == losses::Reduction::kMeanWithSampleWeight &&
      shard.inputs.sample_weight.valid()) {
    return Expr(s, shard.inputs.sample_weight).Sum();
  }
  const losses::LossValues values =
      loss.Values(s.Named("counts"), shard.inputs.y[output], predicted.y_pred, where_);
  std::vector<Expr> masks;
  for (const Output& mask : {predicted.mask, values.mask}) {
    if (mask.valid()) masks.push_back(Expr(s, mask).Cast(kFloat));
  }
  if (masks.empty()) return shard.rows;
  Expr counts = masks[0];
  for (std::size_t i = 1; i < masks.size(); ++i) counts = counts * masks[i];
  return counts.Sum();
}

// Adds the loss of one output to what each replica minimises, by samples and by replicas.
void Steps::AddDataObjectives(const Scope& scope, const Replicas& replicas, std::size_t output,
                              std::vector<Output>* exact, std::vector<Output>* equal) {
  const std::size_t local = replicas.passed.size();
  const OutputLoss& of_output = compiled_->losses[output];
  const bool is_sum = of_output.loss->reduction() == losses::Reduction::kSum;
  std::vector<Output> counts(local);
  Output count = replicas.rows;
  if (!is_sum) {
    bool by_rows = true;
    for (std::size_t i = 0; i < local; ++i) {
      counts[i] = CountsOf(replicas.scopes[i], replicas.shards[i], replicas.passed[i], output);
      by_rows = by_rows && counts[i] == replicas.shards[i].rows;
    }
    if (!by_rows) {
      count = strategy_->SumOverReplicas(scope, {{PerReplica{counts}}}, where_)[0];
    }
  }
  const float share = 1.0f / static_cast<float>(strategy_->num_replicas_in_sync());
  for (std::size_t i = 0; i < local; ++i) {
    const Scope& s = replicas.scopes[i];
    const Output& loss = replicas.passed[i].outputs[output].loss;
    const Expr data = of_output.weight == 1 ? Expr(s, loss) : Expr(s, loss) * of_output.weight;
    const auto add = [&](Output* sum, const Expr& more) {
      *sum = sum->valid() ? (Expr(s, *sum) + more).output() : more.output();
    };
    add(&(*exact)[i], is_sum ? data : data * Expr(s, counts[i]).DivNoNan(count));
    add(&(*equal)[i], data * share);
  }
}

// What each replica minimises: their sum is the loss of the whole batch, or Keras' mean of
// replicas. `measured` gets the part of this process in the former.
std::vector<Output> Steps::Objectives(const Scope& scope, const Replicas& replicas,
                                      Output* measured) {
  const std::size_t local = replicas.passed.size();
  std::vector<Output> exact(local), equal(local);
  for (std::size_t output = 0; output < output_names_.size(); ++output) {
    if (!compiled_->losses[output].loss) continue;
    AddDataObjectives(scope, replicas, output, &exact, &equal);
  }
  const float share = 1.0f / static_cast<float>(strategy_->num_replicas_in_sync());
  for (std::size_t i = 0; i < local; ++i) {
    const Scope& s = replicas.scopes[i];
    const Output& added = replicas.passed[i].added_loss;
    if (!added.valid()) continue;
    const Expr rows(s, replicas.shards[i].rows);
    const Expr weighed = Expr(s, added) * rows.DivNoNan(replicas.rows);
    const Expr mean = Expr(s, added) * share;
    exact[i] = exact[i].valid() ? (Expr(s, exact[i]) + weighed).output() : weighed.output();
    equal[i] = equal[i].valid() ? (Expr(s, equal[i]) + mean).output() : mean.output();
  }
  *measured = SumInOrder(scope, exact);
  return compiled_->replica_loss == ReplicaLoss::kMeanOfReplicas ? equal : exact;
}

// By replica and variable, of the sum of all losses by what each replica sees of the variables.
// Where no replica's loss depends on what another computes, each has its own alone.
StatusOr<std::vector<std::vector<GradientAndVariable>>> Steps::GradientsOfReplicas(
    const Scope& scope, const Replicas& replicas, std::span<const Output> objectives,
    ReplicaViews* views) {
  const std::vector<Variable> trained = root_->trainable_weights();
  std::vector<std::vector<GradientAndVariable>> of_replica;
  std::vector<Variable> all;
  for (std::size_t i = 0; i < objectives.size(); ++i) {
    std::vector<Variable> own;
    for (const Variable& v : trained) own.push_back(views->Find(static_cast<int>(i), v));
    if (replicas.depend_on_each_other) {
      all.insert(all.end(), own.begin(), own.end());
      continue;
    }
    MR_ASSIGN_OR_RETURN(of_replica.emplace_back(),
                        GradientsOf(replicas.scopes[i], objectives[i], std::move(own)));
  }
  if (all.empty()) return of_replica;
  const DevicesOfInputs devices(&graph_, strategy_->replica_devices()[0]);
  MR_ASSIGN_OR_RETURN(const std::vector<GradientAndVariable> gradients,
                      GradientsOf(scope.WithoutDevice(), SumInOrder(scope, objectives), all));
  devices.Put();
  for (std::size_t first = 0; first < all.size(); first += trained.size()) {
    const auto begin = gradients.begin() + static_cast<std::ptrdiff_t>(first);
    of_replica.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(trained.size()));
  }
  return of_replica;
}

// Of all replicas of all workers.
StatusOr<std::vector<GradientAndVariable>> Steps::SumOfGradients(const Scope& scope,
                                                                 const Replicas& replicas,
                                                                 std::span<const Output> objectives,
                                                                 ReplicaViews* views,
                                                                 Function* function) {
  const std::vector<Variable> trained = root_->trainable_weights();
  MR_ASSIGN_OR_RETURN(auto of_replica, GradientsOfReplicas(scope, replicas, objectives, views));
  std::vector<GradientAndVariable> sums;
  std::vector<PerReplica> dense(trained.size());
  std::vector<Output> rows(2 * trained.size());  // values and indices, by variable
  for (std::size_t k = 0; k < trained.size(); ++k) {
    const Scope beside = scope.ColocateWith(trained[k].handle);
    std::vector<GradientAndVariable> parts;
    for (std::size_t i = 0; i < of_replica.size(); ++i) {
      GradientAndVariable& g = parts.emplace_back(of_replica[i][k]);
      if (g.gradient.valid() && views->has_copies()) {
        g.gradient = UnlessEmpty(replicas.scopes[i], replicas.shards[i].rows, g.gradient);
      }
    }
    sums.push_back({Output(), trained[k]});
    const bool is_sparse = std::all_of(parts.begin(), parts.end(), [](const auto& g) {
      return g.gradient.valid() && g.is_sparse();
    });
    if (is_sparse) {
      const GradientAndVariable own = ConcatenatedRows(beside, trained[k], parts);
      rows[2 * k] = own.gradient;
      rows[2 * k + 1] = own.indices;
      if (strategy_->num_workers() > 1) {
        // What a graph may not know of them, and a gather needs.
        PartialShape shape = trained[k].shape();
        shape.SetDim(0, -1);
        rows[2 * k] = ops::EnsureShape(beside, own.gradient, shape);
        rows[2 * k + 1] = ops::EnsureShape(beside, own.indices, PartialShape({-1}));
      }
      continue;
    }
    for (GradientAndVariable& g : parts) {
      g.variable = trained[k];
      Output whole = g.gradient.valid() ? DenseGradient(beside, g) : Output();
      if (whole.valid() && !whole.shape().IsFullyDefined()) {
        whole = ops::EnsureShape(beside, whole, trained[k].shape());
      }
      dense[k].values.push_back(whole);
    }
    // Within one process beside the variable, which may be far from the replicas.
    if (strategy_->num_workers() == 1) sums[k].gradient = SumInOrder(beside, dense[k].values);
  }
  std::vector<Output> added(trained.size());
  if (strategy_->num_workers() > 1) {
    AddNotice(scope, &dense, function);
    added = strategy_->SumGradients(scope, dense, where_);
    function->notices = Expr(scope, added.back()).Cast(kFloat);
  }
  const std::vector<Output> gathered = strategy_->GatherOverWorkers(scope, rows, where_);
  for (std::size_t k = 0; k < trained.size(); ++k) {
    if (gathered[2 * k].valid()) {
      sums[k].gradient = gathered[2 * k];
      sums[k].indices = gathered[2 * k + 1];
    } else if (added[k].valid()) {
      sums[k].gradient = added[k];
    }
  }
  MR_RETURN_IF_ERROR(graph_.status());
  return sums;
}

StatusOr<Operation> Steps::TakeStep(const Scope& scope, const Replicas& replicas,
                                    std::span<const Output> objectives,
                                    std::span<const Operation> measured,
                                    const NumericChecks& checks, ReplicaViews* views,
                                    Function* function) {
  MR_ASSIGN_OR_RETURN(const std::vector<GradientAndVariable> gradients,
                      SumOfGradients(scope, replicas, objectives, views, function));
  std::vector<Operation> before(measured.begin(), measured.end());
  for (const Output& objective : objectives) before.push_back(objective.op());
  const Operation check =
      AddCheck(scope, checks, {objectives.begin(), objectives.end()}, gradients, {});
  if (check.valid()) before.push_back(check);
  std::vector<Output> rows;
  std::vector<std::vector<Operation>> updates;
  for (std::size_t i = 0; i < replicas.passed.size(); ++i) {
    rows.push_back(replicas.shards[i].rows);
    updates.push_back(replicas.passed[i].updates);
  }
  const bool only_first = compiled_->replica_loss == ReplicaLoss::kMeanOfReplicas;
  const Scope checked = check.valid() ? scope.WithControlDependencies({check}) : scope;
  std::vector<Operation> done = views->Merge(checked, rows, updates, only_first, where_);
  MR_ASSIGN_OR_RETURN(const Operation applied, Apply(scope, gradients, std::move(before)));
  for (const Operation& op : UpdateMirrors(scope, applied)) done.push_back(op);
  return Group(scope.WithOpName("step"), done);
}

std::vector<Operation> Steps::UpdateMirrors(const Scope& scope, const Operation& changed) {
  std::vector<Operation> all = {changed};
  const Scope after = scope.WithControlDependencies({changed});
  for (const Variable& v : root_->trainable_weights()) {
    const std::vector<Variable> copies = CopiesOf(v);
    if (copies.empty()) continue;
    const Output value = layers::ReadNow(after.ColocateWith(v.handle), v);
    for (const Variable& copy : copies) all.push_back(Assign(after, copy, value, where_));
  }
  return all;
}

StatusOr<Steps::Function> Steps::MakeReplicated(Kind kind, const StepInputs& inputs) {
  const Scope scope = RootScope().Named(NameOf(kind));
  NumericChecks checks(&graph_);
  AddInputs(inputs, &checks);
  ReplicaViews views(strategy_.get(), graph_.root(), &copies_, kind == Kind::kTrain);
  MR_ASSIGN_OR_RETURN(const Replicas replicas, GoThroughAll(kind, inputs, scope, &views));
  Function function;
  std::vector<Operation> updates;
  for (const Passed& p : replicas.passed) {
    updates.insert(updates.end(), p.updates.begin(), p.updates.end());
  }
  if (kind == Kind::kPredict) {
    for (std::size_t i = 0; i < output_names_.size(); ++i) {
      PerReplica predicted;
      for (const Passed& p : replicas.passed) predicted.values.push_back(p.outputs[i].y_pred);
      function.fetches.push_back(strategy_->GatherLocal(scope, predicted, 0, where_));
    }
  } else {
    Output loss;
    const std::vector<Output> objectives = Objectives(scope, replicas, &loss);
    std::vector<Output> rows;
    for (const Shard& shard : replicas.shards) rows.push_back(shard.rows);
    const Expr own_rows(scope, SumInOrder(scope, rows));
    // The sums of all workers are the loss times the samples, and the samples.
    const Output own_loss = (Expr(scope, loss) * replicas.rows).DivNoNan(own_rows);
    MR_ASSIGN_OR_RETURN(Operation last, MeasureLoss(0, measures_, own_loss, own_rows));
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
      MR_ASSIGN_OR_RETURN(const Operation stepped, TakeStep(scope, replicas, objectives, measured,
                                                            checks, &views, &function));
      updates.push_back(stepped);
    }
    function.fetches = ReadResults(scope.Named("results").WithControlDependencies(measured));
  }
  function.done = Group(scope.WithOpName("done"), updates);
  MR_RETURN_IF_ERROR(graph_.status());
  // These knew fewer copies.
  set_weights_.reset();
  write_variables_.reset();
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

StatusOr<std::vector<int64_t>> Steps::OfAllWorkers(int64_t value) {
  if (strategy_->num_workers() == 1) return std::vector<int64_t>{value};
  if (!of_all_workers_) {
    const Scope scope = RootScope().Named("of_all_workers");
    const Output own = Placeholder(scope, kInt64, PartialShape({1}), where_);
    const Output all = strategy_->GatherOverWorkers(scope, {{own}}, where_)[0];
    MR_RETURN_IF_ERROR(graph_.status());
    MR_ASSIGN_OR_RETURN(of_all_workers_, MakeCallable({{own}}, {{all}}, {}));
  }
  const Tensor fed[] = {Tensor::FromValues<int64_t>({value}, Shape({1}))};
  MR_ASSIGN_OR_RETURN(const std::vector<Tensor> fetched, of_all_workers_->Run(fed));
  MR_ASSIGN_OR_RETURN(const auto values, fetched[0].TryFlat<int64_t>());
  return std::vector<int64_t>(values.begin(), values.end());
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
