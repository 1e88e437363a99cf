// SPDX-License-Identifier: Apache-2.0
#include "model/callback_list.h"

#include <algorithm>

#include "base/errors.h"
#include "base/exceptions.h"
#include "base/status_macros.h"

namespace millrace::model {

CallbackList::CallbackList(Model* model, std::vector<Callback*> callbacks, const LoopParams& params)
    : model_(model), params_(params), callbacks_(std::move(callbacks)) {
  const bool has_bar = std::any_of(callbacks_.begin(), callbacks_.end(), [](const Callback* c) {
    return dynamic_cast<const ProgressBar*>(c) != nullptr;
  });
  if (has_bar || params.verbose == Verbose::kSilent) return;
  bar_ = std::make_unique<ProgressBar>(ProgressBarOptions{.verbose = params.verbose});
  callbacks_.push_back(bar_.get());
}

Status CallbackList::Start() {
  for (const Callback* callback : callbacks_) {
    if (callback == nullptr) return errors::InvalidArgument("a callback of the list is null");
  }
  MR_RETURN_IF_ERROR(Call(
      [this](Callback& callback) {
        callback.SetModel(model_);
        return OkStatus();
      },
      "where it is given the model"));
  return Call(
      [this](Callback& callback) {
        callback.SetParams(params_);
        return OkStatus();
      },
      "where it is told what is to come");
}

bool CallbackList::reads_batch_logs() const {
  return std::any_of(callbacks_.begin(), callbacks_.end(),
                     [](const Callback* c) { return c != nullptr && c->reads_batch_logs(); });
}

Status CallbackList::StatusOf(const std::function<Status()>& call) { return Guarded(call); }

Status CallbackList::Named(const Callback& callback, const Status& status,
                           const std::string& place) {
  return WithMessage(status,
                     StrCat("callback ", callback.kind(), ", ", place, ": ", Message(status)));
}

}  // namespace millrace::model
