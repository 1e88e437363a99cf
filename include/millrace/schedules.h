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
  template <typename T>
    requires(std::is_arithmetic_v<T>)
  LearningRate(T number) : number_(static_cast<double>(number)) {}  // NOLINT
  LearningRate(const Output& tensor) : tensor_(tensor) {}           // NOLINT
  template <typename F>
    requires(std::is_invocable_r_v<Output, F, const Scope&, const Output&>)
  LearningRate(F schedule) : schedule_(std::move(schedule)) {}  // NOLINT

  bool is_number() const { return !tensor_.valid() && !schedule_; }
  bool is_schedule() const { return schedule_ != nullptr; }
  double number() const { return number_; }
  // The rate as a float scalar; `step` is looked at by schedules alone.
  Output At(const Scope& scope, const Output& step) const;

 private:
  double number_ = 0;
  Output tensor_;
  Schedule schedule_;
};

namespace schedules {

struct ExponentialDecayOptions {
  double initial_learning_rate = 0;
  double decay_steps = 0;
  double decay_rate = 0;
  bool staircase = false;
};
// initial * rate^(step / decay_steps); with staircase, of the quotient rounded down.
Schedule ExponentialDecay(const ExponentialDecayOptions& options);
// initial * exp(-rate * step / decay_steps): natural_exp_decay.
Schedule NaturalExponentialDecay(const ExponentialDecayOptions& options);
// initial / (1 + rate * step / decay_steps).
Schedule InverseTimeDecay(const ExponentialDecayOptions& options);

// values[i] up to and with boundaries[i]; the last value, of which there is one more, behind all.
Schedule PiecewiseConstantDecay(std::vector<double> boundaries, std::vector<double> values);

struct PolynomialDecayOptions {
  double initial_learning_rate = 0;
  double decay_steps = 0;
  double end_learning_rate = 0.0001;
  double power = 1;
  bool cycle = false;  // begin again, over a multiple of decay_steps, instead of staying at the end
};
Schedule PolynomialDecay(const PolynomialDecayOptions& options);

struct CosineDecayOptions {
  double initial_learning_rate = 0;
  double decay_steps = 0;
  double alpha = 0;  // the end, as a part of where the decay begins
  // If set: the rate goes up to it in warmup_steps, in a line, and decays from it then.
  std::optional<double> warmup_target{};
  double warmup_steps = 0;
};
Schedule CosineDecay(const CosineDecayOptions& options);

struct CosineDecayRestartsOptions {
  double initial_learning_rate = 0;
  double first_decay_steps = 0;
  double t_mul = 2;  // each period is as many times as long as the one before
  double m_mul = 1;  // and begins as many times as high
  double alpha = 0;
};
Schedule CosineDecayRestarts(const CosineDecayRestartsOptions& options);

struct LinearCosineDecayOptions {
  double learning_rate = 0;
  double decay_steps = 0;
  double num_periods = 0.5;
  double alpha = 0;
  double beta = 0.001;
};
Schedule LinearCosineDecay(const LinearCosineDecayOptions& options);

struct NoisyLinearCosineDecayOptions {
  LinearCosineDecayOptions decay;
  double initial_variance = 1;
  double variance_decay = 0.55;
  int64_t seed = 0;  // 0: from the graph's seed, or unseeded
};
// The same with normal noise on the linear part, of variance initial / (1 + step)^decay.
Schedule NoisyLinearCosineDecay(const NoisyLinearCosineDecayOptions& options);

}  // namespace schedules
}  // namespace millrace

#endif  // MILLRACE_SCHEDULES_H_
