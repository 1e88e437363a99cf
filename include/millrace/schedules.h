// SPDX-License-Identifier: Apache-2.0
// Learning rates that depend on the step, as Keras 3 and tf.compat.v1.train compute them.
#ifndef MILLRACE_SCHEDULES_H_
#define MILLRACE_SCHEDULES_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "millrace/graph.h"

namespace millrace {

// Adds the nodes that compute the rate (a float scalar) at a step (an integer scalar). It has no
// state: who restores the step restores the rate. Options that make no sense are an
// InvalidArgument in the graph's status.
using Schedule = std::function<Output(const Scope& scope, const Output& step)>;

// What an optimizer takes: a number, a scalar tensor, or a schedule of its own count of steps,
// which is computed on every device that has variables rather than sent there.
class LearningRate {
 public:
  // A number.
  template <typename T>
    requires(std::is_arithmetic_v<T>)
  LearningRate(T number) : number_(static_cast<double>(number)) {}  // NOLINT
  LearningRate(const Output& tensor) : tensor_(tensor) {}           // NOLINT
  // A schedule without a function is an InvalidArgument in the graph's status.
  template <typename F>
    requires(std::is_invocable_r_v<Output, F, const Scope&, const Output&>)
  LearningRate(F schedule) : schedule_(std::move(schedule)), is_schedule_(true) {}  // NOLINT

  // Whether it is a number, which optimizers keep in a variable.
  bool is_number() const { return !tensor_.valid() && !is_schedule_; }
  // Whether it depends on the step.
  bool is_schedule() const { return is_schedule_; }
  // The number; 0 for a tensor or a schedule.
  double number() const { return number_; }
  // The rate as a float scalar; `step` is looked at by schedules alone.
  Output At(const Scope& scope, const Output& step) const;

 private:
  double number_ = 0;
  Output tensor_;
  Schedule schedule_;
  bool is_schedule_ = false;
};

namespace schedules {

// Of ExponentialDecay, NaturalExponentialDecay and InverseTimeDecay.
struct ExponentialDecayOptions {
  double initial_learning_rate = 0;  // at step 0
  double decay_steps = 0;            // steps per application of the rate; must be positive
  double decay_rate = 0;             // "rate" of the formulas
  bool staircase = false;            // only whole multiples of decay_steps change the rate
};
// initial * rate^(step / decay_steps); with staircase, of the quotient rounded down.
Schedule ExponentialDecay(const ExponentialDecayOptions& options);
// initial * exp(-rate * step / decay_steps): natural_exp_decay.
Schedule NaturalExponentialDecay(const ExponentialDecayOptions& options);
// initial / (1 + rate * step / decay_steps).
Schedule InverseTimeDecay(const ExponentialDecayOptions& options);

// values[i] up to and with boundaries[i]; the last value, of which there is one more, behind all.
Schedule PiecewiseConstantDecay(std::vector<double> boundaries, std::vector<double> values);

// Of PolynomialDecay.
struct PolynomialDecayOptions {
  double initial_learning_rate = 0;   // at step 0
  double decay_steps = 0;             // steps until the end; must be positive
  double end_learning_rate = 0.0001;  // from decay_steps on
  double power = 1;                   // 1: a line
  bool cycle = false;  // begin again, over a multiple of decay_steps, instead of staying at the end
};
// (initial - end) * (1 - step / decay_steps)^power + end.
Schedule PolynomialDecay(const PolynomialDecayOptions& options);

// Of CosineDecay.
struct CosineDecayOptions {
  double initial_learning_rate = 0;  // at step 0
  double decay_steps = 0;            // steps of the decay, behind any warmup; must be positive
  double alpha = 0;                  // the end, as a part of where the decay begins
  // If set: the rate goes up to it in warmup_steps, in a line, and decays from it then.
  std::optional<double> warmup_target{};
  double warmup_steps = 0;  // looked at if warmup_target is set; 0: begins at the target
};
// from * ((1 - alpha) * (1 + cos(pi * step / decay_steps)) / 2 + alpha), then from * alpha.
Schedule CosineDecay(const CosineDecayOptions& options);

// Of CosineDecayRestarts (Loshchilov and Hutter, ICLR 2017).
struct CosineDecayRestartsOptions {
  double initial_learning_rate = 0;  // at step 0
  double first_decay_steps = 0;      // length of the first period; must be positive
  double t_mul = 2;                  // each period is as many times as long as the one before
  double m_mul = 1;                  // and begins as many times as high
  double alpha = 0;                  // the lowest rate, as a part of the initial one
};
// A cosine's decay in each period, from which the next begins high again.
Schedule CosineDecayRestarts(const CosineDecayRestartsOptions& options);

// Of LinearCosineDecay, with the symbols of its formula.
struct LinearCosineDecayOptions {
  double learning_rate = 0;  // rate
  double decay_steps = 0;    // from which on nothing changes; must be positive
  double num_periods = 0.5;  // waves of the cosine in decay_steps
  double alpha = 0;          // added to the line that falls from 1 to 0
  double beta = 0.001;       // added to the product of line and wave
};
// tf.compat.v1.train.linear_cosine_decay, with f = step / decay_steps:
// rate * ((alpha + 1 - f) * (1 + cos(2 pi * num_periods * f)) / 2 + beta).
Schedule LinearCosineDecay(const LinearCosineDecayOptions& options);

// Of NoisyLinearCosineDecay.
struct NoisyLinearCosineDecayOptions {
  LinearCosineDecayOptions decay;  // what the noise is added to
  double initial_variance = 1;     // of the noise at step 0
  double variance_decay = 0.55;    // power of 1 + step that the variance is divided by
  int64_t seed = 0;                // 0: from the graph's seed, or unseeded
};
// The same with normal noise on the linear part, of variance initial / (1 + step)^decay.
Schedule NoisyLinearCosineDecay(const NoisyLinearCosineDecayOptions& options);

}  // namespace schedules
}  // namespace millrace

#endif  // MILLRACE_SCHEDULES_H_
