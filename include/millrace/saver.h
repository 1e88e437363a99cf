// SPDX-License-Identifier: Apache-2.0
// Savers: the variables of a graph, written to files by their names and read back, and the state
// file that says which files there are. Files and names are TensorFlow's: either reads the other's.
//
// A checkpoint is a prefix, "/dir/model.ckpt-200": PREFIX.index, PREFIX.data-SSSSS-of-NNNNN, and
// PREFIX.meta with the graph. A directory's state file "checkpoint" lists those that are kept.
// What is written appears as a whole or not at all, whatever ends the process or the machine.
#ifndef MILLRACE_SAVER_H_
#define MILLRACE_SAVER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "millrace/graph.h"
#include "millrace/session.h"
#include "millrace/status.h"
#include "millrace/variables.h"

namespace millrace {

// Seconds since 1970.
using CheckpointClock = std::function<double()>;

// A variable and the name that it has in files.
struct SavedVariable {
  std::string key;    // name in the files
  Variable variable;  // variable that is saved and restored
  // If it is a part of a bigger tensor, which is stored under `key`: the shape of the whole and
  // where the part lies, "6 4 0,3:0,4" for the first three rows of [6,4]. "": it is the whole.
  std::string slice{};
};
// The variables of a collection under their own names.
std::vector<SavedVariable> SavedVariables(const Scope& scope,
                                          std::string_view collection = kVariables);

// How a Saver is made.
struct SaverOptions {
  // Nothing here: all of kVariables.
  std::vector<SavedVariable> variables{};
  // Every task writes and reads what lives on it, and one of them joins the parts; else one task
  // gathers everything. The tasks must see one file system.
  bool sharded = false;
  // So many checkpoints are kept, the oldest are deleted; 0: all are kept, and the state file names
  // the newest only.
  int max_to_keep = 5;
  // Of those to be deleted, one is kept for good after each such time.
  double keep_checkpoint_every_n_hours = 10'000;
  bool reshape = false;               // values of another shape with as many elements are taken
  bool restore_sequentially = false;  // one variable after the other, for less memory at once
  bool allow_empty = false;           // no variables: Save and Restore do nothing
  bool pad_step_number = false;       // "-00000200" instead of "-200"
  bool save_relative_paths = false;   // the state file names paths relative to its directory
  // Save returns as soon as it has the values: a thread writes them, then the state file, and
  // deletes what is no longer kept. Values stay where the variables live, and each variable is
  // copied when it is first updated after that: memory for one copy of all.
  bool asynchronous = false;
  std::string name = "save";       // the prefix of the nodes' names
  std::string filename = "model";  // used by runs of the nodes that feed no name
  CheckpointClock clock{};         // the machine's if empty
  // The format: 2, an index and data files. 1, TensorFlow's of before 2017, is read by the op
  // RestoreV2 and written by Save and SaveSlices, and is Unimplemented here.
  int write_version = 2;
};

// How one Save is done.
struct SaveOptions {
  std::optional<int64_t> global_step{};        // appended to the prefix: "-200"
  std::string latest_filename = "checkpoint";  // state file, no path
  std::string meta_graph_suffix = "meta";      // behind the dot: PREFIX.meta
  bool write_meta_graph = true;                // false: no PREFIX.meta
  // The graph is written without attributes that have their default: programs of before those
  // attributes read it.
  bool strip_default_attrs = false;
  // false: the state file, the list of checkpoints and old checkpoints stay as they are.
  bool write_state = true;
  // Options of the step that writes, or takes, the values.
  RunOptions run{};
};

// Saves and restores by name. Makes nodes when it is created, before the session is or later; their
// names and structure are TensorFlow's. One thread at a time; Save may run beside training steps of
// other threads, and each variable is then saved as it is at some moment during the save.
class Saver {
 public:
  // InvalidArgument "No variables to save"; two variables under one name; the graph's own error.
  // This is TensorFlow's build(): to defer it is to call it later.
  static StatusOr<std::unique_ptr<Saver>> Create(
      Graph& graph, SaverOptions options = {},
      std::source_location where = std::source_location::current());
  // The saver that a graph has brought with it: `saver_def` is a serialized SaverDef whose nodes
  // the graph has, below `import_scope` if they were imported there. It says whether the saver is
  // sharded and how many checkpoints stay for how long; of `options` the saver takes
  // `pad_step_number`, `save_relative_paths` and `clock`. InvalidArgument if a node is missing.
  static StatusOr<std::unique_ptr<Saver>> FromDef(Graph& graph, std::string_view saver_def,
                                                  SaverOptions options = {},
                                                  std::string_view import_scope = "");
  ~Saver();

