// SPDX-License-Identifier: Apache-2.0
// A schedule of Keras or tf.compat.v1.train from its name and arguments.
#ifndef TESTS_TRAINING_GOLDENS_SCHEDULE_OF_H_
#define TESTS_TRAINING_GOLDENS_SCHEDULE_OF_H_

#include <string>

#include "tests/training_goldens/golden.h"

namespace millrace::testing {

// Empty if there is none of this name.
inline Schedule ScheduleOf(const std::string& name, const Arguments& a) {
  schedules::ExponentialDecayOptions exponential;
  a.Get("initial_learning_rate", &exponential.initial_learning_rate);
  a.Get("learning_rate", &exponential.initial_learning_rate);
  a.Get("decay_steps", &exponential.decay_steps);
  a.Get("decay_rate", &exponential.decay_rate);
  a.Get("staircase", &exponential.staircase);
  if (name == "ExponentialDecay" || name == "exponential_decay") {
    return schedules::ExponentialDecay(exponential);
  }
  if (name == "natural_exp_decay") return schedules::NaturalExponentialDecay(exponential);
  if (name == "InverseTimeDecay" || name == "inverse_time_decay") {
    return schedules::InverseTimeDecay(exponential);
  }
  if (name.starts_with("Piecewise") || name.starts_with("piecewise")) {
    return schedules::PiecewiseConstantDecay(Numbers(a.json()["boundaries"]),
                                             Numbers(a.json()["values"]));
  }
  const double initial = exponential.initial_learning_rate, steps = exponential.decay_steps;
  if (name == "PolynomialDecay" || name == "polynomial_decay") {
    schedules::PolynomialDecayOptions o{.initial_learning_rate = initial, .decay_steps = steps};
    a.Get("end_learning_rate", &o.end_learning_rate);
    a.Get("power", &o.power);
    a.Get("cycle", &o.cycle);
    return schedules::PolynomialDecay(o);
  }
  if (name == "CosineDecay" || name == "cosine_decay") {
    schedules::CosineDecayOptions o{.initial_learning_rate = initial, .decay_steps = steps};
    a.Get("alpha", &o.alpha);
    a.Get("warmup_target", &o.warmup_target);
    a.Get("warmup_steps", &o.warmup_steps);
    return schedules::CosineDecay(o);
  }
  if (name == "CosineDecayRestarts" || name == "cosine_decay_restarts") {
    schedules::CosineDecayRestartsOptions o{.initial_learning_rate = initial};
    a.Get("first_decay_steps", &o.first_decay_steps);
    a.Get("t_mul", &o.t_mul);
    a.Get("m_mul", &o.m_mul);
    a.Get("alpha", &o.alpha);
    return schedules::CosineDecayRestarts(o);
  }
  if (name == "linear_cosine_decay") {
    schedules::LinearCosineDecayOptions o{.learning_rate = initial, .decay_steps = steps};
    a.Get("num_periods", &o.num_periods);
    a.Get("alpha", &o.alpha);
    a.Get("beta", &o.beta);
    return schedules::LinearCosineDecay(o);
  }
  return nullptr;
}

}  // namespace millrace::testing

#endif  // TESTS_TRAINING_GOLDENS_SCHEDULE_OF_H_
