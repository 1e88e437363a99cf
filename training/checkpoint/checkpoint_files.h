// The files of checkpoints in a directory, as savers and managers see them.
#ifndef TRAINING_CHECKPOINT_CHECKPOINT_FILES_H_
#define TRAINING_CHECKPOINT_CHECKPOINT_FILES_H_

#include <optional>
#include <string>

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

// Deletes what saves to `prefix`, or to it with a number, left behind when their processes were
// killed: folders of parts that have not been touched for an hour.
void DeleteAbandonedParts(const std::string& prefix);

}  // namespace millrace

#endif  // TRAINING_CHECKPOINT_CHECKPOINT_FILES_H_
