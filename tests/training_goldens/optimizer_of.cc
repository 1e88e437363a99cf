// SPDX-License-Identifier: Apache-2.0
#include "tests/training_goldens/optimizer_of.h"

#include "tests/training_goldens/schedule_of.h"

namespace millrace::testing {
namespace {

LearningRate RateOf(const Arguments& a, double otherwise) {
  if (!a.Has("learning_rate")) return otherwise;
  const Json& rate = a.json()["learning_rate"];
  if (rate.is_number()) return rate.get<double>();
  return ScheduleOf(rate["SCHEDULE"], Arguments(rate));
}

// What all options of Keras have.
template <typename Options>
Options OptionsOf(const Arguments& a) {
  Options o;
  o.learning_rate = RateOf(a, o.learning_rate.number());
  optimizers::CommonOptions& c = o.common;
  a.Get("weight_decay", &c.weight_decay);
  a.Get("clipnorm", &c.clip_norm);
  a.Get("global_clipnorm", &c.global_clip_norm);
  a.Get("clipvalue", &c.clip_value);
  a.Get("use_ema", &c.use_ema);
  a.Get("ema_momentum", &c.ema_momentum);
  a.Get("ema_overwrite_frequency", &c.ema_overwrite_frequency);
  a.Get("loss_scale_factor", &c.loss_scale_factor);
  a.Get("gradient_accumulation_steps", &c.gradient_accumulation_steps);
  if constexpr (requires { o.beta_1; }) {
    a.Get("beta_1", &o.beta_1);
    a.Get("beta_2", &o.beta_2);
  }
  if constexpr (requires { o.epsilon; }) a.Get("epsilon", &o.epsilon);
  if constexpr (requires { o.momentum; }) a.Get("momentum", &o.momentum);
  if constexpr (requires { o.nesterov; }) a.Get("nesterov", &o.nesterov);
  if constexpr (requires { o.rho; }) a.Get("rho", &o.rho);
  if constexpr (requires { o.initial_accumulator_value; }) {
    a.Get("initial_accumulator_value", &o.initial_accumulator_value);
  }
  return o;
}

optimizers::AdamOptions AdamOf(const Arguments& a) {
  auto o = OptionsOf<optimizers::AdamOptions>(a);
  a.Get("amsgrad", &o.amsgrad);
  return o;
}

optimizers::MuonOptions MuonOf(const Arguments& a) {
  auto o = OptionsOf<optimizers::MuonOptions>(a);
  a.Get("weight_decay", &o.weight_decay);
  a.Get("adam_weight_decay", &o.adam_weight_decay);
  a.Get("ns_steps", &o.ns_steps);
  a.Get("adam_lr_ratio", &o.adam_lr_ratio);
  a.Get("rms_rate", &o.rms_rate);
  return o;
}

optimizers::FtrlOptions FtrlOf(const Arguments& a) {
  auto o = OptionsOf<optimizers::FtrlOptions>(a);
  a.Get("learning_rate_power", &o.learning_rate_power);
  a.Get("l1_regularization_strength", &o.l1_regularization_strength);
  a.Get("l2_regularization_strength", &o.l2_regularization_strength);
  a.Get("l2_shrinkage_regularization_strength", &o.l2_shrinkage_regularization_strength);
  a.Get("beta", &o.beta);
  return o;
}

optimizers::AdafactorOptions AdafactorOf(const Arguments& a) {
  auto o = OptionsOf<optimizers::AdafactorOptions>(a);
  a.Get("beta_2_decay", &o.beta_2_decay);
  a.Get("epsilon_1", &o.epsilon_1);
  a.Get("epsilon_2", &o.epsilon_2);
  a.Get("clip_threshold", &o.clip_threshold);
  a.Get("relative_step", &o.relative_step);
  return o;
}

}  // namespace

std::unique_ptr<optimizers::KerasOptimizer> KerasOptimizerOf(const std::string& name,
                                                             const Arguments& a) {
  namespace o = optimizers;
  if (name == "SGD") return o::Sgd(OptionsOf<o::SgdOptions>(a));
  if (name == "RMSprop") {
    auto options = OptionsOf<o::RmsPropOptions>(a);
    a.Get("centered", &options.centered);
    return o::RmsProp(options);
  }
  if (name == "Adam") return o::Adam(AdamOf(a));
  if (name == "AdamW") return o::AdamW(AdamOf(a));
  if (name == "Adamax") return o::Adamax(OptionsOf<o::AdamaxOptions>(a));
  if (name == "Nadam") return o::Nadam(OptionsOf<o::NadamOptions>(a));
  if (name == "Adagrad") return o::Adagrad(OptionsOf<o::AdagradOptions>(a));
  if (name == "Adadelta") return o::Adadelta(OptionsOf<o::AdadeltaOptions>(a));
  if (name == "Adafactor") return o::Adafactor(AdafactorOf(a));
  if (name == "Ftrl") return o::Ftrl(FtrlOf(a));
  if (name == "Lion") return o::Lion(OptionsOf<o::LionOptions>(a));
  if (name == "Lamb") return o::Lamb(OptionsOf<o::LambOptions>(a));
  if (name == "Muon") return o::Muon(MuonOf(a));
  if (name == "ScheduleFreeAdamW") {
    auto options = OptionsOf<o::ScheduleFreeAdamWOptions>(a);
    a.Get("warmup_steps", &options.warmup_steps);
    return o::ScheduleFreeAdamW(options);
  }
  return nullptr;
}

std::unique_ptr<Optimizer> V1OptimizerOf(const std::string& name, const Arguments& a) {
  float momentum = 0, initial = 0.1f, initial_squared = 0.1f, l1 = 0, l2 = 0, shrinkage = 0,
        beta = 0, power = -0.5f, rho = 0.95f, decay = 0.9f, beta1 = 0.9f, beta2 = 0.999f;
  float epsilon = name == "RMSPropOptimizer" ? 1e-10f : 1e-8f;
  bool nesterov = false, centered = false;
  a.Get("momentum", &momentum);
  a.Get("initial_accumulator_value", &initial);
  a.Get("initial_gradient_squared_accumulator_value", &initial_squared);
  a.Get("l1_regularization_strength", &l1);
  a.Get("l2_regularization_strength", &l2);
  a.Get("l2_shrinkage_regularization_strength", &shrinkage);
  a.Get("beta", &beta);
  a.Get("learning_rate_power", &power);
  a.Get("rho", &rho);
  a.Get("decay", &decay);
  a.Get("beta1", &beta1);
  a.Get("beta2", &beta2);
  a.Get("epsilon", &epsilon);
  a.Get("use_nesterov", &nesterov);
  a.Get("centered", &centered);
  const LearningRate rate = RateOf(a, 0.001);
  if (name == "GradientDescentOptimizer") return GradientDescent({rate});
  if (name == "MomentumOptimizer") return Momentum({rate, momentum, nesterov});
  if (name == "AdagradOptimizer") return Adagrad({rate, initial});
  if (name == "AdagradDAOptimizer") return AdagradDa({rate, initial_squared, l1, l2});
  if (name == "AdadeltaOptimizer") return Adadelta({rate, rho, epsilon});
  if (name == "RMSPropOptimizer") return RmsProp({rate, decay, momentum, epsilon, centered});
  if (name == "AdamOptimizer") return Adam({rate, beta1, beta2, epsilon});
  if (name == "FtrlOptimizer") return Ftrl({rate, power, initial, l1, l2, shrinkage, beta});
  if (name == "ProximalGradientDescentOptimizer") return ProximalGradientDescent({rate, l1, l2});
  if (name == "ProximalAdagradOptimizer") return ProximalAdagrad({rate, initial, l1, l2});
  return nullptr;
}

}  // namespace millrace::testing
