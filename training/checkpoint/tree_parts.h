// SPDX-License-Identifier: Apache-2.0
// Variables in parts within the tree of a checkpoint: found by their parts, so that what optimizers
// keep for each part is one tensor as well.
#ifndef TRAINING_CHECKPOINT_TREE_PARTS_H_
#define TRAINING_CHECKPOINT_TREE_PARTS_H_

#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "training/checkpoint/object_tree.h"

namespace millrace {

TreeValue ValueOf(const Variable& variable);

// The variables in parts of one tree. Uses it only while it is made.
class TreeParts {
 public:
  explicit TreeParts(const Trackable& root);

  // A slot, with those of the other parts if its variable is a part.
  struct Slot {
    std::string name;
    const void* variable = nullptr;  // the identity of the whole
    TreeValue value;
  };
  // Names of slots that cannot be joined are added to *partial.
  std::vector<Slot> SlotsOf(const Trackable::Node& node, std::vector<std::string>* partial) const;
  // In a list of items each whole has the place of its first part, and those behind are counted
  // anew. Items that cannot be joined stay as they are.
  std::vector<std::pair<std::string, Trackable>> ChildrenOf(const Trackable::Node& node) const;

 private:
  struct Part {
    Trackable whole;
    std::size_t index = 0;
  };
  const Part* Find(const Variable& variable) const;
  std::vector<Variable> KeptFor(const Trackable::Node& list, const Trackable& whole,
                                const std::string& slot) const;

  std::map<const void*, Part> parts_;  // by the identity of the part
};

}  // namespace millrace

#endif  // TRAINING_CHECKPOINT_TREE_PARTS_H_
