// SPDX-License-Identifier: Apache-2.0
#include "millrace/schedules.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <utility>

#include "base/errors.h"
#include "base/exceptions.h"
#include "base/options/option_checks.h"
#include "base/status_macros.h"
#include "millrace/math.h"

namespace millrace {

namespace {

Status CheckRate(const Output& rate) {
  if (!rate.valid()) {
    return errors::InvalidArgument("the schedule of the learning rate returned no output");
  }
  const PartialShape shape = rate.shape();
  if (shape.has_rank() && shape.rank() != 0) {
    return errors::InvalidArgument("the learning rate, ", rate.name(), ", is of shape ",
                                   shape.DebugString(), ", and must be one number");
  }
  const DataType dtype = rate.dtype();
  if (dtype == kString || dtype == kBool || dtype == kResource || dtype == kVariant) {
    return errors::InvalidArgument("the learning rate, ", rate.name(), ", is of type ",
                                   DataTypeName(dtype), ", and must be a number");
  }
  return OkStatus();
}

}  // namespace

Output LearningRate::At(const Scope& scope, const Output& step) const {
  if (is_number()) {
    return Constant(scope, Tensor::Scalar<float>(static_cast<float>(number_)));
  }
  Output rate = tensor_;
  Status status;
  if (is_schedule_ && !schedule_) {
    status = errors::InvalidArgument(
        "the learning rate is a schedule without a function: "
        "give it one of schedules::, or a lambda");
  } else if (is_schedule_) {
    status = Guarded([&] {
      rate = schedule_(scope, step);
      return OkStatus();
    });
    if (!status.ok()) {
      status = Annotate(status, ": thrown by the schedule of the learning rate");
    } else if (!rate.valid() && !scope.status().ok()) {
      return Output();  // what the schedule found wrong is known
    }
  }
  status.Update(CheckRate(rate));
  if (!status.ok()) {
    scope.RecordError(status, std::source_location::current());
    return Output();
  }
  return rate.dtype() == kFloat ? rate : ops::Cast(scope, rate, kFloat);
}

namespace schedules {
namespace {

// Computes the rate of a step that is a float already.
using Formula = std::function<Expr(const Expr& step)>;

// The number that steps are divided by.
Status CheckSteps(const char* name, double steps) {
  if (steps > 0 && std::isfinite(steps)) return OkStatus();
  return errors::InvalidArgument("a schedule's ", name, " must be positive, not ", steps);
}

// The length of the decay must be positive, as well as what `checks` say.
Schedule Make(const char* steps_name, double steps, const OptionChecks& checks, Formula formula) {
  Status options = CheckSteps(steps_name, steps);
  if (options.ok()) options = checks.status();
  return [options, formula = std::move(formula)](const Scope& scope, const Output& step) -> Output {
    if (!options.ok()) scope.RecordError(options, std::source_location::current());
    if (!options.ok() || !step.valid()) return Output();
    return formula(Expr(scope.Named("learning_rate"), step).Cast(kFloat));
  };
}

Expr Number(const Expr& like, double value) {
  return Expr(like.scope(),
              Constant(like.scope(), Tensor::Scalar<float>(static_cast<float>(value))));
}

Schedule OfFraction(const ExponentialDecayOptions& o, OptionChecks checks,
                    std::function<Expr(const Expr&)> formula) {
  checks.Finite("initial_learning_rate", o.initial_learning_rate)
      .Finite("decay_rate", o.decay_rate);
  return Make("decay_steps", o.decay_steps, checks,
              [o, formula = std::move(formula)](const Expr& step) {
                const Expr fraction = step / o.decay_steps;
                return formula(o.staircase ? fraction.Floor() : fraction);
              });
}

// One half of a wave, from 1 to 0 where `fraction` goes from 0 to 1.
Expr HalfWave(const Expr& fraction) { return 0.5 * (1.0 + (std::numbers::pi * fraction).Cos()); }

Expr LinearCosine(const LinearCosineDecayOptions& o, const Expr& step,
                  const std::function<Expr(const Expr& linear)>& change) {
  const Expr held = step.Min(o.decay_steps);
  const Expr linear = change((o.decay_steps - held) / o.decay_steps);
  const Expr wave = HalfWave(2 * o.num_periods * held / o.decay_steps);
  return o.learning_rate * ((o.alpha + linear) * wave + o.beta);
}

}  // namespace

Schedule ExponentialDecay(const ExponentialDecayOptions& o) {
  OptionChecks checks("ExponentialDecay");
  // Powers between whole numbers.
  if (!o.staircase) checks.AtLeast("decay_rate", o.decay_rate, 0);
  return OfFraction(o, checks, [o](const Expr& fraction) {
    return o.initial_learning_rate * fraction.PowerOf(o.decay_rate);
  });
}

Schedule NaturalExponentialDecay(const ExponentialDecayOptions& o) {
  return OfFraction(o, OptionChecks("NaturalExponentialDecay"), [o](const Expr& fraction) {
    return o.initial_learning_rate * (-o.decay_rate * fraction).Exp();
  });
}

Schedule InverseTimeDecay(const ExponentialDecayOptions& o) {
  OptionChecks checks("InverseTimeDecay");
  // The divisor would come to 0.
  checks.AtLeast("decay_rate", o.decay_rate, 0);
  return OfFraction(o, checks, [o](const Expr& fraction) {
    return o.initial_learning_rate / (1.0 + o.decay_rate * fraction);
  });
}

namespace {

Status CheckPieces(const std::vector<double>& boundaries, const std::vector<double>& values) {
  if (values.size() != boundaries.size() + 1) {
    return errors::InvalidArgument("a piecewise constant schedule of ", boundaries.size(),
                                   " boundaries needs one value more, not ", values.size());
  }
  OptionChecks checks("PiecewiseConstantDecay");
  for (const double boundary : boundaries) checks.Finite("a boundary", boundary);
  for (const double value : values) checks.Finite("a value", value);
  MR_RETURN_IF_ERROR(checks.status());
  const auto down = std::adjacent_find(boundaries.begin(), boundaries.end(), std::greater_equal());
  if (down == boundaries.end()) return OkStatus();
  return errors::InvalidArgument("PiecewiseConstantDecay: boundaries must ascend, and ", down[1],
                                 " follows ", down[0]);
}

}  // namespace

Schedule PiecewiseConstantDecay(std::vector<double> boundaries, std::vector<double> values) {
  return [boundaries, values](const Scope& scope, const Output& step) -> Output {
    if (const Status pieces = CheckPieces(boundaries, values); !pieces.ok()) {
      scope.RecordError(pieces, std::source_location::current());
      return Output();
    }
    const Scope s = scope.Named("learning_rate");
    // Compared in double: exact for every step that can be reached.
    const Expr behind =
        Expr(s, step).Cast(kDouble) >
        Tensor::FromValues<double>(boundaries, Shape({static_cast<int64_t>(boundaries.size())}));
    const std::vector<float> rates(values.begin(), values.end());
    return ops::GatherV2(
        s, Tensor::FromValues<float>(rates, Shape({static_cast<int64_t>(rates.size())})),
        behind.Cast(kInt32).Sum({0}), 0);
  };
}

Schedule PolynomialDecay(const PolynomialDecayOptions& o) {
  OptionChecks checks("PolynomialDecay");
  checks.Finite("initial_learning_rate", o.initial_learning_rate)
      .Finite("end_learning_rate", o.end_learning_rate)
      .AtLeast("power", o.power, 0);
  return Make("decay_steps", o.decay_steps, checks, [o](const Expr& step) {
    // Step 0 of a cycle has a period of its own, too.
    const Expr steps = o.cycle ? (step / o.decay_steps).Ceil().Max(1.0) * o.decay_steps
                               : Number(step, o.decay_steps);
    const Expr left = 1.0 - (o.cycle ? step : step.Min(o.decay_steps)) / steps;
    return (o.initial_learning_rate - o.end_learning_rate) * left.Pow(o.power) +
           o.end_learning_rate;
  });
}

Schedule CosineDecay(const CosineDecayOptions& o) {
  OptionChecks checks("CosineDecay");
  checks.Finite("initial_learning_rate", o.initial_learning_rate)
      .Finite("alpha", o.alpha)
      .Finite("warmup_target", o.warmup_target)
      .AtLeast("warmup_steps", o.warmup_steps, 0);
  return Make("decay_steps", o.decay_steps, checks, [o](const Expr& step) {
    const auto decay = [&](const Expr& at, double from) {
      return from * ((1 - o.alpha) * HalfWave(at / o.decay_steps) + o.alpha);
    };
    if (!o.warmup_target) return decay(step.Min(o.decay_steps), o.initial_learning_rate);
    const double target = *o.warmup_target, warmup = o.warmup_steps;
    const Expr at = step.Min(o.decay_steps + warmup);
    const Expr decayed = decay(at - warmup, target);
    if (warmup <= 0) return decayed;
    const Expr rising =
        (target - o.initial_learning_rate) * (at / warmup) + o.initial_learning_rate;
    return (at < warmup).Select(rising, decayed);
  });
}

Schedule CosineDecayRestarts(const CosineDecayRestartsOptions& o) {
  OptionChecks checks("CosineDecayRestarts");
  // Of periods that become shorter there is an end, behind which no rate is defined.
  checks.Finite("initial_learning_rate", o.initial_learning_rate)
      .AtLeast("t_mul", o.t_mul, 1)
      .Finite("m_mul", o.m_mul)
      .Finite("alpha", o.alpha);
  return Make("first_decay_steps", o.first_decay_steps, checks, [o](const Expr& step) {
    Expr fraction = step / o.first_decay_steps;
    Expr restart = fraction.Floor();
    if (o.t_mul == 1) {
      fraction = fraction - restart;
    } else {
      // As TensorFlow does it, in float: which restart it is comes from a logarithm.
      restart = ((1.0 - fraction * (1 - o.t_mul)).Log() / Number(step, o.t_mul).Log()).Floor();
      const Expr length = restart.PowerOf(o.t_mul);
      fraction = (fraction - (1.0 - length) / (1 - o.t_mul)) / length;
    }
    const Expr height = restart.PowerOf(o.m_mul);
    const Expr wave = 0.5 * height * (1.0 + (std::numbers::pi * fraction).Cos());
    return o.initial_learning_rate * ((1 - o.alpha) * wave + o.alpha);
  });
}

namespace {

OptionChecks ChecksOf(const char* name, const LinearCosineDecayOptions& o) {
  OptionChecks checks(name);
  checks.Finite("learning_rate", o.learning_rate)
      .Finite("num_periods", o.num_periods)
      .Finite("alpha", o.alpha)
      .Finite("beta", o.beta);
  return checks;
}

}  // namespace

Schedule LinearCosineDecay(const LinearCosineDecayOptions& o) {
  const OptionChecks checks = ChecksOf("LinearCosineDecay", o);
  return Make("decay_steps", o.decay_steps, checks, [o](const Expr& step) {
    return LinearCosine(o, step, [](const Expr& linear) { return linear; });
  });
}

Schedule NoisyLinearCosineDecay(const NoisyLinearCosineDecayOptions& o) {
  OptionChecks checks = ChecksOf("NoisyLinearCosineDecay", o.decay);
  checks.AtLeast("initial_variance", o.initial_variance, 0)
      .Finite("variance_decay", o.variance_decay);
  return Make("decay_steps", o.decay.decay_steps, checks, [o](const Expr& step) {
    return LinearCosine(o.decay, step, [&](const Expr& linear) {
      const Expr deviation = (o.initial_variance / (1.0 + step).Pow(o.variance_decay)).Sqrt();
      return linear + deviation * RandomNormal(step.scope(), {}, {.seed = o.seed});
    });
  });
}

}  // namespace schedules
}  // namespace millrace
