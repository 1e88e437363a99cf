// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <iostream>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "io/background_write.h"
#include "millrace/checkpoint.h"
#include "millrace/checkpoint_callbacks.h"
#include "millrace/model.h"
#include "millrace/strategy.h"
#include "model/callbacks/monitor.h"
#include "model/callbacks/path_format.h"
#include "model/callbacks/step_count.h"

namespace millrace {
namespace {

std::string FiveDigits(double value) {
  char text[64];
  std::snprintf(text, sizeof text, "%.5f", value);
  return text;
}

}  // namespace

ModelCheckpoint::ModelCheckpoint(ModelCheckpointOptions options)
    : options_(std::move(options)), background_(std::make_unique<BackgroundWrite>()) {}

ModelCheckpoint::~ModelCheckpoint() = default;

std::ostream& ModelCheckpoint::out() const {
  return options_.out != nullptr ? *options_.out : std::cout;
}

Status ModelCheckpoint::OnTrainBegin() {
  background_->SyncOrLog();  // of a Fit that has failed
  if (options_.filepath.empty() || options_.filepath.ends_with('/')) {
    return errors::InvalidArgument(
        "Please specify a non-directory filepath for ModelCheckpoint. "
        "Filepath used is '",
        options_.filepath, "'; it is the prefix of a checkpoint's files");
  }
  if (options_.save_freq < 0) {
    return errors::InvalidArgument("save_freq is a number of steps, or kEveryEpoch, and not ",
                                   options_.save_freq);
  }
  const std::optional<double>& threshold = options_.initial_value_threshold;
  if (threshold && std::isnan(*threshold)) {
    return errors::InvalidArgument("initial_value_threshold is ", *threshold,
                                   ", which no value is better than: leave it out");
  }
  if (options_.save_best_only) {
    MR_ASSIGN_OR_RETURN(up_,
                        model::IsUpwards(*this, model(), options_.monitor, options_.direction));
  }
  if (!keeps_state_) {
    best_ = options_.initial_value_threshold;
    last_batch_ = -1;
    steps_ = 0;
  }
  keeps_state_ = false;
  return OkStatus();
}

Status ModelCheckpoint::OnEpochBegin(int64_t epoch) {
  epoch_ = epoch;
  return OkStatus();
}

Status ModelCheckpoint::OnEpochEnd(int64_t, Logs& logs) {
  return options_.save_freq == kEveryEpoch ? Save({}, logs) : OkStatus();
}

Status ModelCheckpoint::OnTrainBatchEnd(int64_t batch, const Logs& logs) {
  if (options_.save_freq == kEveryEpoch ||
      !model::IsDueAfter(batch, options_.save_freq, &last_batch_, &steps_)) {
    return OkStatus();
  }
  return Save(batch, logs);
}

// Says why, or why not.
bool ModelCheckpoint::IsDue(const Logs& logs) {
  if (!options_.save_best_only) return true;
  const std::optional<double> value = model::Monitored(*this, logs, options_.monitor);
  if (!value) return true;
  const bool better =
      !std::isnan(*value) && model::IsImprovement(*value, best_, up_, /*min_delta=*/0);
  if (options_.verbose > 0) {
    out() << "\nEpoch " << epoch_ + 1 << ": " << options_.monitor;
    if (better) {
      out() << " improved from " << (best_ ? FiveDigits(*best_) : "None") << " to "
            << FiveDigits(*value);
    } else {
      out() << " did not improve from " << (best_ ? FiveDigits(*best_) : "None") << std::endl;
    }
  }
  if (better) best_ = *value;
  return better;
}

Status ModelCheckpoint::Save(std::optional<int64_t> batch, const Logs& logs) {
  std::map<std::string, int64_t> counts = {{"epoch", epoch_ + 1}};
  if (batch) counts.emplace("batch", *batch + 1);
  MR_ASSIGN_OR_RETURN(const std::string path, model::FormatPath(options_.filepath, counts, logs));
  if (!IsDue(logs)) return OkStatus();
  if (options_.verbose > 0) {
    out() << (options_.save_best_only && logs.contains(options_.monitor)
                  ? std::string(", ")
                  : StrCat("\nEpoch ", epoch_ + 1, ": "))
          << "saving model to " << path << std::endl;
  }
  if (options_.save_weights_only) return Write(path);
  // When the callbacks behind have had this hook, too.
  model()->training_run()->AfterHook(kind(), [this, path] { return Write(path); });
  return OkStatus();
}

// Weights are the same on all workers, which the chief writes; of all of the training each keeps
// its own.
Status ModelCheckpoint::Write(const std::string& chiefs) {
  const int worker = model()->training_run()->worker();
  if (worker > 0 && options_.save_weights_only) return OkStatus();
  const std::string path = model::PathOfWorker(chiefs, worker);
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return errors::InvalidArgument(
        "Please specify a non-directory filepath for ModelCheckpoint. Filepath used is an existing "
        "directory: ",
        path);
  }
  if (options_.save_weights_only) {
    MR_RETURN_IF_ERROR(options_.asynchronous ? model()->SaveWeightsAsync(path)
                                             : model()->SaveWeights(path));
  } else {
    MR_RETURN_IF_ERROR(background_->Sync());
    MR_ASSIGN_OR_RETURN(TrainingState state, model()->training_run()->State());
    auto write = [path, state = std::move(state)] { return WriteTensors(path, state); };
    MR_RETURN_IF_ERROR(options_.asynchronous ? background_->Start(std::move(write)) : write());
  }
  if (options_.verbose > 0) {
    out() << "Epoch " << epoch_ + 1 << ": finished saving model to " << path << std::endl;
  }
  return OkStatus();
}

Status ModelCheckpoint::OnTrainEnd(const Logs&) {
  Status status = background_->Sync();
  if (options_.asynchronous && options_.save_weights_only) status.Update(model()->SyncWeights());
  return status;
}

CallbackState ModelCheckpoint::State() const {
  CallbackState state;
  model::Put(state, "best", best_);
  model::Put(state, "last_batch", last_batch_);
  model::Put(state, "steps", steps_);
  return state;
}

Status ModelCheckpoint::SetState(const CallbackState& state) {
  MR_RETURN_IF_ERROR(model::Get(state, "best", &best_));
  MR_RETURN_IF_ERROR(model::Get(state, "last_batch", &last_batch_));
  MR_RETURN_IF_ERROR(model::Get(state, "steps", &steps_));
  keeps_state_ = true;
  return OkStatus();
}

}  // namespace millrace
