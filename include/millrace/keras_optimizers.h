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
  // At most one of the three is set (else InvalidArgument); numbers up to 0 do not clip.
  std::optional<double> clip_norm{},    // most that the norm of each gradient may be
      global_clip_norm{},               // most that the norm of all gradients together may be
      clip_value{};                     // most that each element's absolute value may be
  bool use_ema = false;                 // keeps an average of each weight: a = k a + (1 - k) w
  double ema_momentum = 0.99;           // k, from 0 to 1 (else InvalidArgument)
  int64_t ema_overwrite_frequency = 0;  // steps after which averages become the weights; 0: never
  std::optional<double> loss_scale_factor{};  // what the loss was multiplied by
  int64_t gradient_accumulation_steps = 0;    // 0: each step is applied
  std::string name{};  // prefix of the optimizer's variables; "": of its class
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
  // A float scalar, "<name>/learning_rate"; without a handle for a tensor or a schedule, too.
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

// In the formulas below g is the gradient, w the weight, lr the learning rate, t the number of the
// update, from 1; m and v, where nothing else is said, are m = beta_1 m + (1 - beta_1) g and
// v = beta_2 v + (1 - beta_2) g^2.
//
// Of Sgd: w -= lr g; with momentum m = momentum m - lr g, w += m.
struct SgdOptions {
  LearningRate learning_rate = 0.01;  // lr
  double momentum = 0;                // 0: no slot
  bool nesterov = false;              // w += momentum m - lr g, with the new m
  CommonOptions common{};             // clipping, weight decay, averages, accumulation, name
};
// Of RmsProp: v = rho v + (1 - rho) g^2, d = lr g / sqrt(v + epsilon), w -= d.
struct RmsPropOptions {
  LearningRate learning_rate = 0.001;  // lr
  double rho = 0.9;                    // how much of the averages stays at each update
  double momentum = 0;                 // above 0: m = momentum m + d, w -= m
  double epsilon = 1e-7;               // added under the root
  bool centered = false;               // v less the square of the gradient's average under the root
  CommonOptions common{};              // clipping, weight decay, averages, accumulation, name
};
// Of Adam and AdamW: w -= lr sqrt(1 - beta_2^t) / (1 - beta_1^t) m / (sqrt(v) + epsilon).
struct AdamOptions {
  LearningRate learning_rate = 0.001;  // lr
  double beta_1 = 0.9,                 // decay of m
      beta_2 = 0.999;                  // decay of v
  double epsilon = 1e-7;               // "epsilon hat" of Kingma and Ba's paper
  bool amsgrad = false;                // the largest v up to now, element by element, instead of v
  CommonOptions common{};              // of AdamW, without weight_decay: 0.004
};
// Of Adamax: u = max(beta_2 u, |g|), w -= lr m / ((1 - beta_1^t) (u + epsilon)).
struct AdamaxOptions {
  LearningRate learning_rate = 0.001;  // lr
  double beta_1 = 0.9,                 // decay of m
      beta_2 = 0.999;                  // decay of u; of Nadam and Lamb, of v
  double epsilon = 1e-7;               // added to the divisor
  CommonOptions common{};              // clipping, weight decay, averages, accumulation, name
};
// Adam's, with Nesterov's momentum, which at update t is beta_1 (1 - 0.96^t / 2).
using NadamOptions = AdamaxOptions;
// Of Lamb: r = m / (1 - beta_1^t) / (sqrt(v / (1 - beta_2^t)) + epsilon), w -= lr |w| / |r| r; the
// ratio of the norms is 1 where one of them is 0.
using LambOptions = AdamaxOptions;
// Of Adagrad: n += g^2, w -= lr g / sqrt(n + epsilon).
struct AdagradOptions {
  LearningRate learning_rate = 0.001;      // lr
  double initial_accumulator_value = 0.1;  // n before the first update
  double epsilon = 1e-7;                   // added under the root
  CommonOptions common{};                  // clipping, weight decay, averages, accumulation, name
};
// Of Adadelta: v = rho v + (1 - rho) g^2, d = sqrt(u + epsilon) / sqrt(v + epsilon) g,
// u = rho u + (1 - rho) d^2, w -= lr d.
struct AdadeltaOptions {
  LearningRate learning_rate = 0.001;  // lr; 1 gives Zeiler's paper
  double rho = 0.95;                   // how much of the averages stays at each update
  double epsilon = 1e-7;               // added under both roots
  CommonOptions common{};              // clipping, weight decay, averages, accumulation, name
};
// Of Adafactor: b = 1 - t^beta_2_decay, v = b v + (1 - b) (g^2 + epsilon_1), from two axes on as
// a product of row and column means; d = g / sqrt(v),
// w -= max(epsilon_2, RMS(w)) min(lr, 1 / sqrt(t)) d.
struct AdafactorOptions {
  LearningRate learning_rate = 0.001;  // lr
  double beta_2_decay = -0.8;  // power of t; below 0, so that v averages over ever more steps
  double epsilon_1 = 1e-30,    // added to the squared gradients
      epsilon_2 = 1e-3;        // least scale of a weight
  double clip_threshold = 1;   // most that RMS(d) may be: d is divided by what is above it
  bool relative_step = true;   // lr of numbers and tensors is at most 1 / sqrt(t)
  CommonOptions common{};      // clipping, weight decay, averages, accumulation, name
};
// Of Ftrl (McMahan et al., KDD 2013), with the power p: n' = n + g^2,
// z += g + 2 l2_shrinkage w - (n'^-p - n^-p) / lr w,
// w = (clip(z, -l1, l1) - z) / (n'^-p / lr + 2 l2).
struct FtrlOptions {
  LearningRate learning_rate = 0.001;               // lr
  double learning_rate_power = -0.5;                // p, at most 0; 0: a rate that does not fall
  double initial_accumulator_value = 0.1;           // n before the first update
  double l1_regularization_strength = 0,            // l1: weights of little use become 0
      l2_regularization_strength = 0;               // l2
  double l2_shrinkage_regularization_strength = 0;  // a penalty on the size of w, not part of n
  double beta = 0;                                  // adds beta / (2 lr) to l2
  CommonOptions common{};  // clipping, weight decay, averages, accumulation, name
};
// Of Lion: w -= lr sign(beta_1 m + (1 - beta_1) g), then m = beta_2 m + (1 - beta_2) g.
struct LionOptions {
  LearningRate learning_rate = 0.001;  // lr: all elements move by it
  double beta_1 = 0.9,                 // how much of m is in the direction
      beta_2 = 0.99;                   // decay of m
  CommonOptions common{};              // clipping, weight decay, averages, accumulation, name
};
// Newton-Schulz for matrices; AdamW for what has another rank, for embeddings (names that contain
// "embedding"), and for variables whose name matches one of exclude_layers.
struct MuonOptions {
  LearningRate learning_rate = 0.001;               // lr of matrices
  double adam_beta_1 = 0.9,                         // decay of AdamW's m
      adam_beta_2 = 0.999,                          // decay of AdamW's v
      epsilon = 1e-7;                               // AdamW's
  std::optional<double> weight_decay = 0.004;       // of matrices, times lr; not set: none
  std::optional<double> adam_weight_decay = 0.004;  // of what AdamW updates
  std::vector<std::string> exclude_layers{};        // regular expressions, searched for in names
  bool exclude_embeddings = true;  // false: embeddings of rank 2 are matrices like others
  // Each Newton-Schulz step: S = X X^T, X = a X + (b S + c S S) X.
  double muon_a = 3.4445,    // a
      muon_b = -4.775,       // b
      muon_c = 2.0315;       // c
  double adam_lr_ratio = 1;  // AdamW's learning rate is lr times this
  double momentum = 0.95;    // m = momentum m + g
  int ns_steps = 5;          // Newton-Schulz steps per update
  bool nesterov = true;      // g + momentum m is made orthogonal; false: m
  // Updates are multiplied by rms_rate sqrt(max(rows, columns)); not set: by nothing.
  std::optional<double> rms_rate = 0.2;
  CommonOptions common{};  // its weight_decay is not looked at
};
// Of ScheduleFreeAdamW: z -= lr g / (sqrt(v / (1 - beta_2^t)) + epsilon),
// x = (1 - 1 / t) x + z / t, w = (1 - beta_1) z + beta_1 x.
struct ScheduleFreeAdamWOptions {
  LearningRate learning_rate = 0.0025;  // lr
  double beta_1 = 0.9,                  // the part of the average x in w; not 0
      beta_2 = 0.999;                   // decay of v
  double epsilon = 1e-8;                // added to the root
  int64_t warmup_steps = 0;             // updates over which lr grows from 0 in a line; 0: none
  CommonOptions common{};               // clipping, weight decay, averages, accumulation, name
};

