// SPDX-License-Identifier: Apache-2.0
// Backups are checkpoints of tensors, "backup-<number>", under a state file; the one before the
// last goes when the last is on the disk. Of several workers none comes to the next step before all
// have come to its begin: their newest backups are at most one apart, and the last two are kept.
#include <algorithm>
#include <filesystem>

#include "base/errors.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "io/background_write.h"
#include "io/filesystem.h"
#include "millrace/checkpoint.h"
#include "millrace/checkpoint_callbacks.h"
#include "millrace/evaluator.h"
#include "millrace/model.h"
#include "millrace/preemption.h"
#include "millrace/saver.h"
#include "model/callbacks/monitor.h"
#include "model/callbacks/step_count.h"
#include "model/notices.h"

namespace millrace {
namespace {

constexpr char kName[] = "backup";  // behind it "-<number>"
// File of a worker whose training has ended with that of all others: from then on backups are
// deleted, by each at its own time.
constexpr char kFinished[] = "finished";

// Those that the state file names and that are there; the newest first.
std::vector<std::string> Backups(const std::string& directory) {
  const std::optional<CheckpointState> state = RecoverCheckpointState(directory, kName);
  std::vector<std::string> backups;
  if (state) {
    const std::vector<std::string>& all = state->all_model_checkpoint_paths;
    for (auto it = all.rbegin(); it != all.rend(); ++it) {
      if (CheckpointExists(*it)) backups.push_back(*it);
    }
  }
  // Without a state file: what is complete.
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

int64_t NumberOf(const std::string& backup) { return CheckpointNumber(backup).value_or(0); }

Status KeepAlone(const std::string& directory, const std::vector<std::string>& oldest_first) {
  CheckpointState state;
  state.model_checkpoint_path = oldest_first.back();
  state.all_model_checkpoint_paths = oldest_first;
  return UpdateCheckpointState(directory, state, "checkpoint", /*relative=*/true);
}

// Writes the state file, with `most` backups at most, then deletes those that it does not name.
Status Record(const std::string& directory, const std::string& prefix, std::size_t most) {
  const std::optional<CheckpointState> before = RecoverCheckpointState(directory, kName);
  std::vector<std::string> kept, old;
  if (before) kept = before->all_model_checkpoint_paths;
  std::erase(kept, prefix);
  kept.push_back(prefix);
  while (kept.size() > most) {
    old.push_back(kept.front());
    kept.erase(kept.begin());
  }
  MR_RETURN_IF_ERROR(KeepAlone(directory, kept));
  for (const std::string& other : old) DeleteIgnoringErrors(other);
  return OkStatus();
}

// Waits for the writes of all workers, so that none is further ahead than one backup; an error if
// any has failed.
Status SyncOfAll(BackgroundWrite& background, TrainingRun& run) {
  const Status own = background.Sync();
  MR_ASSIGN_OR_RETURN(const std::vector<int64_t> failed, run.OfAllWorkers(own.ok() ? 0 : 1));
  MR_RETURN_IF_ERROR(own);
  for (std::size_t worker = 0; worker < failed.size(); ++worker) {
    if (failed[worker] != 0) {
      return errors::Aborted("the backup of worker ", worker,
                             " could not be written: see its error");
    }
  }
  return OkStatus();
}

}  // namespace

BackupAndRestore::BackupAndRestore(BackupAndRestoreOptions options)
    : options_(std::move(options)), background_(std::make_unique<BackgroundWrite>()) {}

BackupAndRestore::~BackupAndRestore() = default;

std::string BackupAndRestore::Directory() const {
  const int worker = model()->training_run()->worker();
  return worker == 0 ? options_.directory : StrCat(options_.directory, "/workertemp_", worker);
}

// The backups and what lies beside them; the mark of the end as the last thing.
Status BackupAndRestore::DeleteAll() const {
  const std::string directory = Directory();
  const std::vector<std::string> backups = Backups(directory);
  std::error_code error;
  for (const std::string& backup : backups) DeleteIgnoringErrors(backup);
  std::filesystem::remove(directory + "/checkpoint", error);
  std::filesystem::remove(StrCat(directory, "/", kFinished), error);
  // If nothing else is in them.
  std::filesystem::remove(directory, error);
  std::filesystem::remove(options_.directory, error);
  return OkStatus();
}

// Whether workers have begun to delete backups at the end of a training, and some have none any
// more. Says so in the log; takes the marks of the end away where all have theirs still.
StatusOr<bool> BackupAndRestore::HadEnded(const std::vector<int64_t>& newest) const {
  TrainingRun& run = *model()->training_run();
  const std::string mark = StrCat(Directory(), "/", kFinished);
  std::error_code error;
  MR_ASSIGN_OR_RETURN(const std::vector<int64_t> marked,
                      run.OfAllWorkers(std::filesystem::exists(mark, error) ? 1 : 0));
  if (std::find(marked.begin(), marked.end(), 1) == marked.end()) return false;
  if (std::find(newest.begin(), newest.end(), 0) == newest.end()) {
    std::filesystem::remove(mark, error);
    return false;
  }
  MR_LOG(kInfo, "the training whose backups are in ", options_.directory,
         " had ended: the rest of ", "them is deleted");
  MR_RETURN_IF_ERROR(DeleteAll());
  return true;
}

// This worker's, the newest first: from the newest on that all workers have.
StatusOr<std::vector<std::string>> BackupAndRestore::BackupsOfAll() const {
  std::vector<std::string> backups = Backups(Directory());
  TrainingRun& run = *model()->training_run();
  if (run.num_workers() == 1) return backups;
  const auto readable = std::find_if(backups.begin(), backups.end(),
                                     [](const auto& backup) { return ReadTensors(backup).ok(); });
  MR_ASSIGN_OR_RETURN(const std::vector<int64_t> newest,
                      run.OfAllWorkers(readable == backups.end() ? 0 : NumberOf(*readable)));
  MR_ASSIGN_OR_RETURN(const bool ended, HadEnded(newest));
  if (ended) return std::vector<std::string>();
  const int64_t common = *std::min_element(newest.begin(), newest.end());
  if (*std::max_element(newest.begin(), newest.end()) > common + 1) {
    return errors::InvalidArgument(
        "the workers' newest backups in ", options_.directory, " are of different steps: number ",
        StrJoin(newest, ", "), " by worker (0: none). Each needs the folder that it wrote to, and ",
        "as many workers as before; or delete it everywhere to begin anew");
  }
  // What only some have is made again, or was never whole.
  std::vector<std::string> later, had;
  for (const std::string& backup : backups) {
    (NumberOf(backup) > common ? later : had).push_back(backup);
  }
  if (common > 0 && (had.empty() || NumberOf(had.front()) != common)) {
    return errors::DataLoss("worker ", run.worker(), " has no backup ", common, " in ", Directory(),
                            ", which the others have: delete the directory to begin anew");
  }
  if (!later.empty() && !had.empty()) {
    MR_RETURN_IF_ERROR(KeepAlone(Directory(), {had.rbegin(), had.rend()}));
  }
  for (const std::string& backup : later) DeleteIgnoringErrors(backup);
  return had;
}

Status BackupAndRestore::OnTrainRestore() {
  background_->SyncOrLog();  // of a Fit that has failed
  if (options_.directory.empty()) {
    return errors::InvalidArgument("BackupAndRestore needs the directory of its backups");
  }
  if (options_.save_freq < 0) {
    return errors::InvalidArgument("save_freq is a number of steps, or kEveryEpoch, and not ",
                                   options_.save_freq);
  }
  last_batch_ = -1;
  steps_ = number_ = 0;
  MR_ASSIGN_OR_RETURN(const std::vector<std::string> backups, BackupsOfAll());
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

// The signal of the first worker that was told to end, as if each had been told; 0: none was.
StatusOr<int> BackupAndRestore::NoticeOfAll() const {
  const auto* const knows = dynamic_cast<const model::KnowsNotices*>(model()->training_run());
  if (knows != nullptr) return knows->notice();
  // A run of somebody else's.
  MR_ASSIGN_OR_RETURN(const std::vector<int64_t> signals,
                      model()->training_run()->OfAllWorkers(PreemptionSignal()));
  for (const int64_t signal : signals) {
    if (signal == 0) continue;
    NoticePreemption(static_cast<int>(signal));
    return static_cast<int>(signal);
  }
  return 0;
}

Status BackupAndRestore::OnTrainBatchEnd(int64_t batch, const Logs&) {
  MR_ASSIGN_OR_RETURN(const int signal, NoticeOfAll());
  if (signal != 0) {
    model()->training_run()->AfterHook(kind(), [this, signal] {
      MR_RETURN_IF_ERROR(Save());
      MR_RETURN_IF_ERROR(background_->Sync());
      return errors::Cancelled("this process is to end (signal ", signal,
                               "); the backup of this step is in ", Directory());
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
  MR_RETURN_IF_ERROR(SyncOfAll(*background_, *model()->training_run()));
  ++number_;
  MR_ASSIGN_OR_RETURN(TrainingState state, model()->training_run()->State());
  const std::string directory = Directory(), prefix = StrCat(directory, "/", kName, "-", number_);
  const bool keeps_two = options_.double_checkpoint || model()->training_run()->num_workers() > 1;
  auto write = [directory, prefix, keeps_two, state = std::move(state)]() -> Status {
    MR_RETURN_IF_ERROR(WriteTensors(prefix, state));
    return Record(directory, prefix, keeps_two ? 2 : 1);
  };
  return options_.asynchronous ? background_->Start(std::move(write)) : write();
}

Status BackupAndRestore::OnTrainEnd(const Logs&) {
  // Nobody's goes before all have come to their end.
  MR_RETURN_IF_ERROR(SyncOfAll(*background_, *model()->training_run()));
  if (!options_.delete_checkpoint) return OkStatus();
  TrainingRun& run = *model()->training_run();
  if (run.num_workers() == 1) return DeleteAll();
  // Whoever dies while they delete finds these marks.
  Status marked = PosixFileSystem()->CreateDirectories(Directory());
  if (marked.ok()) {
    marked = PosixFileSystem()->WriteFileDurably(StrCat(Directory(), "/", kFinished), "");
  }
  MR_ASSIGN_OR_RETURN(const std::vector<int64_t> failed, run.OfAllWorkers(marked.ok() ? 0 : 1));
  MR_RETURN_IF_ERROR(marked);
  if (std::find(failed.begin(), failed.end(), 1) != failed.end()) {
    return errors::Aborted("a worker could not mark the end of the training: see its error");
  }
  return DeleteAll();
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
