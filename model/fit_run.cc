// SPDX-License-Identifier: Apache-2.0
// The loop of Fit. What it does in an epoch that an earlier run has begun is what that would have
// done: nothing is begun anew, and the steps that are missing follow.
#include "model/fit_run.h"

#include <algorithm>

#include "base/errors.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "millrace/checkpoint.h"
#include "millrace/preemption.h"
#include "model/callbacks/path_format.h"

namespace millrace::model {
FitRun::FitRun(Model* model, Steps* steps, const FitOptions& options, std::unique_ptr<Source> train,
               std::unique_ptr<Source> validation, int64_t count)
    : model_(model),
      steps_(*steps),
      o_(options),
      train_(std::move(train)),
      validation_(std::move(validation)),
      params_{.verbose = o_.verbose, .epochs = o_.epochs, .steps = count},
      callbacks_(model, options.callbacks, params_),
      reads_logs_(callbacks_.reads_batch_logs()),
      epoch_(o_.initial_epoch) {
  history_.set_params(params_);
}

bool FitRun::ValidationIsDue() const {
  if (validation_ == nullptr) return false;
  if (o_.validation_epochs.empty()) return (epoch_ + 1) % o_.validation_freq == 0;
  return std::find(o_.validation_epochs.begin(), o_.validation_epochs.end(), epoch_ + 1) !=
         o_.validation_epochs.end();
}

// Only with steps_per_epoch: the data are fewer.
void FitRun::WarnOfEnd() const {
  const int64_t epochs = o_.epochs - o_.initial_epoch, count = train_->count();
  const int64_t rows = steps_.RowsSeen();
  MR_LOG(kWarning,
         "Your input ran out of data; interrupting training. Make sure that your dataset or "
         "generator can generate at least `steps_per_epoch * epochs` batches. You may need to use "
         "the `.repeat()` function when building your dataset. (Epoch ",
         epoch_ + 1, " ends after ", batch_, " of ", *o_.steps_per_epoch, " steps; ",
         rows < 0 ? "" : StrCat("rows seen in them: ", rows, "; "), train_->Size(), ", ", count,
         " batches, and ", epochs, " epochs want ", *o_.steps_per_epoch * epochs,
         "; leave steps_per_epoch out, so that every epoch is one pass over the data, or make it ",
         "at most ", std::max<int64_t>(1, count / epochs), ")");
}

Status FitRun::RunActions() {
  // An action may ask for another one.
  for (std::size_t i = 0; i < after_hook_.size(); ++i) {
    const auto [owner, action] = after_hook_[i];
    if (const Status status = action(); !status.ok()) {
      return WithMessage(status, StrCat("callback ", owner, ", in epoch ", epoch_, " after ",
                                        batch_, " steps: ", Message(status)));
    }
  }
  after_hook_.clear();
  return OkStatus();
}

// Steps up to the next hook: how many were made, fewer where the data end.
StatusOr<int64_t> FitRun::Execution() {
  int64_t limit = steps_.steps_per_execution();
  if (o_.steps_per_epoch) limit = std::min(limit, *o_.steps_per_epoch - batch_);
  int64_t done = 0;
  const Status status = train_->Execute(limit, reads_logs_ ? &logs_ : nullptr, &done);
  if (status.ok() || train_->IsEnd(status)) return done;
  return Annotate(status, StrCat("; in epoch ", epoch_, ", batch ", batch_ + done));
}

Status FitRun::Executions() {
  const auto has_more = [&] { return !o_.steps_per_epoch || batch_ < *o_.steps_per_epoch; };
  while (has_more() && !model_->stop_training()) {
    int64_t done = 0;
    if (!train_->at_end()) {
      MR_RETURN_IF_ERROR(Call([&](Callback& c) { return c.OnTrainBatchBegin(batch_); },
                              "at the begin of epoch ", epoch_, ", batch ", batch_));
      MR_ASSIGN_OR_RETURN(done, Execution());
    }
    if (done == 0) {
      if (o_.steps_per_epoch) {
        WarnOfEnd();
      } else if (batch_ == 0) {
        return errors::InvalidArgument(train_->Size(), " has no batches");
      }
      return OkStatus();
    }
    batch_ += done;
    // As callbacks find it: a backup ends the training by itself. A notice that comes meanwhile is
    // one for the next step, as one for a single worker is that the others do not know of yet.
    const Status notice = steps_.notice() != 0 ? CheckPreemption() : OkStatus();
    MR_RETURN_IF_ERROR(Call([&](Callback& c) { return c.OnTrainBatchEnd(batch_ - 1, logs_); },
                            "at the end of epoch ", epoch_, ", batch ", batch_ - 1));
    if (!notice.ok()) {
      return Annotate(notice, StrCat("; training ended in epoch ", epoch_, " after ", batch_,
                                     " steps, of which no callback has made a backup"));
    }
  }
  return OkStatus();
}

Status FitRun::BeginEpoch() {
  const bool is_begun = batch_ > 0;
  if (!is_begun) {
    MR_RETURN_IF_ERROR(TakeUp());
    MR_RETURN_IF_ERROR(steps_.ResetMetrics());
    logs_ = Logs();
  }
  MR_RETURN_IF_ERROR(
      Call([&](Callback& c) { return c.OnEpochBegin(epoch_); }, "at the begin of epoch ", epoch_));
  if (is_begun) return TakeUp();
  // With a number of steps the data go on where they are, and begin again only after their end.
  if (!data_began_ || !o_.steps_per_epoch || train_->at_end()) {
    MR_RETURN_IF_ERROR(train_->Restart());
    data_began_ = true;
  }
  return OkStatus();
}

Status FitRun::EndEpoch() {
  MR_ASSIGN_OR_RETURN(logs_, steps_.Results());
  if (ValidationIsDue()) {
    MR_ASSIGN_OR_RETURN(const Logs tested,
                        TestLoop(steps_, *validation_, o_.validation_steps, callbacks_,
                                 /*heeds_notice=*/false));
    std::vector<Logs::Entry> all(logs_.begin(), logs_.end());
    for (const auto& [name, value] : tested) all.emplace_back("val_" + name, value);
    std::sort(all.begin(), all.end());
    logs_ = Logs(std::move(all));
  }
  const int64_t ended = epoch_;
  after_hook_.clear();
  MR_RETURN_IF_ERROR(callbacks_.Call([&](Callback& c) { return c.OnEpochEnd(ended, logs_); },
                                     "at the end of epoch ", ended));
  history_.Add(ended, logs_);
  ++epoch_;
  batch_ = 0;
  return RunActions();
}

Status FitRun::Epoch() {
  MR_RETURN_IF_ERROR(BeginEpoch());
  MR_RETURN_IF_ERROR(Executions());
  return EndEpoch();
}

StatusOr<History> FitRun::Run() {
  MR_RETURN_IF_ERROR(callbacks_.Start());
  model_->set_stop_training(false);
  if (!o_.resume_from.empty()) {
    const std::string own = PathOfWorker(o_.resume_from, worker());
    MR_ASSIGN_OR_RETURN(TrainingState state, ReadTensors(own));
    const Status set = SetState(std::move(state));
    if (!set.ok()) return Annotate(set, StrCat("; from ", own));
  }
  MR_RETURN_IF_ERROR(
      Call([](Callback& c) { return c.OnTrainRestore(); }, "where it looks for an earlier run"));
  MR_RETURN_IF_ERROR(
      Call([](Callback& c) { return c.OnTrainBegin(); }, "at the begin of training"));
  while (epoch_ < o_.epochs && !model_->stop_training()) MR_RETURN_IF_ERROR(Epoch());
  MR_RETURN_IF_ERROR(TakeUp());  // if there was no epoch left
  MR_RETURN_IF_ERROR(steps_.FinishTraining());
  MR_RETURN_IF_ERROR(
      Call([&](Callback& c) { return c.OnTrainEnd(logs_); }, "at the end of training"));
  return std::move(history_);
}

}  // namespace millrace::model
