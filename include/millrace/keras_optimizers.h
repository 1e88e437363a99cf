// SPDX-License-Identifier: Apache-2.0
// The optimizers of Keras 3, in millrace::optimizers. Learning rates are numbers, tensors or
// schedules.
//
// Gradients with indices (rows of an embedding) give what the whole gradient gives, rows named
// several times their sum. The cost is that of the rows for Sgd without momentum and Adagrad; those
// and one multiplication per element of a slot for RmsProp without momentum and Adadelta, whose
// slots decay everywhere. All others move rows without a gradient too, as in Keras, and cost the
// whole table; so does each with weight decay, averages or gradient accumulation.
#ifndef MILLRACE_KERAS_OPTIMIZERS_H_
#define MILLRACE_KERAS_OPTIMIZERS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include "millrace/graph.h"
#include "millrace/optimizers.h"
#include "millrace/schedules.h"
#include "millrace/status.h"
#include "millrace/variables.h"

namespace millrace {
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

#endif  // MILLRACE_KERAS_OPTIMIZERS_H_
