// SPDX-License-Identifier: Apache-2.0
// What a run of Fit keeps for another one that goes on from it.
#include <map>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "model/fit_run.h"

namespace millrace::model {
namespace {

std::string Key(std::string_view name) { return StrCat(kTrainingKey, name); }

// "EarlyStopping", and of a second one "EarlyStopping_1".
std::string NameOf(const Callback& callback, std::map<std::string, int>* count) {
  const int n = (*count)[callback.kind()]++;
  return n == 0 ? callback.kind() : StrCat(callback.kind(), "_", n);
}

StatusOr<int64_t> Number(const TrainingState& state, std::string_view name) {
  const auto found = state.find(Key(name));
  if (found == state.end()) {
    return errors::InvalidArgument(
        "this is no state of training, such as BackupAndRestore and "
        "ModelCheckpoint write: it has no '",
        Key(name), "'");
  }
  return found->second.TryScalar<int64_t>();
}

void PutLogs(const Logs& logs, TrainingState* state) {
  Tensor names(kString, Shape({static_cast<int64_t>(logs.size())}));
  Tensor values(kDouble, names.shape());
  int64_t i = 0;
  for (const auto& [name, value] : logs) {
    names.data<std::string>()[i] = name;
    values.data<double>()[i++] = value;
  }
  (*state)[Key("logs/names")] = std::move(names);
  (*state)[Key("logs/values")] = std::move(values);
}

Logs LogsOf(const TrainingState& state) {
  const auto names = state.find(Key("logs/names")), values = state.find(Key("logs/values"));
  Logs logs;
  if (names == state.end() || values == state.end() || names->second.dtype() != kString ||
      values->second.dtype() != kDouble ||
      names->second.num_elements() != values->second.num_elements()) {
    return logs;
  }
  for (int64_t i = 0; i < names->second.num_elements(); ++i) {
    logs.Set(names->second.data<std::string>()[i], values->second.data<double>()[i]);
  }
  return logs;
}

}  // namespace

StatusOr<TrainingState> FitRun::State() {
  MR_ASSIGN_OR_RETURN(TrainingState state, steps_.ReadVariables());
  state[Key("epoch")] = Tensor::Scalar<int64_t>(epoch_);
  state[Key("batch")] = Tensor::Scalar<int64_t>(batch_);
  state[Key("stopped")] = Tensor::Scalar<int64_t>(model_->stop_training() ? 1 : 0);
  if (num_workers() > 1) state[Key("workers")] = Tensor::Scalar<int64_t>(num_workers());
  MR_ASSIGN_OR_RETURN(state[Key("data")], train_->Position());
  if (validation_ != nullptr) {
    MR_ASSIGN_OR_RETURN(state[Key("validation_data")], validation_->Position());
  }
  PutLogs(logs_, &state);
  std::map<std::string, int> count;
  for (const Callback* callback : o_.callbacks) {
    const std::string owner = NameOf(*callback, &count);
    for (auto& [name, value] : callback->State()) {
      state[Key(StrCat("callbacks/", owner, "/", name))] = value;
    }
  }
  return state;
}

Status FitRun::CheckState(const TrainingState& state) const {
  for (const char* name : {"epoch", "batch", "stopped"}) {
    MR_ASSIGN_OR_RETURN(const int64_t number, Number(state, name));
    if (number < 0) return errors::InvalidArgument("the state of training has ", name, " ", number);
  }
  int64_t workers = 1;
  if (state.contains(Key("workers"))) {
    MR_ASSIGN_OR_RETURN(workers, Number(state, "workers"));
  }
  if (workers != num_workers()) {
    return errors::InvalidArgument(
        "the state of training is one of ", workers, " worker(s), each of which has its own, and ",
        "this training has ", num_workers(), ": start as many, or begin anew in another directory ",
        "with its weights (Model::LoadWeights reads them from the chief's state)");
  }
  if (!state.contains(Key("data"))) {
    return errors::InvalidArgument("the state of training has no position in the data");
  }
  return steps_.CheckVariables(state);
}

Status FitRun::SetCallbackStates(const TrainingState& state) {
  std::map<std::string, int> count;
  for (Callback* callback : o_.callbacks) {
    const std::string start = Key(StrCat("callbacks/", NameOf(*callback, &count), "/"));
    CallbackState own;
    for (auto it = state.lower_bound(start); it != state.end() && it->first.starts_with(start);
         ++it) {
      own[it->first.substr(start.size())] = it->second;
    }
    if (own.empty()) continue;
    if (const Status set = callback->SetState(own); !set.ok()) {
      return WithMessage(set, StrCat("callback ", callback->kind(), ": ", Message(set)));
    }
  }
  return OkStatus();
}

Status FitRun::SetState(TrainingState state) {
  MR_RETURN_IF_ERROR(CheckState(state));
  MR_RETURN_IF_ERROR(SetCallbackStates(state));
  MR_RETURN_IF_ERROR(steps_.WriteVariables(state));
  MR_ASSIGN_OR_RETURN(epoch_, Number(state, "epoch"));
  MR_ASSIGN_OR_RETURN(batch_, Number(state, "batch"));
  MR_ASSIGN_OR_RETURN(const int64_t stopped, Number(state, "stopped"));
  model_->set_stop_training(stopped != 0);
  logs_ = LogsOf(state);
  resumed_ = std::move(state);
  return OkStatus();
}

Status FitRun::TakeUp() {
  if (!resumed_) return OkStatus();
  const TrainingState state = *std::move(resumed_);
  resumed_.reset();
  // Once more: hooks that have been called since may have changed some.
  MR_RETURN_IF_ERROR(steps_.WriteVariables(state));
  const Tensor& data = state.at(Key("data"));
  MR_RETURN_IF_ERROR(train_->SetPosition(data));
  data_began_ = data.num_elements() > 0;
  const auto validation = state.find(Key("validation_data"));
  if (validation_ == nullptr || validation == state.end()) return OkStatus();
  return validation_->SetPosition(validation->second);
}

}  // namespace millrace::model
