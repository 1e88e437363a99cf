// SPDX-License-Identifier: Apache-2.0
// The tree of a checkpoint of objects, numbered and named as its files have it.
#ifndef TRAINING_CHECKPOINT_OBJECT_TREE_H_
#define TRAINING_CHECKPOINT_OBJECT_TREE_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "millrace/checkpoint.h"
#include "proto/trackable_object_graph.pb.h"

namespace millrace {

// What one key stands for: a variable, or one in parts (millrace/partitioners.h).
struct TreeValue {
  std::string name;                    // by which a Saver knows it; "": by none
  PartialShape shape;                  // of all parts together
  std::vector<SavedVariable> parts{};  // without keys; of a whole variable the one
};

struct Trackable::Node {
  struct Slot {
    std::string name;
    Variable variable, value;
  };
  // An item of a list, by what it is: kept for a variable under a name, or ("") the variable.
  struct Item {
    std::optional<Variable> variable;
    std::string slot;
  };
  std::optional<TreeValue> value;
  std::vector<std::pair<std::string, Trackable>> children;
  std::vector<Slot> slots;
  // Of a list that has one item for the parts of a variable where the tree has that as one: of the
  // first children. Empty: no such list.
  std::vector<Item> items;
};

// What makes an object the one that it is: the graph's node for variables.
const void* IdentityOf(const Variable& variable);
const void* IdentityOf(const TreeValue& value);
const void* IdentityOf(const Trackable& object);

struct TreeObject {
  struct Slot {
    int variable, value;  // numbers of objects
    std::string name;
  };
  const void* identity = nullptr;
  std::optional<TreeValue> value;
  std::string path;    // of keys: "a/b", escaped
  std::string spoken;  // for people: "(root).a.b"
  std::vector<std::pair<std::string, int>> children;
  std::vector<Slot> slots;
  bool is_slot = false;
};

// All objects: breadth first from the root, then the slots of variables that are in the tree.
struct ObjectTree {
  std::vector<TreeObject> objects;
  std::vector<Trackable> held;  // keeps identities from being given to others
  // Slots that files cannot have: of variables outside the tree; that are children as well; of some
  // parts of a variable only, or of another shape than the part.
  std::vector<std::string> homeless, twice, partial;
};
ObjectTree NumberObjects(const Trackable& root);

std::string KeyOf(const TreeObject& object);
pb::TrackableObjectGraph ToProto(const ObjectTree& tree);

}  // namespace millrace

#endif  // TRAINING_CHECKPOINT_OBJECT_TREE_H_
