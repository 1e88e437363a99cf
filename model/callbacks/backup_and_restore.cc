// Backups are checkpoints of tensors, "backup-<number>", under a state file; the one before the
// last goes when the last is on the disk.
#include <filesystem>
#include <vector>

#include "base/errors.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "millrace/checkpoint.h"
#include "millrace/checkpoint_callbacks.h"
#include "millrace/model.h"
#include "millrace/preemption.h"
#include "millrace/saver.h"
#include "model/callbacks/monitor.h"
#include "model/callbacks/step_count.h"

namespace millrace {
namespace {

constexpr char kName[] = "backup-";

// Those that the state file names and that are there; the newest first.
StatusOr<std::vector<std::string>> Backups(const std::string& directory) {
  MR_ASSIGN_OR_RETURN(const std::optional<CheckpointState> state, GetCheckpointState(directory));
  std::vector<std::string> backups;
  if (state) {
    const std::vector<std::string>& all = state->all_model_checkpoint_paths;
    for (auto it = all.rbegin(); it != all.rend(); ++it) {
      if (CheckpointExists(*it)) backups.push_back(*it);
    }
  }
  // Without a state file that can be read: what is complete.
  if (backups.empty()) {
    const std::string newest = LatestCheckpoint(directory);
    if (!newest.empty()) backups.push_back(newest);
  }
  return backups;
}

void DeleteIgnoringErrors(const std::string& prefix) {
  const Status removed = RemoveCheckpoint(prefix);
  if (!removed.ok() && !errors::IsNotFound(removed)) {
    MR_LOG(kWarning, "Ignoring: ", Message(removed));
  }
}

}  // namespace

Status BackupAndRestore::OnTrainRestore() {
  if (options_.directory.empty()) {
    return errors::InvalidArgument("BackupAndRestore needs the directory of its backups");
  }
  if (options_.save_freq < 0) {
    return errors::InvalidArgument("save_freq is a number of steps, or kEveryEpoch, and not ",
                                   options_.save_freq);
  }
  last_batch_ = -1;
  steps_ = number_ = 0;
  MR_ASSIGN_OR_RETURN(const std::vector<std::string> backups, Backups(options_.directory));
  Status unreadable;
  for (const std::string& backup : backups) {
    StatusOr<TrainingState> state = ReadTensors(backup);
    if (!state.ok()) {
      MR_LOG(kWarning, "the backup ", backup, " cannot be read: ", Message(state.status()));
      if (unreadable.ok()) unreadable = state.status();
      continue;
    }
    const Status set = model()->training_run()->SetState(*std::move(state));
    if (!set.ok()) return Annotate(set, StrCat("; of the backup ", backup));
    const TrainingRun& run = *model()->training_run();
    MR_LOG(kInfo, "training goes on from the backup ", backup, ": ", run.epoch(), " epochs and ",
           run.batch(), " steps have been made");
    return OkStatus();
  }
  return unreadable.ok() ? unreadable
                         : Annotate(unreadable, StrCat("; no backup in ", options_.directory,
                                                       " can be read: delete it to begin anew"));
}

Status BackupAndRestore::OnEpochEnd(int64_t, Logs&) {
  if (options_.save_freq == kEveryEpoch) {
    model()->training_run()->AfterHook(kind(), [this] { return Save(); });
  }
  return OkStatus();
}

Status BackupAndRestore::OnTrainBatchEnd(int64_t batch, const Logs&) {
  if (const int signal = PreemptionSignal(); signal != 0) {
    model()->training_run()->AfterHook(kind(), [this, signal] {
      MR_RETURN_IF_ERROR(Save());
      return errors::Cancelled("this process is to end (signal ", signal,
                               "); the backup of this step is in ", options_.directory);
    });
    return OkStatus();
  }
  if (options_.save_freq != kEveryEpoch &&
      model::IsDueAfter(batch, options_.save_freq, &last_batch_, &steps_)) {
    model()->training_run()->AfterHook(kind(), [this] { return Save(); });
  }
  return OkStatus();
}

Status BackupAndRestore::Save() {
  ++number_;
  MR_ASSIGN_OR_RETURN(const TrainingState state, model()->training_run()->State());
  const std::string prefix = StrCat(options_.directory, "/", kName, number_);
  MR_RETURN_IF_ERROR(WriteTensors(prefix, state));
  MR_ASSIGN_OR_RETURN(const std::optional<CheckpointState> before,
                      GetCheckpointState(options_.directory));
  CheckpointState now;
  now.model_checkpoint_path = prefix;
  std::vector<std::string> others;
  if (before) others = before->all_model_checkpoint_paths;
  std::erase(others, prefix);
  if (options_.double_checkpoint && !others.empty()) {
    now.all_model_checkpoint_paths.push_back(others.back());
    others.pop_back();
  }
  now.all_model_checkpoint_paths.push_back(prefix);
  MR_RETURN_IF_ERROR(UpdateCheckpointState(options_.directory, now, "checkpoint",
                                           /*relative=*/true));
  for (const std::string& other : others) DeleteIgnoringErrors(other);
  return OkStatus();
}

Status BackupAndRestore::OnTrainEnd(const Logs&) {
  if (!options_.delete_checkpoint) return OkStatus();
  MR_ASSIGN_OR_RETURN(const std::vector<std::string> backups, Backups(options_.directory));
  std::error_code error;
  for (const std::string& backup : backups) DeleteIgnoringErrors(backup);
  std::filesystem::remove(options_.directory + "/checkpoint", error);
  std::filesystem::remove(options_.directory, error);  // if nothing else is in it
  return OkStatus();
}

CallbackState BackupAndRestore::State() const {
  CallbackState state;
  model::Put(state, "last_batch", last_batch_);
  model::Put(state, "steps", steps_);
  model::Put(state, "number", number_);
  return state;
}

Status BackupAndRestore::SetState(const CallbackState& state) {
  MR_RETURN_IF_ERROR(model::Get(state, "last_batch", &last_batch_));
  MR_RETURN_IF_ERROR(model::Get(state, "steps", &steps_));
  return model::Get(state, "number", &number_);
}

}  // namespace millrace
