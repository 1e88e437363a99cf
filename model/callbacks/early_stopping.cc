// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "base/errors.h"
#include "base/options/option_checks.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "millrace/model.h"
#include "model/callbacks/monitor.h"

namespace millrace {

Status EarlyStopping::OnTrainBegin() {
  OptionChecks checks("EarlyStopping");
  checks.Finite("min_delta", options_.min_delta)
      .AtLeast("patience", static_cast<double>(options_.patience), 0)
      .AtLeast("start_from_epoch", static_cast<double>(options_.start_from_epoch), 0);
  // An infinite one is no bar, or one that nothing gets over.
  if (options_.baseline && std::isnan(*options_.baseline)) {
    checks.Finite("baseline", options_.baseline);
  }
  MR_RETURN_IF_ERROR(checks.status());
  MR_ASSIGN_OR_RETURN(up_, model::IsUpwards(*this, model(), options_.monitor, options_.direction));
  if (!keeps_state_) {
    wait_ = 0;
    best_epoch_ = 0;
    best_.reset();
    best_weights_.clear();
  }
  keeps_state_ = false;
  stopped_epoch_ = 0;
  return OkStatus();
}

Status EarlyStopping::OnEpochEnd(int64_t epoch, Logs& logs) {
  const std::optional<double> value = model::Monitored(*this, logs, options_.monitor);
  if (!value || epoch < options_.start_from_epoch) return OkStatus();
  ++wait_;
  // The least change that counts has no sign.
  const double min_delta = std::abs(options_.min_delta);
  if (model::IsImprovement(*value, best_, up_, min_delta)) {
    best_ = *value;
    best_epoch_ = epoch;
    if (options_.restore_best_weights) {
      MR_ASSIGN_OR_RETURN(best_weights_, model()->GetWeights());
    }
    if (!options_.baseline || model::IsImprovement(*value, options_.baseline, up_, min_delta)) {
      wait_ = 0;
    }
    return OkStatus();
  }
  if (wait_ >= options_.patience && epoch > 0) {
    stopped_epoch_ = epoch;
    model()->set_stop_training(true);
  }
  return OkStatus();
}

Status EarlyStopping::OnTrainEnd(const Logs&) {
  return best_weights_.empty() ? OkStatus() : model()->SetWeights(best_weights_);
}

CallbackState EarlyStopping::State() const {
  CallbackState state;
  model::Put(state, "wait", wait_);
  model::Put(state, "best_epoch", best_epoch_);
  model::Put(state, "best", best_);
  for (std::size_t i = 0; i < best_weights_.size(); ++i) {
    state[StrCat("best_weights/", i)] = best_weights_[i];
  }
  return state;
}

Status EarlyStopping::SetState(const CallbackState& state) {
  MR_RETURN_IF_ERROR(model::Get(state, "wait", &wait_));
  MR_RETURN_IF_ERROR(model::Get(state, "best_epoch", &best_epoch_));
  MR_RETURN_IF_ERROR(model::Get(state, "best", &best_));
  best_weights_.clear();
  for (auto found = state.end();
       (found = state.find(StrCat("best_weights/", best_weights_.size()))) != state.end();) {
    best_weights_.push_back(found->second);
  }
  keeps_state_ = true;
  return OkStatus();
}

}  // namespace millrace
