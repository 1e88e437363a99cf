// SPDX-License-Identifier: Apache-2.0
// Optimizers: what turns gradients into updates of variables.
//
// They compute what tf.compat.v1.train's do and name their slots alike; keras_optimizers.h has
// those of Keras 3. Learning rates are numbers, tensors or schedules.
#ifndef MILLRACE_OPTIMIZERS_H_
#define MILLRACE_OPTIMIZERS_H_

#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "millrace/graph.h"
#include "millrace/schedules.h"
#include "millrace/status.h"
#include "millrace/variables.h"

namespace millrace {

struct GradientAndVariable {
  Output gradient;  // not valid: the loss does not depend on the variable
  Variable variable;
  // Valid if the gradient is zero but for some rows: row i of `gradient` belongs to row indices[i]
  // of the variable. A row that is named several times gets the sum.
  Output indices{};

  bool is_sparse() const { return indices.valid(); }
};

// Builds update ops. Slots (moments, accumulators) are variables called "<variable>/<slot>",
// placed beside their variable, and made when it is first given a gradient. Not thread-safe.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // The derivatives of the loss by the given variables (default: all trainable ones).
  // InvalidArgument if there is none to train.
  virtual StatusOr<std::vector<GradientAndVariable>> ComputeGradients(
      const Scope& scope, const Output& loss, std::vector<Variable> variables = {},
      std::source_location where = std::source_location::current());
  // An op that applies the gradients, each update atomic, beside its variable; `global_step`, if
  // it is not null, grows by one after all of them. InvalidArgument if no gradient is valid.
  // Of a gradient with indices only the rows that are named are read and changed, wherever the
  // rule allows it.
  virtual StatusOr<Operation> ApplyGradients(
      const Scope& scope, std::span<const GradientAndVariable> gradients,
      const Variable* global_step,
      std::source_location where = std::source_location::current()) = 0;
  // Both. The op is called as TensorFlow's: by the optimizer's name ("Adam").
  StatusOr<Operation> Minimize(const Scope& scope, const Output& loss, const Variable* global_step,
                               std::source_location where = std::source_location::current());

  // The optimizer's own variables, in the order in which TensorFlow counts them.
  virtual std::vector<Variable> variables() const { return {}; }
};

// Sums rows that are named several times: a gradient whose indices are all different.
GradientAndVariable SumDuplicates(const Scope& scope, const GradientAndVariable& gradient);
// The same gradient of the variable's shape.
Output DenseGradient(const Scope& scope, const GradientAndVariable& gradient);

// Gradients made smaller, as tf.clip_by_*; those that are not valid stay as they are.
std::vector<GradientAndVariable> ClipByValue(const Scope& scope,
                                             std::span<const GradientAndVariable> gradients,
                                             double limit);
std::vector<GradientAndVariable> ClipByNorm(const Scope& scope,
                                            std::span<const GradientAndVariable> gradients,
                                            double norm);
// By the norm of all of them together, NaN if that is not finite.
std::vector<GradientAndVariable> ClipByGlobalNorm(const Scope& scope,
                                                  std::span<const GradientAndVariable> gradients,
                                                  double norm);
// The square root of the sum of the squares of all elements.
Output GlobalNorm(const Scope& scope, std::span<const GradientAndVariable> gradients);

struct GradientDescentOptions {
  LearningRate learning_rate = 0.01f;
};
struct MomentumOptions {
  LearningRate learning_rate = 0.01f;
  float momentum = 0.9f;
  bool use_nesterov = false;
};
struct AdagradOptions {
  LearningRate learning_rate = 0.01f;
  float initial_accumulator = 0.1f;
};
// Duchi et al.'s dual averaging; counts the steps by the global step it is applied with.
struct AdagradDaOptions {
  LearningRate learning_rate = 0.01f;
  float initial_gradient_squared_accumulator = 0.1f;
  float l1 = 0.0f, l2 = 0.0f;
};
struct AdadeltaOptions {
  LearningRate learning_rate = 0.001f;
  float rho = 0.95f;
  float epsilon = 1e-8f;
};
struct RmsPropOptions {
  LearningRate learning_rate = 0.001f;
  float decay = 0.9f;
  float momentum = 0.0f;
  float epsilon = 1e-10f;
  bool centered = false;
};
// Kingma and Ba, ICLR 2015; epsilon as in TensorFlow ("epsilon hat" of the paper). The moments of
// rows without a gradient decay, and the rows move by them.
struct AdamOptions {
  LearningRate learning_rate = 0.001f;
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float epsilon = 1e-8f;
};
struct FtrlOptions {
  LearningRate learning_rate = 0.01f;
  float learning_rate_power = -0.5f;
  float initial_accumulator = 0.1f;
  float l1 = 0.0f, l2 = 0.0f;
  float l2_shrinkage = 0.0f;
  float beta = 0.0f;  // adds beta / (2 learning_rate) to l2
};
struct ProximalGradientDescentOptions {
  LearningRate learning_rate = 0.01f;
  float l1 = 0.0f, l2 = 0.0f;
};
struct ProximalAdagradOptions {
  LearningRate learning_rate = 0.01f;
  float initial_accumulator = 0.1f;
  float l1 = 0.0f, l2 = 0.0f;
};
std::unique_ptr<Optimizer> GradientDescent(const GradientDescentOptions& options);
std::unique_ptr<Optimizer> Momentum(const MomentumOptions& options);
std::unique_ptr<Optimizer> Adagrad(const AdagradOptions& options);
std::unique_ptr<Optimizer> AdagradDa(const AdagradDaOptions& options);
std::unique_ptr<Optimizer> Adadelta(const AdadeltaOptions& options);
std::unique_ptr<Optimizer> RmsProp(const RmsPropOptions& options);
std::unique_ptr<Optimizer> Adam(const AdamOptions& options);
std::unique_ptr<Optimizer> Ftrl(const FtrlOptions& options);
std::unique_ptr<Optimizer> ProximalGradientDescent(const ProximalGradientDescentOptions& options);
std::unique_ptr<Optimizer> ProximalAdagrad(const ProximalAdagradOptions& options);
// By lower-case name ("sgd", "momentum", "adagrad", ...); InvalidArgument lists the names.
StatusOr<std::unique_ptr<Optimizer>> OptimizerByName(const std::string& name, float learning_rate);

struct MovingAverageOptions {
  double decay = 0.999;
  // If valid: a count of updates, with which the decay is at most (1 + n) / (10 + n).
  Output num_updates{};
};
// Keeps averages of variables beside them, called "<variable>/ExponentialMovingAverage"; the first
// is a variable's initial value. (TensorFlow's zero_debias does nothing to those of variables.)
class MovingAverage {
 public:
  explicit MovingAverage(const MovingAverageOptions& options) : options_(options) {}
  // An op that brings the averages up to date with the variables' present values.
  Operation Apply(const Scope& scope, std::span<const Variable> variables,
                  std::source_location where = std::source_location::current());
  // The average of a variable that Apply was given; one without a handle otherwise.
  Variable Average(const Variable& variable) const;

 private:
  const MovingAverageOptions options_;
  std::vector<std::pair<std::string, Variable>> averages_;
};

}  // namespace millrace

#endif  // MILLRACE_OPTIMIZERS_H_
