// SPDX-License-Identifier: Apache-2.0
#include "training/checkpoint/object_tree.h"

#include <algorithm>
#include <map>

#include "base/strings.h"
#include "training/checkpoint/tree_parts.h"

namespace millrace {
namespace {

constexpr char kValue[] = "VARIABLE_VALUE";

// "." -> "..", then "/" -> ".S": names cannot be taken for paths.
std::string Escaped(const std::string& name) {
  std::string text;
  for (const char c : name) {
    if (c == '.') {
      text += "..";
    } else if (c == '/') {
      text += ".S";
    } else {
      text += c;
    }
  }
  return text;
}

std::string JoinKeys(const std::string& path, const std::string& name) {
  return path.empty() ? Escaped(name) : StrCat(path, "/", Escaped(name));
}

class Numbering {
 public:
  explicit Numbering(const Trackable& root) : parts_(root) {
    Number(root, "", "(root)");
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const std::shared_ptr<Trackable::Node> node = nodes_[i];
      const std::string path = tree_.objects[i].path, spoken = tree_.objects[i].spoken;
      for (const auto& [name, child] : parts_.ChildrenOf(*node)) {
        const int id = Number(child, JoinKeys(path, name), StrCat(spoken, ".", name));
        tree_.objects[i].children.emplace_back(name, id);
      }
    }
    const std::size_t num_children = nodes_.size();
    for (std::size_t i = 0; i < num_children; ++i) NumberSlots(static_cast<int>(i));
  }

  ObjectTree Take() { return std::move(tree_); }

 private:
  int Number(const Trackable& object, const std::string& path, const std::string& spoken) {
    const auto [it, is_new] =
        ids_.emplace(IdentityOf(object), static_cast<int>(tree_.objects.size()));
    if (!is_new) return it->second;
    nodes_.push_back(object.node());
    tree_.held.push_back(object);
    tree_.objects.push_back({.identity = it->first,
                             .value = object.node()->value,
                             .path = path,
                             .spoken = spoken,
                             .children = {},
                             .slots = {}});
    return it->second;
  }

  void NumberSlots(int owner) {
    using Slot = TreeParts::Slot;
    const std::vector<Slot> slots = parts_.SlotsOf(*nodes_[owner], &tree_.partial);
    std::vector<std::pair<std::pair<std::string, int>, const Slot*>> ordered;
    for (const Slot& slot : slots) {
      const std::vector<SavedVariable>& parts = slot.value.parts;
      const auto it = ids_.find(slot.variable);
      if (it == ids_.end()) {
        tree_.homeless.push_back(parts[0].variable.name());
      } else if (std::any_of(parts.begin(), parts.end(), [&](const SavedVariable& part) {
                   return ids_.contains(IdentityOf(part.variable));
                 })) {
        tree_.twice.push_back(parts[0].variable.name());
      } else {
        ordered.push_back({{slot.name, it->second}, &slot});
      }
    }
    std::sort(ordered.begin(), ordered.end());
    for (const auto& [key, slot] : ordered) {
      const int variable = key.second, id = static_cast<int>(tree_.objects.size());
      const std::string path = JoinKeys(
          StrCat(tree_.objects[variable].path, "/.OPTIMIZER_SLOT/", tree_.objects[owner].path),
          slot->name);
      tree_.objects[owner].slots.push_back({variable, id, slot->name});
      tree_.objects.push_back(
          {.identity = IdentityOf(slot->value),
           .value = slot->value,
           .path = path,
           .spoken = StrCat(tree_.objects[owner].spoken, "'s state '", slot->name, "' for ",
                            tree_.objects[variable].spoken),
           .children = {},
           .slots = {},
           .is_slot = true});
    }
  }

  const TreeParts parts_;
  ObjectTree tree_;
  std::vector<std::shared_ptr<Trackable::Node>> nodes_;
  std::map<const void*, int> ids_;
};

// Which objects have values below them. Objects may be below themselves.
std::vector<bool> HaveValues(const ObjectTree& tree) {
  std::vector<bool> have(tree.objects.size());
  for (std::size_t i = 0; i < have.size(); ++i) {
    have[i] = tree.objects[i].value.has_value() || !tree.objects[i].slots.empty();
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t i = have.size(); i-- > 0;) {
      if (have[i]) continue;
      for (const auto& [name, child] : tree.objects[i].children) {
        if (!have[child]) continue;
        have[i] = changed = true;
        break;
      }
    }
  }
  return have;
}

}  // namespace

const void* IdentityOf(const Variable& variable) { return variable.handle.op().node(); }

const void* IdentityOf(const TreeValue& value) {
  const void* const first = IdentityOf(value.parts[0].variable);
  if (first == nullptr || value.parts.size() == 1) return first;
  // Within the first part's node, which is another object if it is in the tree by itself.
  return static_cast<const char*>(first) + 1;
}

const void* IdentityOf(const Trackable& object) {
  const std::optional<TreeValue>& value = object.node()->value;
  const void* const identity = value ? IdentityOf(*value) : nullptr;
  return identity != nullptr ? identity : object.node().get();
}

ObjectTree NumberObjects(const Trackable& root) { return Numbering(root).Take(); }

std::string KeyOf(const TreeObject& object) { return StrCat(object.path, "/.ATTRIBUTES/", kValue); }

pb::TrackableObjectGraph ToProto(const ObjectTree& tree) {
  pb::TrackableObjectGraph graph;
  const std::vector<bool> have_values = HaveValues(tree);
  for (std::size_t i = 0; i < tree.objects.size(); ++i) {
    const TreeObject& object = tree.objects[i];
    auto* node = graph.add_nodes();
    for (const auto& [name, id] : object.children) {
      auto* child = node->add_children();
      child->set_node_id(id);
      child->set_local_name(name);
    }
    if (object.value) {
      auto* attribute = node->add_attributes();
      attribute->set_name(kValue);
      attribute->set_full_name(object.value->name);
      attribute->set_checkpoint_key(KeyOf(object));
    }
    for (const TreeObject::Slot& slot : object.slots) {
      auto* reference = node->add_slot_variables();
      reference->set_original_variable_node_id(slot.variable);
      reference->set_slot_name(slot.name);
      reference->set_slot_variable_node_id(slot.value);
    }
    node->mutable_has_checkpoint_values()->set_value(have_values[i]);
  }
  return graph;
}

}  // namespace millrace
