// SPDX-License-Identifier: Apache-2.0
// The callbacks that set the learning rate.
#include <algorithm>
#include <cmath>

#include "base/errors.h"
#include "base/options/option_checks.h"
#include "base/status_macros.h"
#include "millrace/model.h"
#include "model/callbacks/monitor.h"

namespace millrace {
namespace {

// The rate that this epoch was trained with.
Status LogRate(Model* model, Logs& logs) {
  MR_ASSIGN_OR_RETURN(const double rate, model->GetLearningRate());
  logs.Set("learning_rate", rate);
  return OkStatus();
}

}  // namespace

Status ReduceLrOnPlateau::OnTrainBegin() {
  if (!(options_.factor < 1)) {
    return errors::InvalidArgument("factor must be below 1, so that the rate falls, not be ",
                                   options_.factor);
  }
  OptionChecks checks("ReduceLrOnPlateau");
  checks.AtLeast("factor", options_.factor, 0)
      .AtLeast("patience", static_cast<double>(options_.patience), 0)
      .Finite("min_delta", options_.min_delta)
      .AtLeast("cooldown", static_cast<double>(options_.cooldown), 0)
      .Finite("min_learning_rate", options_.min_learning_rate);
  MR_RETURN_IF_ERROR(checks.status());
  MR_ASSIGN_OR_RETURN(up_, model::IsUpwards(*this, model(), options_.monitor, options_.direction));
  if (!keeps_state_) {
    wait_ = 0;
    cooldown_counter_ = 0;
    best_.reset();
  }
  keeps_state_ = false;
  return OkStatus();
}

Status ReduceLrOnPlateau::OnEpochEnd(int64_t, Logs& logs) {
  MR_RETURN_IF_ERROR(LogRate(model(), logs));
  const std::optional<double> value = model::Monitored(*this, logs, options_.monitor);
  if (!value) return OkStatus();
  if (cooldown_counter_ > 0) {
    --cooldown_counter_;
    wait_ = 0;
  }
  if (model::IsImprovement(*value, best_, up_, options_.min_delta)) {
    best_ = *value;
    wait_ = 0;
    return OkStatus();
  }
  if (cooldown_counter_ > 0 || ++wait_ < options_.patience) return OkStatus();
  const double rate = logs["learning_rate"];
  if (!(rate > static_cast<float>(options_.min_learning_rate))) return OkStatus();
  MR_RETURN_IF_ERROR(
      model()->SetLearningRate(std::max(rate * options_.factor, options_.min_learning_rate)));
  cooldown_counter_ = options_.cooldown;
  wait_ = 0;
  return OkStatus();
}

CallbackState ReduceLrOnPlateau::State() const {
  CallbackState state;
  model::Put(state, "wait", wait_);
  model::Put(state, "cooldown_counter", cooldown_counter_);
  model::Put(state, "best", best_);
  return state;
}

Status ReduceLrOnPlateau::SetState(const CallbackState& state) {
  MR_RETURN_IF_ERROR(model::Get(state, "wait", &wait_));
  MR_RETURN_IF_ERROR(model::Get(state, "cooldown_counter", &cooldown_counter_));
  MR_RETURN_IF_ERROR(model::Get(state, "best", &best_));
  keeps_state_ = true;
  return OkStatus();
}

Status LearningRateScheduler::OnEpochBegin(int64_t epoch) {
  MR_ASSIGN_OR_RETURN(const double rate, model()->GetLearningRate());
  if (!schedule_) return errors::InvalidArgument("its schedule is null: give it a function");
  const double next = schedule_(epoch, rate);
  if (!std::isfinite(next)) {
    return errors::InvalidArgument("the schedule's rate for epoch ", epoch,
                                   " must be a finite number, not ", next);
  }
  return model()->SetLearningRate(next);
}

Status LearningRateScheduler::OnEpochEnd(int64_t, Logs& logs) { return LogRate(model(), logs); }

}  // namespace millrace
