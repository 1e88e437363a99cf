// SPDX-License-Identifier: Apache-2.0
// Synchronous replicas as in TensorFlow's SyncReplicasOptimizer (V2): gradient accumulators
// with a token queue.
#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "graph/dataflow_graph.h"
#include "millrace/training.h"

namespace millrace {

struct SyncReplicas::Parts {
  Variable local_step;
  Output token_queue;
  Output global_step;
  Operation chief_init, local_step_init, sync_op;
};

SyncReplicas::SyncReplicas(std::unique_ptr<Optimizer> inner, const SyncReplicasOptions& options)
    : inner_(std::move(inner)),
      options_{options.replicas_to_aggregate,
               options.total_num_replicas > 0 ? options.total_num_replicas
                                              : options.replicas_to_aggregate,
               options.name} {}
SyncReplicas::~SyncReplicas() = default;

namespace {

struct Accumulator {
  Output handle;
  Variable variable;
};

Status Check(const SyncReplicasOptions& options) {
  if (options.replicas_to_aggregate < 1) {
    return errors::InvalidArgument("replicas_to_aggregate must be positive, not ",
                                   options.replicas_to_aggregate);
  }
  if (!options.name.empty()) return OkStatus();
  return errors::InvalidArgument("the name of SyncReplicas, under which its nodes are, is empty");
}

Output MakeAccumulator(const Scope& scope, const GradientAndVariable& g) {
  const Scope beside = scope.ColocateWith(g.variable.handle);
  return ops::ResourceConditionalAccumulator(
      beside.WithOpName(StrCat(g.variable.name(), "/grad_accum")), g.variable.dtype(),
      g.variable.shape(), {.shared_name = StrCat(g.variable.name(), ":0/grad_accum")});
}

}  // namespace

StatusOr<Operation> SyncReplicas::ApplyGradients(const Scope& outer,
                                                 std::span<const GradientAndVariable> gradients,
                                                 const Variable* global_step,
                                                 std::source_location where) {
  if (inner_ == nullptr) {
    return errors::InvalidArgument("SyncReplicas was given no optimizer to synchronise");
  }
  if (global_step == nullptr) {
    return errors::InvalidArgument("Global step is required to check staleness");
  }
  MR_RETURN_IF_ERROR(Check(options_));
  const Scope scope = outer.CalledFrom(where);
  auto parts = std::make_unique<Parts>();
  const Scope s = scope.Named(options_.name);
  parts->global_step = global_step->read;
  const Output zero =
      Constant(s.WithOpName("local_step_initial_value"), Tensor::Scalar<int64_t>(0));
  // Beside a constant, which is the worker's: a setter of devices would send a variable to a
  // ps, where all workers would share it and no gradient would ever be too old.
  parts->local_step =
      MakeVariable(scope.WithoutControlDependencies().ColocateWith(zero), "sync_rep_local_step",
                   zero, {.trainable = false, .local = true});

  // Worker: push every gradient, tagged with the step it was computed from.
  std::vector<Accumulator> accumulators;
  std::vector<Operation> pushed;
  std::vector<GradientAndVariable> aggregated;
  const int required = options_.replicas_to_aggregate;
  for (const GradientAndVariable& g : gradients) {
    if (!g.gradient.valid()) continue;
    const Output handle = MakeAccumulator(s, g);
    const Scope beside = s.ColocateWith(g.variable.handle);
    // Accumulators take whole gradients: rows become one beside the variable.
    pushed.push_back(ops::ResourceAccumulatorApplyGradient(beside, handle, parts->local_step.read,
                                                           DenseGradient(beside, g)));
    // Chief: the mean of what was pushed.
    const Output mean =
        ops::ResourceAccumulatorTakeGradient(beside, handle, required, g.variable.dtype());
    aggregated.push_back({mean, g.variable});
    accumulators.push_back({handle, g.variable});
  }
  MR_RETURN_IF_ERROR(s.status());
  MR_ASSIGN_OR_RETURN(const Operation update,
                      inner_->ApplyGradients(scope, aggregated, global_step));

  const Scope beside_step = s.ColocateWith(global_step->handle);
  parts->token_queue = ops::FIFOQueueV2(
      beside_step.WithOpName("sync_token_q"), {kInt64},
      {.shapes = {PartialShape({})}, .capacity = -1, .shared_name = "sync_token_q"});
  // Worker: the step is over when there is a token; it carries the step to compute from next.
  const std::vector<Output> token = ops::QueueDequeueV2(beside_step.WithControlDependencies(pushed),
                                                        parts->token_queue, {kInt64});
  MR_RETURN_IF_ERROR(s.status());
  // For who wants to know whether a worker has one gradient in each step or more.
  parts->token_queue.op().node()->mutable_attrs().Set("_total_num_replicas",
                                                      int64_t{options_.total_num_replicas});
  parts->token_queue.op().node()->mutable_attrs().Set("_replicas_to_aggregate", int64_t{required});
  const Operation train = Assign(s.WithOpName("train"), parts->local_step, token[0]);

  // Chief: one token for every worker after the update, which is only then read.
  const int tokens = std::max(options_.total_num_replicas, required);
  const Scope after = beside_step.WithControlDependencies({update});
  const Output step_now = global_step->is_resource()
                              ? ops::ReadVariableOp(after, global_step->handle, kInt64)
                              : ops::Identity(after, global_step->handle);
  parts->sync_op = ops::QueueEnqueueManyV2(beside_step.WithOpName("sync_op"), parts->token_queue,
                                           {ops::Fill(beside_step, {tokens}, step_now)});

  parts->local_step_init =
      Assign(s.WithOpName("local_step_init"), parts->local_step, global_step->read);
  std::vector<Operation> chief_init = {parts->local_step_init};
  for (const Accumulator& a : accumulators) {
    chief_init.push_back(ops::ResourceAccumulatorSetGlobalStep(s.ColocateWith(a.variable.handle),
                                                               a.handle, global_step->read));
  }
  parts->chief_init = Group(s.WithOpName("chief_init"), chief_init);
  MR_RETURN_IF_ERROR(s.status());
  parts_ = std::move(parts);
  return train;
}

namespace {
Status NotBuilt() {
  return errors::FailedPrecondition("SyncReplicas: call ApplyGradients (or Minimize) first");
}
}  // namespace

StatusOr<Operation> SyncReplicas::chief_init_op() const {
  if (!parts_) return NotBuilt();
  return parts_->chief_init;
}
StatusOr<Operation> SyncReplicas::local_step_init_op() const {
  if (!parts_) return NotBuilt();
  return parts_->local_step_init;
}
StatusOr<Operation> SyncReplicas::chief_queue_op() const {
  if (!parts_) return NotBuilt();
  return parts_->sync_op;
}

StatusOr<Operation> SyncReplicas::InitTokensOp(const Scope& scope, int num_tokens,
                                               std::source_location where) const {
  if (!parts_) return NotBuilt();
  if (num_tokens == -1) num_tokens = options_.replicas_to_aggregate;
  if (num_tokens < options_.replicas_to_aggregate - options_.total_num_replicas) {
    return errors::InvalidArgument(
        "Too few tokens to finish the first step: ", num_tokens, " (given) vs ",
        options_.replicas_to_aggregate - options_.total_num_replicas, " (needed)");
  }
  const Scope s = scope.Named("sync_init_tokens").CalledFrom(where);
  if (num_tokens == 0) return ops::NoOp(s);
  const Scope beside = s.ColocateWith(parts_->token_queue);
  // Once in the life of the queue: who lost the one lost the other.
  const Output given = ops::VarHandleOp(beside.WithOpName("given"), kBool, PartialShape({}),
                                        {.shared_name = "sync_token_q/tokens_given"});
  const Output count =
      ops::Select(beside, ops::VarIsInitializedOp(beside, given), {0}, {num_tokens});
  const Operation enqueue = ops::QueueEnqueueManyV2(
      beside, parts_->token_queue,
      {ops::Fill(beside, ops::Reshape(beside, count, {1}), parts_->global_step)});
  const Operation done =
      ops::AssignVariableOp(beside.WithControlDependencies({enqueue}), given, Input(true));
  MR_RETURN_IF_ERROR(s.status());
  return done;
}

}  // namespace millrace
