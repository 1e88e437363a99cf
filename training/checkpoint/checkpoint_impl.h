// SPDX-License-Identifier: Apache-2.0
// The inside of Checkpoint, which its manager and the status of a restore see as well.
#ifndef TRAINING_CHECKPOINT_CHECKPOINT_IMPL_H_
#define TRAINING_CHECKPOINT_CHECKPOINT_IMPL_H_

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "frontend/graph_builder.h"
#include "io/background_write.h"
#include "io/tensor_bundle.h"
#include "millrace/checkpoint.h"
#include "millrace/checkpoint_layout.h"
#include "training/checkpoint/aside_nodes.h"
#include "training/checkpoint/object_tree.h"

namespace millrace {

struct Checkpoint::Impl : std::enable_shared_from_this<Checkpoint::Impl> {
  Impl(Graph& graph, const CheckpointOptions& o)
      : state(graph.shared_state()), graph_root(graph.root()), options(o) {}

  const std::shared_ptr<GraphState> state;
  const Scope graph_root;
  const CheckpointOptions options;
  CheckpointLayout layout;
  Trackable root;
  Variable counter;  // without a handle until it is needed

  // Nodes that were made, by the tree that they are for.
  struct Writing {
    Output filename, saved;
    std::string parts_folder;
  };
  struct Reading {
    Output filename;
    Operation restore;
  };
  std::map<std::string, Writing> writing;
  std::map<std::string, AsideNodes> writing_aside;
  std::map<std::string, Reading> reading;
  Operation counter_add;
  Output counter_ready;

  BackgroundWrite background;

  int loads = 0;
  // Which load a variable has its value from: one before it gives it no value any more.
  std::map<const void*, int> given_by;

  StatusOr<Variable> Counter();
  // Adds 1 to the count of saves, giving it a value first if it has none.
  StatusOr<int64_t> CountSave(Session& session);
  // The tree as it is now, if files can have it.
  StatusOr<ObjectTree> Tree() const;
  // What files have of this tree, its graph behind the values; and whether each task writes its
  // own.
  StatusOr<std::vector<SaveItem>> Items(const Scope& scope, const ObjectTree& tree,
                                        const std::string& graph) const;
  bool InParts(std::span<const SaveItem> items) const;
  // The nodes that write this tree.
  StatusOr<Writing> MakeWriting(const ObjectTree& tree, const std::string& graph);
  StatusOr<AsideNodes> MakeWritingAside(const ObjectTree& tree, const std::string& graph);
  Status Write(Session& session, const std::string& prefix);
  // Tells the callbacks of a checkpoint that is whole.
  Status TellWritten(const std::string& prefix) const;
  // Takes the values and returns; a thread writes them and calls `then`.
  Status WriteAside(Session& session, const std::string& prefix, std::function<Status()> then);
  Status Restore(Session& session, const std::string& prefix,
                 std::span<const SavedVariable> variables);
  StatusOr<LoadStatus> Read(Session& session, const std::string& prefix);
};

// What a restore found: which object of the tree is which of the file.
struct LoadStatus::Load {
  std::shared_ptr<Checkpoint::Impl> checkpoint;
  std::string prefix;  // "": nothing was asked for
  int number = 0;      // in the order of the calls
  std::unique_ptr<BundleReader> reader;
  bool by_name = false;  // a checkpoint of a Saver
  pb::TrackableObjectGraph graph;
  std::vector<const void*> object_of;  // by the number in the file; null: none
  std::map<const void*, int> number_of;
  std::set<const void*> given;  // variables that have their values
  std::set<std::string> keys_given;
  std::vector<Trackable> held;  // so that no identity is given to another object
  std::set<int> skipped;        // numbers in the file
  bool expect_partial = false;

  // Whether the object of this number in the file is kept by an optimizer and not to be restored.
  bool IsSkipped(int number) const { return skipped.contains(number); }
  // Finds objects that have not been found yet, and gives those that are variables their values.
  Status Restore(Session& session);
  void Match(const ObjectTree& tree);
  void MatchSlots(const ObjectTree& tree);
  bool Bind(const TreeObject& object, int number);
  // The key of a variable's value; "" if there is none.
  std::string KeyFor(const TreeObject& object) const;
  Status CheckFits(const std::string& key, const TreeObject& object) const;
  // The way to an object of the file: "(root).a.b".
  std::string Spoken(int number) const;
  Status Consumed(const ObjectTree& tree) const;
  Status ObjectsMatched(const ObjectTree& tree) const;
  // A line for each value that has not been used.
  void Tell() const;
};

}  // namespace millrace

#endif  // TRAINING_CHECKPOINT_CHECKPOINT_IMPL_H_
