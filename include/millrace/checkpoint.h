// SPDX-License-Identifier: Apache-2.0
// Checkpoints of objects: a tree of named objects, variables at its leaves, written to files and
// found again by the names on the way to them. Files are those of TensorFlow 2's Checkpoint; either
// reads the other's. (Savers, which go by the variables' own names: millrace/saver.h.)
#ifndef MILLRACE_CHECKPOINT_H_
#define MILLRACE_CHECKPOINT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "millrace/graph.h"
#include "millrace/optimizers.h"
#include "millrace/saver.h"
#include "millrace/session.h"
#include "millrace/status.h"
#include "millrace/tensor.h"
#include "millrace/variables.h"

namespace millrace {

// An object of the tree: a variable, an optimizer, or what has named children (a model, a layer, a
// list). A handle: copies are the same object, and an object may be the child of several. One
// thread at a time.
class Trackable {
 public:
  struct Node;

  // Has nothing yet.
  Trackable();
  // A leaf. All leaves of one variable are one object.
  Trackable(const Variable& variable);  // NOLINT: a variable is an object
  // Children "0", "1", ...
  static Trackable List(std::vector<Trackable> items);
  // Leaves "0", "1", ... of these variables.
  static Trackable List(std::span<const Variable> items);
  // An optimizer after it has made its variables (ApplyGradients), by the structure that TensorFlow
  // gives it: those of tf.compat.v1.train with slots of the variables that they train ("m", "v",
  // "momentum", ...), those of Keras with lists. `trained`: the variables that were given to it.
  static Trackable Of(const Optimizer& optimizer, std::span<const Variable> trained);

  // Adds a child after those that there are, or puts it in the place of the one of this name. Any
  // name that is not empty. Returns *this.
  Trackable& Add(const std::string& name, const Trackable& child);
  // What an optimizer keeps for a variable, which must be in the tree itself to be saved.
  Trackable& AddSlot(const std::string& slot, const Variable& variable, const Variable& value);
  // Child of this name, if there is one.
  std::optional<Trackable> child(const std::string& name) const;

  // Object itself, which copies of a Trackable share.
  const std::shared_ptr<Node>& node() const { return node_; }

 private:
  std::shared_ptr<Node> node_;
};

// What a Restore or Read has found, and what not. Values are already in the variables. Says what
// has not been used in the log when it is destroyed, unless ExpectPartial was called or an
// assertion has been. Must not outlive the Checkpoint's graph.
class LoadStatus {
 public:
  struct Load;
  explicit LoadStatus(std::shared_ptr<Load> load);  // made by Restore and Read
  LoadStatus(LoadStatus&&) noexcept;                // leaves one that says nothing
  LoadStatus& operator=(LoadStatus&&) noexcept;
  ~LoadStatus();

  // FailedPrecondition names what is not so. Every value in the checkpoint is in the tree and has
  // been given, and what AssertExistingObjectsMatched says.
  Status AssertConsumed() const;
  // Every object of the tree has been found in the checkpoint.
  Status AssertExistingObjectsMatched() const;
  // Something besides the root has.
  Status AssertNontrivialMatch() const;
  LoadStatus& ExpectPartial();  // values that were not used are not told of; *this

  // Gives their values to variables that have been added to the tree since.
  Status RestoreAdded(Session& session);

 private:
  std::shared_ptr<Load> load_;
};

// How a Checkpoint counts, writes and restores.
struct CheckpointOptions {
  // Where the count of saves lives. In a cluster: on a task that outlives the others.
  std::string counter_device = "/device:CPU:0";
  RunOptions run{};  // of the steps that write and read
  // Called in this order with the prefix of each checkpoint that is whole on the disk, for Save and
  // managers after the state file names it: to copy it away, say. Asynchronous saves call them from
  // the thread that writes. The first error is that of the save (of Sync, or the next save, where
  // it was asynchronous), and the rest is not called; the checkpoint stays. None may use the
  // Checkpoint or its manager.
  std::vector<std::function<Status(const std::string& prefix)>> write_callbacks{};
  // Whether restores leave out what optimizers keep for each variable (slots), as a program does
  // that only predicts; assertions do not ask for it either.
  bool skip_slot_variables = false;
};

// Writes and reads the objects of a tree; each task of the cluster writes and reads what lives on
// it, in one file system. Nodes are added to the graph when a tree is first saved or restored and
// when it has changed: no other thread may run steps meanwhile. Otherwise as Saver. One thread at a
// time.
class Checkpoint {
 public:
  struct Impl;
  // The root has these children, in the order of their names. The tree may grow later.
  static StatusOr<std::unique_ptr<Checkpoint>> Create(
      Graph& graph, const std::map<std::string, Trackable>& children,
      const CheckpointOptions& options = {});
  ~Checkpoint();

  Trackable& root();  // of the tree, to add children to
  // The int64 count of saves. Made by the first Save, Restore or call of this.
  StatusOr<Variable> save_counter();

  // Adds 1 to the count n, writes PREFIX-<n> and a state file that names only this. Returns
  // PREFIX-<n>.
  StatusOr<std::string> Save(Session& session, const std::string& prefix);
  // Writes PREFIX; no count, no state file. Unimplemented for slots that are children as well,
  // InvalidArgument for a slot of a variable that is not in the tree.
  Status Write(Session& session, const std::string& prefix);

