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

// What ComputeGradients returns and ApplyGradients takes for each variable.
struct GradientAndVariable {
  Output gradient;    // not valid: the loss does not depend on the variable
  Variable variable;  // what the loss was differentiated by
  // Valid if the gradient is zero but for some rows: row i of `gradient` belongs to row indices[i]
  // of the variable. A row that is named several times gets the sum.
  Output indices{};

  // Whether only the rows named by `indices` have a gradient.
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
// Each by its own norm (square root of the sum of squares), which is at most `norm` then.
std::vector<GradientAndVariable> ClipByNorm(const Scope& scope,
                                            std::span<const GradientAndVariable> gradients,
                                            double norm);
// By the norm of all of them together, NaN if that is not finite.
std::vector<GradientAndVariable> ClipByGlobalNorm(const Scope& scope,
                                                  std::span<const GradientAndVariable> gradients,
                                                  double norm);
// The square root of the sum of the squares of all elements.
Output GlobalNorm(const Scope& scope, std::span<const GradientAndVariable> gradients);

// Of GradientDescent: w -= lr g. Here and below g is the gradient, w the variable, lr the learning
// rate.
struct GradientDescentOptions {
  LearningRate learning_rate = 0.01f;  // lr
};
// Of Momentum: m = momentum m + g, w -= lr m.
struct MomentumOptions {
  LearningRate learning_rate = 0.01f;  // lr
  float momentum = 0.9f;               // how much of m stays at each update
  bool use_nesterov = false;           // w -= lr (g + momentum m), with the new m
};
// Of Adagrad: n += g^2, w -= lr g / sqrt(n).
struct AdagradOptions {
  LearningRate learning_rate = 0.01f;  // lr
  float initial_accumulator = 0.1f;    // n before the first update
};
// Duchi et al.'s dual averaging; counts the steps by the global step it is applied with.
struct AdagradDaOptions {
  LearningRate learning_rate = 0.01f;                 // lr
  float initial_gradient_squared_accumulator = 0.1f;  // sum of squares before the first update
  float l1 = 0.0f,                                    // strength of the penalty on absolute values
      l2 = 0.0f;                                      // strength of the penalty on squares
};
// Of Adadelta: v = rho v + (1 - rho) g^2, d = sqrt(u + epsilon) / sqrt(v + epsilon) g,
// u = rho u + (1 - rho) d^2, w -= lr d.
struct AdadeltaOptions {
  LearningRate learning_rate = 0.001f;  // lr; 1 gives Zeiler's paper
  float rho = 0.95f;                    // how much of the averages stays at each update
  float epsilon = 1e-8f;                // added under both roots
};
// Of RmsProp: v = decay v + (1 - decay) g^2, m = momentum m + lr g / sqrt(v + epsilon), w -= m; v
// is 1 before the first update.
struct RmsPropOptions {
  LearningRate learning_rate = 0.001f;  // lr
  float decay = 0.9f;                   // how much of the averages stays at each update
  float momentum = 0.0f;                // how much of m stays
  float epsilon = 1e-10f;               // added under the root
  bool centered = false;  // v less the square of the gradient's average under the root
};
// Kingma and Ba, ICLR 2015; epsilon as in TensorFlow ("epsilon hat" of the paper). The moments of
// rows without a gradient decay, and the rows move by them.
struct AdamOptions {
  LearningRate learning_rate = 0.001f;  // lr
  float beta1 = 0.9f;                   // decay of the average of g
  float beta2 = 0.999f;                 // decay of the average of g^2
  float epsilon = 1e-8f;                // added to the root of the latter
};
// Of Ftrl (McMahan et al., KDD 2013): n is the sum of squared gradients.
struct FtrlOptions {
  LearningRate learning_rate = 0.01f;  // lr
  float learning_rate_power = -0.5f;   // of n, at most 0: the rate falls as lr n^power
  float initial_accumulator = 0.1f;    // n before the first update
  float l1 = 0.0f,            // strength of the penalty on absolute values: many weights become 0
      l2 = 0.0f;              // strength of the penalty on squares
  float l2_shrinkage = 0.0f;  // adds 2 l2_shrinkage w to the gradient, not to n
  float beta = 0.0f;          // adds beta / (2 learning_rate) to l2
};
// Of ProximalGradientDescent: p = w - lr g, w = sign(p) max(|p| - lr l1, 0) / (1 + lr l2).
struct ProximalGradientDescentOptions {
  LearningRate learning_rate = 0.01f;  // lr
  float l1 = 0.0f,                     // strength of the penalty on absolute values
      l2 = 0.0f;                       // strength of the penalty on squares
};
// Of ProximalAdagrad: the same with lr / sqrt(n) for lr, after n += g^2.
struct ProximalAdagradOptions {
  LearningRate learning_rate = 0.01f;  // lr
  float initial_accumulator = 0.1f;    // n before the first update
  float l1 = 0.0f,                     // strength of the penalty on absolute values
      l2 = 0.0f;                       // strength of the penalty on squares
};
// tf.compat.v1.train.GradientDescentOptimizer: no slots.
std::unique_ptr<Optimizer> GradientDescent(const GradientDescentOptions& options);
// MomentumOptimizer, with one slot, m.
std::unique_ptr<Optimizer> Momentum(const MomentumOptions& options);
// AdagradOptimizer, with one slot, n (Duchi et al., JMLR 2011).
std::unique_ptr<Optimizer> Adagrad(const AdagradOptions& options);
// AdagradDAOptimizer; without a global step in ApplyGradients it reads the graph's, which it makes
// if there is none, and which somebody else must count.
std::unique_ptr<Optimizer> AdagradDa(const AdagradDaOptions& options);
// AdadeltaOptimizer, with slots v and u (Zeiler, 2012).
std::unique_ptr<Optimizer> Adadelta(const AdadeltaOptions& options);
// RMSPropOptimizer, with slots v, the gradient's average if centered, and m.
std::unique_ptr<Optimizer> RmsProp(const RmsPropOptions& options);
// AdamOptimizer, with two slots, and two variables for the powers of beta1 and beta2.
std::unique_ptr<Optimizer> Adam(const AdamOptions& options);
// FtrlOptimizer, with the slots n and a linear term.
std::unique_ptr<Optimizer> Ftrl(const FtrlOptions& options);
// ProximalGradientDescentOptimizer: no slots.
std::unique_ptr<Optimizer> ProximalGradientDescent(const ProximalGradientDescentOptions& options);
// ProximalAdagradOptimizer, with one slot, n.
std::unique_ptr<Optimizer> ProximalAdagrad(const ProximalAdagradOptions& options);
// By lower-case name ("sgd", "momentum", "adagrad", ...); InvalidArgument lists the names.
StatusOr<std::unique_ptr<Optimizer>> OptimizerByName(const std::string& name, float learning_rate);

// Of averages a of variables w: a = decay a + (1 - decay) w at each update.
struct MovingAverageOptions {
  double decay = 0.999;  // from 0 to 1; near 1: over many updates
  // If valid: a count of updates, with which the decay is at most (1 + n) / (10 + n).
  Output num_updates{};
};
// Keeps averages of variables beside them, called "<variable>/ExponentialMovingAverage"; the first
// is a variable's initial value. (TensorFlow's zero_debias does nothing to those of variables.)
class MovingAverage {
 public:
  // Has no averages before Apply, which makes them.
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