// Gradient descent: keras.optimizers.SGD. Slot: "momentum" unless that is 0.
std::unique_ptr<KerasOptimizer> Sgd(const SgdOptions& options = {});
// Tieleman and Hinton's. Slots: "velocity", "momentum" if above 0, "average_gradient" if
// centered. Its name is "rm_sprop".
std::unique_ptr<KerasOptimizer> RmsProp(const RmsPropOptions& options = {});
// Kingma and Ba, ICLR 2015. Slots: "momentum", "velocity", "velocity_hat" with amsgrad.
std::unique_ptr<KerasOptimizer> Adam(const AdamOptions& options = {});
// Adam with decay of weights (0.004 unless it is set), under the name "adam_w".
std::unique_ptr<KerasOptimizer> AdamW(const AdamOptions& options = {});
// Adam with the largest instead of the mean square gradient. Slots: "momentum", "norm".
std::unique_ptr<KerasOptimizer> Adamax(const AdamaxOptions& options = {});
// Dozat's Adam with Nesterov's momentum. Slots: "momentum", "velocity".
std::unique_ptr<KerasOptimizer> Nadam(const NadamOptions& options = {});
// Duchi et al., JMLR 2011. Slot: "accumulator".
std::unique_ptr<KerasOptimizer> Adagrad(const AdagradOptions& options = {});
// Zeiler, 2012. Slots: "accumulated_grad" (v), "accumulated_delta_var" (u).
std::unique_ptr<KerasOptimizer> Adadelta(const AdadeltaOptions& options = {});
// Shazeer and Stern, 2018. Slots: row means "r", column means "c", "velocity".
std::unique_ptr<KerasOptimizer> Adafactor(const AdafactorOptions& options = {});
// Follow the regularized leader. Slots: "accumulator" (n), "linear" (z).
std::unique_ptr<KerasOptimizer> Ftrl(const FtrlOptions& options = {});
// Chen et al., 2023: steps of one size. Slot: "momentum".
std::unique_ptr<KerasOptimizer> Lion(const LionOptions& options = {});
// You et al., ICLR 2020: Adam with steps in proportion to the weights, for large batches.
// Slots: "momentum", "velocity".
std::unique_ptr<KerasOptimizer> Lamb(const LambOptions& options = {});
// Orthogonal steps for matrices. Slots: "momentum"; "velocity" of what AdamW updates.
std::unique_ptr<KerasOptimizer> Muon(const MuonOptions& options = {});
// Defazio et al., 2024, as Keras has it. Slots: "momentum" (z, at first w), "velocity". Its name is
// "schedule_free_adam_w".
std::unique_ptr<KerasOptimizer> ScheduleFreeAdamW(const ScheduleFreeAdamWOptions& options = {});

// How LossScale finds the largest scale that does not overflow.
struct LossScaleOptions {
  double initial_scale = 32768;         // what the first loss is multiplied by
  int64_t dynamic_growth_steps = 2000;  // finite steps after which the scale doubles
};
// Trains with a loss that is scaled up so that small gradients survive in 16 bits. A step whose
// gradients are not all finite changes no weight and halves the scale.
class LossScale : public Optimizer {
 public:
  // With an optimizer that is not null (InvalidArgument of ApplyGradients).
  explicit LossScale(std::shared_ptr<KerasOptimizer> inner, const LossScaleOptions& options = {});

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
  // The present scale, a float scalar; without a handle before the first loss or gradients.
  Variable scale() const { return scale_; }
  KerasOptimizer* inner() const { return inner_.get(); }  // the optimizer that is wrapped

 private:
  void MakeVariables(const Scope& scope);

  const std::shared_ptr<KerasOptimizer> inner_;
  const LossScaleOptions options_;
  Variable counter_, scale_;
};

}  // namespace optimizers
}  // namespace millrace

#endif  // MILLRACE_KERAS_OPTIMIZERS_H_