  // Gives variables of the tree the values of a checkpoint, whatever has been restored before; they
  // need not have been initialised. A checkpoint of a Saver is read by the variables' names. With
  // "" nothing is done. NotFound if there is no such checkpoint; InvalidArgument for another dtype
  // or shape, naming both; DataLoss for damaged files. After an error of these before the step
  // nothing has changed. Restore makes and restores the count of saves, Read does not. Restore
  // takes the directory of a SavedModel as well, for its variables.
  StatusOr<LoadStatus> Restore(Session& session, const std::string& prefix);
  // As Restore, without the count of saves.
  StatusOr<LoadStatus> Read(Session& session, const std::string& prefix);

  // As Save, but returns as soon as it has the values; a thread writes. They stay at the tasks
  // where they live, and each variable is copied there when it is first updated after that. Waits
  // for the write before, whose error it returns without saving anything. A checkpoint that is not
  // complete is never named by a state file.
  StatusOr<std::string> SaveAsync(Session& session, const std::string& prefix);
  // As Write, in the same way.
  Status WriteAsync(Session& session, const std::string& prefix);
  // Waits for that, as all other calls and the destructor do. The error of the write, once; a
  // session that is closed meanwhile ends it with FailedPrecondition or Cancelled.
  Status Sync();

  Impl& impl() { return *impl_; }  // for the library's own

 private:
  explicit Checkpoint(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

// Where a CheckpointManager keeps checkpoints, how many and how often.
struct CheckpointManagerOptions {
  std::string directory;  // of checkpoints and state file; must not be empty
  // So many are kept, nothing: all. InvalidArgument unless positive.
  std::optional<int> max_to_keep;
  // Of those to be deleted, one is kept for good after each such time.
  std::optional<double> keep_checkpoint_every_n_hours{};
  std::string checkpoint_name = "ckpt";  // file name in front of "-<number>"
  // Counts steps: Save does nothing twice at one step, nor before `checkpoint_interval` steps have
  // passed since the last.
  std::optional<Variable> step_counter{};
  std::optional<int64_t> checkpoint_interval{};  // steps; needs a step_counter
  // The step of the last checkpoint where another program has made it: counts as if this manager
  // had saved then. Without a `step_counter` InvalidArgument.
  std::optional<int64_t> last_checkpoint_step{};
  // Save returns as soon as it has the values, as Checkpoint::SaveAsync does; what follows a write
  // is done when that has ended.
  bool asynchronous = false;
  // For RestoreOrInitialize where there is no checkpoint.
  std::function<Status(Session&)> init_fn{};
  CheckpointClock clock{};  // the machine's if empty
};

// Keeps the newest checkpoints of a directory and deletes others. Goes on where the state file says
// that a manager before it has stopped. One manager for a directory; one thread at a time.
class CheckpointManager {
 public:
  // InvalidArgument without a directory or where a step_counter is missing; `checkpoint` must
  // outlive the manager.
  static StatusOr<std::unique_ptr<CheckpointManager>> Create(Checkpoint* checkpoint,
                                                             CheckpointManagerOptions options);
  ~CheckpointManager();

  // Writes DIRECTORY/NAME-<number>, by default with the checkpoint's count of saves; then the state
  // file, then deletes. "" if it is not time yet; `check_interval` false asks for steps only.
  StatusOr<std::string> Save(Session& session, std::optional<int64_t> checkpoint_number = {},
                             bool check_interval = true);
  // Restores the newest complete checkpoint and returns its prefix; "" if there is none: then the
  // init_fn has been called.
  StatusOr<std::string> RestoreOrInitialize(Session& session);
  // Waits for a write that is under way. Its error, once.
  Status Sync();

  // These wait for a write that is under way. "" for none. Those that may be deleted one day,
  // oldest first.
  const std::string& latest_checkpoint() const;
  std::vector<std::string> checkpoints() const;  // their prefixes
  const std::string& directory() const;          // CheckpointManagerOptions::directory

 private:
  struct Impl;
  explicit CheckpointManager(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Writes tensors that are in no graph, by their names: a checkpoint as a Saver's. One that there
// was is whole until the new one is on the disk. The directory is made if need be. InvalidArgument
// for a tensor without a value, Unimplemented for types that have no form in files.
Status WriteTensors(const std::string& prefix, const std::map<std::string, Tensor>& tensors);
// All tensors of a checkpoint; as CheckpointReader::Open and Read.
StatusOr<std::map<std::string, Tensor>> ReadTensors(const std::string& prefix);

// What is in a checkpoint of either kind. Thread-safe.
class CheckpointReader {
 public:
  // One tensor as the index describes it.
  struct Entry {
    std::string name;                     // key of the tensor
    DataType dtype = DataType::kInvalid;  // as it is stored
    Shape shape;                          // of the whole tensor
    int64_t bytes = 0;                    // in the files
    std::vector<int> files;               // numbers of the data files that have its parts
    int parts = 1;                        // more if it was stored in slices
  };
  // NotFound if there is no such checkpoint, DataLoss if its index is damaged.
  static StatusOr<std::unique_ptr<CheckpointReader>> Open(const std::string& prefix);
  ~CheckpointReader();

  // In the order of their names.
  const std::vector<Entry>& entries() const;
  const Entry* Find(const std::string& name) const;  // null: no such tensor
  int num_files() const;                             // data files of the checkpoint
  // The whole tensor, or the part that a slice names ("6 4 0,3:-", see SavedVariable). NotFound,
  // DataLoss for a wrong checksum, OutOfRange for a file that is too short.
  StatusOr<Tensor> Read(const std::string& name, const std::string& slice = "") const;
  // A serialized TrackableObjectGraph; NotFound in a checkpoint of a Saver.
  StatusOr<std::string> ObjectGraph() const;

 private:
  struct Impl;
  explicit CheckpointReader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace

#endif  // MILLRACE_CHECKPOINT_H_
