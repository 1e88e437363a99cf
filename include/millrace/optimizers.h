// Optimizers: what turns gradients into updates of variables.
//
// Those in namespace millrace compute what tf.compat.v1.train's do and name their slots alike;
// those in millrace::optimizers are Keras 3's. Learning rates are numbers, tensors or schedules.
#ifndef MILLRACE_OPTIMIZERS_H_
#define MILLRACE_OPTIMIZERS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
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

namespace optimizers {

// What every optimizer of Keras takes. One update does, in this order: the gradients are divided by
// the loss scale, accumulated, clipped (after they were summed over replicas, if there are any);
// weights decay; the rule applies; averages follow.
struct CommonOptions {
  std::optional<double> weight_decay{};  // of the learning rate, before the update
  // At most one of the three: each gradient's norm, that of all, each element.
  std::optional<double> clip_norm{}, global_clip_norm{}, clip_value{};
  bool use_ema = false;
  double ema_momentum = 0.99;
  int64_t ema_overwrite_frequency = 0;  // steps after which averages become the weights; 0: never
  std::optional<double> loss_scale_factor{};
  int64_t gradient_accumulation_steps = 0;  // 0: each step is applied
  std::string name{};                       // prefix of the optimizer's variables; "": of its class
};

// An optimizer of Keras. Its variables are called "<name>/<variable with _ for />_<slot>".
class KerasOptimizer : public Optimizer {
 public:
  // Weights whose name contains a match of one of these regular expressions do not decay. Before
  // the first ApplyGradients.
  virtual void ExcludeFromWeightDecay(std::vector<std::string> patterns) = 0;
  // The int64 count of updates, and the rate if a number was given: assign to it to change it.
  // Without a handle before the first ApplyGradients.
  virtual Variable iterations() const = 0;
  virtual Variable learning_rate() const = 0;
  // An op for the end of training: weights become what the optimizer has averaged for them.
  virtual Operation FinalizeVariables(
      const Scope& scope, std::source_location where = std::source_location::current()) = 0;
  // As ApplyGradients, but where `condition`, a bool scalar, is false in a step, nothing changes.
  virtual StatusOr<Operation> ApplyGradientsIf(
      const Scope& scope, std::span<const GradientAndVariable> gradients, const Output& condition,
      const Variable* global_step,
      std::source_location where = std::source_location::current()) = 0;
};

struct SgdOptions {
  LearningRate learning_rate = 0.01;
  double momentum = 0;
  bool nesterov = false;
  CommonOptions common{};
};
struct RmsPropOptions {
  LearningRate learning_rate = 0.001;
  double rho = 0.9;
  double momentum = 0;
  double epsilon = 1e-7;
  bool centered = false;
  CommonOptions common{};
};
struct AdamOptions {
  LearningRate learning_rate = 0.001;
  double beta_1 = 0.9, beta_2 = 0.999;
  double epsilon = 1e-7;
  bool amsgrad = false;
  CommonOptions common{};  // of AdamW, without weight_decay: 0.004
};
struct AdamaxOptions {
  LearningRate learning_rate = 0.001;
  double beta_1 = 0.9, beta_2 = 0.999;
  double epsilon = 1e-7;
  CommonOptions common{};
};
using NadamOptions = AdamaxOptions;
using LambOptions = AdamaxOptions;
struct AdagradOptions {
  LearningRate learning_rate = 0.001;
  double initial_accumulator_value = 0.1;
  double epsilon = 1e-7;
  CommonOptions common{};
};
struct AdadeltaOptions {
  LearningRate learning_rate = 0.001;
  double rho = 0.95;
  double epsilon = 1e-7;
  CommonOptions common{};
};
struct AdafactorOptions {
  LearningRate learning_rate = 0.001;
  double beta_2_decay = -0.8;
  double epsilon_1 = 1e-30, epsilon_2 = 1e-3;
  double clip_threshold = 1;
  bool relative_step = true;
  CommonOptions common{};
};
struct FtrlOptions {
  LearningRate learning_rate = 0.001;
  double learning_rate_power = -0.5;
  double initial_accumulator_value = 0.1;
  double l1_regularization_strength = 0, l2_regularization_strength = 0;
  double l2_shrinkage_regularization_strength = 0;
  double beta = 0;
  CommonOptions common{};
};
struct LionOptions {
  LearningRate learning_rate = 0.001;
  double beta_1 = 0.9, beta_2 = 0.99;
  CommonOptions common{};
};
// Newton-Schulz for matrices; AdamW for what has another rank, for embeddings (names that contain
// "embedding"), and for variables whose name matches one of exclude_layers.
struct MuonOptions {
  LearningRate learning_rate = 0.001;
  double adam_beta_1 = 0.9, adam_beta_2 = 0.999, epsilon = 1e-7;
  std::optional<double> weight_decay = 0.004;
  std::optional<double> adam_weight_decay = 0.004;
  std::vector<std::string> exclude_layers{};
  bool exclude_embeddings = true;
  double muon_a = 3.4445, muon_b = -4.775, muon_c = 2.0315;
  double adam_lr_ratio = 1;
  double momentum = 0.95;
  int ns_steps = 5;
  bool nesterov = true;
  std::optional<double> rms_rate = 0.2;
  CommonOptions common{};  // its weight_decay is not looked at
};
struct ScheduleFreeAdamWOptions {
  LearningRate learning_rate = 0.0025;
  double beta_1 = 0.9, beta_2 = 0.999;
  double epsilon = 1e-8;
  int64_t warmup_steps = 0;
  CommonOptions common{};
};

std::unique_ptr<KerasOptimizer> Sgd(const SgdOptions& options = {});
std::unique_ptr<KerasOptimizer> RmsProp(const RmsPropOptions& options = {});
std::unique_ptr<KerasOptimizer> Adam(const AdamOptions& options = {});
std::unique_ptr<KerasOptimizer> AdamW(const AdamOptions& options = {});
std::unique_ptr<KerasOptimizer> Adamax(const AdamaxOptions& options = {});
std::unique_ptr<KerasOptimizer> Nadam(const NadamOptions& options = {});
std::unique_ptr<KerasOptimizer> Adagrad(const AdagradOptions& options = {});
std::unique_ptr<KerasOptimizer> Adadelta(const AdadeltaOptions& options = {});
std::unique_ptr<KerasOptimizer> Adafactor(const AdafactorOptions& options = {});
std::unique_ptr<KerasOptimizer> Ftrl(const FtrlOptions& options = {});
std::unique_ptr<KerasOptimizer> Lion(const LionOptions& options = {});
std::unique_ptr<KerasOptimizer> Lamb(const LambOptions& options = {});
std::unique_ptr<KerasOptimizer> Muon(const MuonOptions& options = {});
std::unique_ptr<KerasOptimizer> ScheduleFreeAdamW(const ScheduleFreeAdamWOptions& options = {});

struct LossScaleOptions {
  double initial_scale = 32768;
  int64_t dynamic_growth_steps = 2000;  // finite steps after which the scale doubles
};
// Trains with a loss that is scaled up so that small gradients survive in 16 bits. A step whose
// gradients are not all finite changes no weight and halves the scale.
class LossScale : public Optimizer {
 public:
  explicit LossScale(std::unique_ptr<KerasOptimizer> inner, const LossScaleOptions& options = {});

  // The loss to take gradients of by hand; ComputeGradients does so itself.
  Output ScaleLoss(const Scope& scope, const Output& loss);
  StatusOr<std::vector<GradientAndVariable>> ComputeGradients(
      const Scope& scope, const Output& loss, std::vector<Variable> variables = {},
      std::source_location where = std::source_location::current()) override;
  // Takes gradients of the scaled loss.
  StatusOr<Operation> ApplyGradients(
      const Scope& scope, std::span<const GradientAndVariable> gradients,
      const Variable* global_step,
      std::source_location where = std::source_location::current()) override;
  std::vector<Variable> variables() const override;
  Variable scale() const { return scale_; }

 private:
  void MakeVariables(const Scope& scope);

  const std::unique_ptr<KerasOptimizer> inner_;
  const LossScaleOptions options_;
  Variable counter_, scale_;
};

}  // namespace optimizers
}  // namespace millrace

#endif  // MILLRACE_OPTIMIZERS_H_
