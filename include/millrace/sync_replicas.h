// SPDX-License-Identifier: Apache-2.0
// An optimizer that waits for the gradients of several workers.
#ifndef MILLRACE_SYNC_REPLICAS_H_
#define MILLRACE_SYNC_REPLICAS_H_

#include <memory>
#include <source_location>
#include <span>
#include <string>

#include "millrace/optimizers.h"

namespace millrace {

// How many gradients make an update, and of how many workers. InvalidArgument of ApplyGradients for
// what cannot be.
struct SyncReplicasOptions {
  int replicas_to_aggregate = 1;       // gradients of each variable in one update; at least 1
  int total_num_replicas = 0;          // workers; 0: replicas_to_aggregate
  std::string name = "sync_replicas";  // of the scope that its nodes are in
};

// TensorFlow's SyncReplicasOptimizer: workers push gradients into accumulators beside the
// variables, which drop those computed from an older step; the chief's sync op takes the mean
// of `replicas_to_aggregate`, applies it once and hands out one token per worker; a worker's
// step ends when it has taken a token. Fewer to aggregate than workers: the surplus are backup
// workers; more: workers push several gradients a step.
class SyncReplicas : public Optimizer {
 public:
  // Adds no nodes yet. `inner` makes the update from the mean.
  SyncReplicas(std::unique_ptr<Optimizer> inner, const SyncReplicasOptions& options);
  ~SyncReplicas() override;

  // `scope` decides where the worker's local step lives (its own task). Returns the worker's
  // train op. Neither `global_step` nor the inner optimizer may be null (InvalidArgument).
  StatusOr<Operation> ApplyGradients(
      const Scope& scope, std::span<const GradientAndVariable> gradients,
      const Variable* global_step,
      std::source_location where = std::source_location::current()) override;

  // All below: after ApplyGradients (FailedPrecondition before). What the chief, and every
  // other worker, runs once when the variables are ready:
  StatusOr<Operation> chief_init_op() const;
  // Sets the worker's local step to the global one; chief_init_op does that for the chief.
  StatusOr<Operation> local_step_init_op() const;
  // The first tokens; -1: replicas_to_aggregate of them. InvalidArgument "Too few tokens" if
  // fewer than replicas_to_aggregate - total_num_replicas.
  StatusOr<Operation> InitTokensOp(
      const Scope& scope, int num_tokens = -1,
      std::source_location where = std::source_location::current()) const;
  // What the chief runs in a loop on a thread of its own: one run per global step.
  StatusOr<Operation> chief_queue_op() const;

 private:
  struct Parts;
  std::unique_ptr<Optimizer> inner_;
  const SyncReplicasOptions options_;
  std::unique_ptr<Parts> parts_;
};

}  // namespace millrace

#endif  // MILLRACE_SYNC_REPLICAS_H_
