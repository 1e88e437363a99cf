// SPDX-License-Identifier: Apache-2.0
// The nodes that write checkpoints and read them, named and connected as TensorFlow's Saver does:
// of every Saver and of every object-based Checkpoint.
#ifndef TRAINING_CHECKPOINT_SAVE_NODES_H_
#define TRAINING_CHECKPOINT_SAVE_NODES_H_

#include <span>
#include <string>
#include <vector>

#include "millrace/checkpoint_layout.h"
#include "millrace/graph.h"
#include "millrace/saver.h"

namespace millrace {

// One tensor to write.
struct SaveItem {
  std::string key, slice;
  Output value;        // a reference, a value that was read, a constant
  std::string device;  // of the variable behind it: where it is written if that is by parts
  PartialShape shape;  // of `value`
};
SaveItem ItemOf(const SavedVariable& variable);

// The device of a task where its files are written: the first CPU.
std::string FileDevice(const std::string& device);

// "<scope>/Const": what a run feeds with the prefix.
Output MakeFilename(const Scope& scope, const std::string& filename);

// Yields the prefix when everything is written. `sharded`: each device's task writes its own, into
// a folder whose name is the prefix and *folder, and one joins the parts; as `layout` says. With a
// size there, shapes must be known.
Output MakeSave(const Scope& scope, const Output& filename, std::span<const SaveItem> items,
                bool sharded, std::string* folder, const CheckpointLayout& layout = {});

struct RestoreOptions {
  bool sharded = false;
  std::string io_device{};  // reads everything, if `sharded`
  bool reshape = false;
  bool sequentially = false;
};
// Gives every variable its value; "<scope>/restore_all".
Operation MakeRestore(const Scope& scope, const Output& filename,
                      std::span<const SavedVariable> variables, const RestoreOptions& options);

}  // namespace millrace

#endif  // TRAINING_CHECKPOINT_SAVE_NODES_H_
