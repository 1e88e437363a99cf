// SPDX-License-Identifier: Apache-2.0
// The files of checkpoints in a directory, as savers and managers see them.
#ifndef TRAINING_CHECKPOINT_CHECKPOINT_FILES_H_
#define TRAINING_CHECKPOINT_CHECKPOINT_FILES_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "io/filesystem.h"
#include "millrace/saver.h"

namespace millrace {

// Seconds since 1970.
double NowSeconds();
// When the checkpoint was written; nothing if it is not there.
std::optional<double> CheckpointTime(const std::string& prefix);
// Without the tail "-00000-of-00004" of a part's name, with ".<suffix>".
std::string MetaGraphFilename(const std::string& prefix, const std::string& suffix);

// The text of a state file.
std::string CheckpointStateText(const CheckpointState& state);

// For savers and managers, to whom an old checkpoint that cannot be deleted is no error.
void RemoveOldCheckpoint(const std::string& prefix, const std::string& meta_graph_suffix);

// The folder in which tasks write the parts of one checkpoint. While this lives, a file in it says
// who writes; then the folder goes with whatever a save that has failed left in it.
class PartsFolder {
 public:
  explicit PartsFolder(std::string path);
  ~PartsFolder();
  PartsFolder(const PartsFolder&) = delete;
  PartsFolder& operator=(const PartsFolder&) = delete;

 private:
  const std::string path_;
  std::unique_ptr<WritableFile> owner_;  // is open: locked
};

// Says that this process writes to `prefix`, in a file PREFIX.writer that is open while this lives.
class WriterClaim {
 public:
  // FailedPrecondition, naming the other one, if a process that lives is writing to `prefix`. Null
  // where no such file can be made: two writers at a time are no danger to the checkpoint
  // (io/bundle_files.h), but one of the two is lost.
  static StatusOr<std::unique_ptr<WriterClaim>> Make(const std::string& prefix);
  ~WriterClaim();
  WriterClaim(const WriterClaim&) = delete;
  WriterClaim& operator=(const WriterClaim&) = delete;

 private:
  WriterClaim(std::string path, std::unique_ptr<WritableFile> file)
      : path_(std::move(path)), file_(std::move(file)) {}

  const std::string path_;
  const std::unique_ptr<WritableFile> file_;  // is open: locked
};

// Deletes what saves to `prefix`, or to it with a number, left behind when their processes were
// killed: folders of parts whose writer was a process of this machine that lives no more, those of
// other machines that have not been touched for an hour, and files under temporary names that
// nobody has open. What a living process writes stays.
void DeleteAbandonedParts(const std::string& prefix);

}  // namespace millrace

#endif  // TRAINING_CHECKPOINT_CHECKPOINT_FILES_H_