  // Writes a checkpoint, then the state file, deletes what is no longer kept, then writes the
  // graph. Returns the prefix, "" if there is nothing to save. The directory is made if need be.
  // InvalidArgument for a `latest_filename` with a path or one that collides, and "Parent directory
  // of X doesn't exist, can't save." where it cannot be made; otherwise the error of the step. No
  // older checkpoint is touched before the new one is complete. If it is asynchronous, it waits for
  // the write before, whose error it returns without saving anything.
  StatusOr<std::string> Save(Session& session, const std::string& prefix,
                             const SaveOptions& options = {});
  // Gives the variables the values of a checkpoint; they need not have been initialised. If the
  // checkpoint is an object-based one (millrace/checkpoint.h), names are looked up in its object
  // graph. InvalidArgument "The passed save_path is not a valid checkpoint: ", NotFound with the
  // missing name, InvalidArgument for another dtype or shape, DataLoss for damaged files.
  Status Restore(Session& session, const std::string& prefix, const RunOptions& run = {});

  // Waits for a write that is under way, as Restore and the destructor do. Its error, once. A
  // session that is closed meanwhile ends it with FailedPrecondition or Cancelled.
  Status Sync();

  // Those that are kept because they are the newest, oldest first; with the times of their saves.
  // Waits for a write that is under way.
  std::vector<std::string> last_checkpoints() const;
  // The same with times, in seconds since 1970; valid until the next call that changes the list.
  const std::vector<std::pair<std::string, double>>& last_checkpoints_with_time() const;
  // After a restart: what was kept before. The first takes every time to be infinite.
  void SetLastCheckpoints(const std::vector<std::string>& prefixes);
  // The same with the times of the saves, oldest first.
  void SetLastCheckpointsWithTime(std::vector<std::pair<std::string, double>> checkpoints);
  // Takes those of `prefixes` that are there, with the times of their files.
  void RecoverLastCheckpoints(const std::vector<std::string>& prefixes);

  // A serialized SaverDef, and a MetaGraphDef with the graph, collections and that.
  std::string ToSaverDef() const;
  // The MetaGraphDef, of the graph as it is now. InvalidArgument if the graph is too big for one.
  StatusOr<std::string> ExportMetaGraph() const;
  // What it saves and restores, as SaverOptions named it; valid as long as the saver.
  const std::vector<SavedVariable>& variables() const;

