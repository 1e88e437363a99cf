// SPDX-License-Identifier: Apache-2.0
// Callbacks that write checkpoints while a Model is trained, and one that goes on from them.
#ifndef MILLRACE_CHECKPOINT_CALLBACKS_H_
#define MILLRACE_CHECKPOINT_CALLBACKS_H_

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "millrace/callback.h"
#include "millrace/status.h"

namespace millrace {

class BackgroundWrite;  // io/background_write.h

// Of options save_freq: at the end of every epoch, instead of after so many steps.
inline constexpr int64_t kEveryEpoch = 0;

// Writes the weights, or all of the training, at the ends of epochs or every so many steps.
struct ModelCheckpointOptions {
  // The prefix of the checkpoint, with places for numbers as Python's format has them: {epoch} and
  // {batch}, which count from 1, and what is logged by its name: "run/{epoch:02d}-{val_loss:.2f}".
  std::string filepath{};
  std::string monitor = "val_loss";  // the logged value that save_best_only compares
  // Only when the value that is monitored is better than ever. Where it is not logged, a warning,
  // and the checkpoint is written.
  bool save_best_only = false;
  // The weights (Model::SaveWeights, by object). Else the state of training
  // (millrace/training_run.h), which FitOptions::resume_from goes on from. Of several workers the
  // chief writes the weights; of the state each writes its own, the others in "workertemp_<number>"
  // beside the chief's.
  bool save_weights_only = false;
  Direction direction = Direction::kAuto;  // which way is better; kAuto: the metric's own
  int64_t save_freq = kEveryEpoch;         // or the number of steps; they are counted over epochs
  std::optional<double> initial_value_threshold{};  // the value that the first one has to beat
  // Training goes on as soon as the values are taken: a thread writes. The error of a write is that
  // of the next save, or of the end of Fit, which waits.
  bool asynchronous = false;
  int verbose = 0;              // above 0: a line for each save
  std::ostream* out = nullptr;  // of these lines; null: the standard output
};
// Writes checkpoints as ModelCheckpointOptions say. Given to Fit; one Fit at a time.
class ModelCheckpoint : public Callback {
 public:
  // Touches no file; options that cannot be are the error of OnTrainBegin.
  explicit ModelCheckpoint(ModelCheckpointOptions options);
  ~ModelCheckpoint() override;
  std::string kind() const override { return "ModelCheckpoint"; }
  // InvalidArgument for a path or number that cannot be, and a monitor whose direction is not
  // known.
  Status OnTrainBegin() override;
  Status OnEpochBegin(int64_t epoch) override;
  Status OnEpochEnd(int64_t epoch, Logs& logs) override;
  // InvalidArgument for a path with a name that is not logged, or that is a directory; else the
  // error of the write. Of several workers only the chief's checkpoint stays.
  Status OnTrainBatchEnd(int64_t batch, const Logs& logs) override;
  Status OnTrainEnd(const Logs& logs) override;
  bool reads_batch_logs() const override { return options_.save_freq != kEveryEpoch; }
  CallbackState State() const override;
  Status SetState(const CallbackState& state) override;

  const std::optional<double>& best() const { return best_; }  // empty: none yet

 private:
  Status Save(std::optional<int64_t> batch, const Logs& logs);
  bool IsDue(const Logs& logs);
  Status Write(const std::string& path);
  std::ostream& out() const;

  const ModelCheckpointOptions options_;
  bool up_ = false, keeps_state_ = false;
  int64_t epoch_ = 0, last_batch_ = -1, steps_ = 0;  // steps since the last save
  std::optional<double> best_;
  std::unique_ptr<BackgroundWrite> background_;
};

// Keeps a backup of all of the training while Fit runs; a Fit of the same program that finds one
// goes on where it was taken, and ends with the numbers of a Fit that was never interrupted, bit
// for bit. Of steps behind the backup nothing is left: they are made again.
//
// Where several workers train together, each keeps its own, of the same steps: the chief in the
// directory, the others in "workertemp_<number>" in it. All go on from the newest that all have,
// and a notice that one of them is to end (millrace/preemption.h) is one for all: they save the
// same step, and end.
struct BackupAndRestoreOptions {
  std::string directory{};          // of this run alone; made if need be
  int64_t save_freq = kEveryEpoch;  // or the number of steps; they are counted over epochs
  // The backup before the last is kept as well, for the day that the last one cannot be read. (A
  // crash destroys none in any case.)
  bool double_checkpoint = false;
  // As of ModelCheckpoint. A run that is killed goes on from the last backup that was complete. At
  // a notice that the process is to end, and at the end of Fit, the write is waited for.
  bool asynchronous = false;
  bool delete_checkpoint = true;  // at the end of a Fit that was not interrupted
};
// Keeps backups as BackupAndRestoreOptions say. Given to Fit; one Fit at a time.
class BackupAndRestore : public Callback {
 public:
  // Touches no file; OnTrainRestore is the first that reads the directory.
  explicit BackupAndRestore(BackupAndRestoreOptions options);
  ~BackupAndRestore() override;
  std::string kind() const override { return "BackupAndRestore"; }
  // InvalidArgument if the backup is that of another program or number of workers; DataLoss
  // if it is damaged and there is no other, or if workers do not have the same.
  Status OnTrainRestore() override;
  Status OnTrainEnd(const Logs& logs) override;
  Status OnEpochEnd(int64_t epoch, Logs& logs) override;
  // Saves when save_freq steps are over. After a notice that the process is to end: saves, waits
  // for the write, and ends Fit with Cancelled, which names the directory.
  Status OnTrainBatchEnd(int64_t batch, const Logs& logs) override;
  bool reads_batch_logs() const override { return false; }
  CallbackState State() const override;
  Status SetState(const CallbackState& state) override;

 private:
  std::string Directory() const;  // of this worker
  StatusOr<std::vector<std::string>> BackupsOfAll() const;
  StatusOr<bool> HadEnded(const std::vector<int64_t>& newest) const;
  Status DeleteAll() const;
  StatusOr<int> NoticeOfAll() const;
  Status Save();

  const BackupAndRestoreOptions options_;
  int64_t last_batch_ = -1, steps_ = 0;  // steps since the last save
  int64_t number_ = 0;                   // of the last backup
  std::unique_ptr<BackgroundWrite> background_;
};

}  // namespace millrace

#endif  // MILLRACE_CHECKPOINT_CALLBACKS_H_
