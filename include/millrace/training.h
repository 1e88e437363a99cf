// Optimizers, alone and synchronised over workers.
#ifndef MILLRACE_TRAINING_H_
#define MILLRACE_TRAINING_H_

#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include "millrace/graph.h"
#include "millrace/status.h"
#include "millrace/variables.h"

namespace millrace {

struct GradientAndVariable {
  Output gradient;  // not valid: the loss does not depend on the variable
  Variable variable;
};

// Builds update ops. Slots (moments, accumulators) are variables called "<variable>/<slot>",
// placed beside their variable. Not thread-safe.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // The derivatives of the loss by the given variables (default: all trainable ones).
  // InvalidArgument if there is none to train.
  StatusOr<std::vector<GradientAndVariable>> ComputeGradients(
      const Scope& scope, const Output& loss, std::vector<Variable> variables = {},
      std::source_location where = std::source_location::current());
  // An op that applies the gradients, each update atomic, beside its variable; `global_step`, if
  // it is not null, grows by one after all of them. InvalidArgument if no gradient is valid.
  virtual StatusOr<Operation> ApplyGradients(
      const Scope& scope, std::span<const GradientAndVariable> gradients,
      const Variable* global_step,
      std::source_location where = std::source_location::current()) = 0;
  // Both. The op is called as TensorFlow's: by the optimizer's name ("Adam").
  StatusOr<Operation> Minimize(const Scope& scope, const Output& loss, const Variable* global_step,
                               std::source_location where = std::source_location::current());
};

struct GradientDescentOptions {
  float learning_rate = 0.01f;
};
struct MomentumOptions {
  float learning_rate = 0.01f;
  float momentum = 0.9f;
  bool use_nesterov = false;
};
struct AdagradOptions {
  float learning_rate = 0.01f;
  float initial_accumulator = 0.1f;
};
struct RmsPropOptions {
  float learning_rate = 0.001f;
  float decay = 0.9f;
  float momentum = 0.0f;
  float epsilon = 1e-10f;
};
// Kingma and Ba, ICLR 2015; epsilon as in TensorFlow ("epsilon hat" of the paper).
struct AdamOptions {
  float learning_rate = 0.001f;
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float epsilon = 1e-8f;
};
std::unique_ptr<Optimizer> GradientDescent(const GradientDescentOptions& options);
std::unique_ptr<Optimizer> Momentum(const MomentumOptions& options);
std::unique_ptr<Optimizer> Adagrad(const AdagradOptions& options);
std::unique_ptr<Optimizer> RmsProp(const RmsPropOptions& options);
std::unique_ptr<Optimizer> Adam(const AdamOptions& options);
// By lower-case name ("sgd", "momentum", "adagrad", "rmsprop", "adam"); InvalidArgument lists
// the names.
StatusOr<std::unique_ptr<Optimizer>> OptimizerByName(const std::string& name, float learning_rate);

struct SyncReplicasOptions {
  int replicas_to_aggregate = 1;
  int total_num_replicas = 0;  // 0: replicas_to_aggregate
};

// TensorFlow's SyncReplicasOptimizer: workers push gradients into accumulators beside the
// variables, which drop those computed from an older step; the chief's sync op takes the mean
// of `replicas_to_aggregate`, applies it once and hands out one token per worker; a worker's
// step ends when it has taken a token. Fewer to aggregate than workers: the surplus are backup
// workers; more: workers push several gradients a step.
class SyncReplicas : public Optimizer {
 public:
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

#endif  // MILLRACE_TRAINING_H_