 private:
  struct Impl;
  explicit Saver(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Adds what a meta graph has ("PREFIX.meta", TensorFlow's or a Saver's) to a graph: the nodes,
// their names below `import_scope`, and the collections of nodes and variables; others are left
// out. Returns its saver, null if it has none. NotFound, DataLoss for a file that is no meta graph;
// the graph's own error.
StatusOr<std::unique_ptr<Saver>> ImportMetaGraph(Graph& graph, const std::string& filename,
                                                 std::string_view import_scope = "");

// Lets variables begin with values of a checkpoint (a prefix, or the newest of a directory): their
// initializers assign those, from now on, instead of what the variables were made with. To be
// called before a session has the graph. `assignment_map`: from names in the checkpoint to
// variables ("dense/kernel", of one in parts the whole), or from scopes to scopes ("old/" to
// "new/", "/" is all): then each variable that there is below it takes the tensor of its name.
// NotFound for a tensor that the checkpoint has not, InvalidArgument for another type or shape, a
// variable that is not there, or a scope that is mapped to a variable: nothing has changed.
Status InitFromCheckpoint(Graph& graph, const std::string& checkpoint,
                          const std::map<std::string, std::string>& assignment_map);

// The words that the rows of a variable are of, in this program and in the training before it: a
// row goes where the new vocabulary has its word. Both files are read by WarmStart.
struct VocabInfo {
  std::string new_vocab{};      // file with one word a line; row i is that of line i, from 0
  int64_t new_vocab_size = 0;   // its first so many lines; must be positive
  int64_t num_oov_buckets = 0;  // rows behind them, of words that are in no line
  std::string old_vocab{};      // file of the training before
  int64_t old_vocab_size = -1;  // its first so many lines; -1: all
  // Values of the rows of new words and of the buckets, an initializers::Initializer; empty: 0.
  std::function<Output(const Scope& scope, const Shape& shape)> backup_initializer{};
  int axis =
      0;  // 0: of rows; 1: of columns, such as those of a layer that has a unit for each word
};
// What begins with the values of an earlier training.
struct WarmStartOptions {
  std::string checkpoint{};  // a prefix, or the newest of a directory
  // Regular expressions: variables whose names one of them matches from the beginning.
  std::vector<std::string> variables{".*"};
  bool only_trainable = true;  // false: all of kVariables, what optimizers keep as well
  // Names in the checkpoint of variables that were called something else then.
  std::map<std::string, std::string> previous_names{};
  // Variables whose rows are of words of a vocabulary that has changed. Without patterns in
  // `variables` these alone.
  std::map<std::string, VocabInfo> vocabularies{};
};
// InitFromCheckpoint with these variables. InvalidArgument if there are none, for names in
// `previous_names` and `vocabularies` that are not among them, and for a vocabulary that fits
// neither the variable nor the tensor; what reading its files fails with.
Status WarmStart(Graph& graph, const WarmStartOptions& options);

// What a state file says. Paths are joined with its directory.
struct CheckpointState {
  std::string model_checkpoint_path;                    // the newest
  std::vector<std::string> all_model_checkpoint_paths;  // that are kept, oldest first
  std::vector<double> all_model_checkpoint_timestamps;  // as many, or none
  double last_preserved_timestamp = 0;                  // 0: not said

  friend bool operator==(const CheckpointState&, const CheckpointState&) = default;
};
// Nothing if there is no such file or, with a line in the log, it cannot be read. InvalidArgument
// if it names no newest checkpoint.
StatusOr<std::optional<CheckpointState>> GetCheckpointState(
    const std::string& directory, const std::string& latest_filename = "checkpoint");
// The same for whoever keeps the list, and deletes what is old: where the file is there and cannot
// be read, or names nothing, the complete checkpoints NAME-<number> of the directory, oldest first
// by the times of their files, with a warning that says so. `name` "": that of the newest complete
// one. Nothing if there is no state file, or no such checkpoint.
std::optional<CheckpointState> RecoverCheckpointState(
    const std::string& directory, const std::string& name = "",
    const std::string& latest_filename = "checkpoint");
// Replaces the state file. The newest is put at the end of the list if it is not in it.
// `relative`: paths below the directory are written relative to it, as they are if the directory
// itself is given by a relative path. FailedPrecondition if the file would be a checkpoint's own.
Status UpdateCheckpointState(const std::string& directory, CheckpointState state,
                             const std::string& latest_filename = "checkpoint",
                             bool relative = false);

// The prefix of the newest checkpoint of the state file that is complete (CheckpointIsComplete);
// "" if there is none. With a line in the log where it is not the newest that the file names.
// Without a state file, or with one that cannot be read or names none that is complete: the
// complete one in the directory that was written last.
std::string LatestCheckpoint(const std::string& directory,
                             const std::string& latest_filename = "checkpoint");
// There is an index (or, of the format before, a file of this name).
bool CheckpointExists(const std::string& prefix);
// Its index is whole and its data files are there, as long as they must be. No checksum of data is
// computed; reading does that.
bool CheckpointIsComplete(const std::string& prefix);
// Deletes PREFIX.index, its data files and PREFIX.meta. NotFound if there is none.
Status RemoveCheckpoint(const std::string& prefix, const std::string& meta_graph_suffix = "meta");

}  // namespace millrace

#endif  // MILLRACE_SAVER_H_
