// SPDX-License-Identifier: Apache-2.0
#include "tools/millrace/ckpt_objects.h"

#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "proto/trackable_object_graph.pb.h"

namespace millrace {
namespace {

constexpr std::string_view kSlot = "/.OPTIMIZER_SLOT/";
constexpr std::string_view kValue = "/.ATTRIBUTES/VARIABLE_VALUE";

struct Object {
  struct Slot {
    const Object* variable;
    std::string name;
    const Object* value;
  };
  std::map<std::string, std::unique_ptr<Object>> children;
  std::vector<Slot> slots;
  std::string key, full_name;  // of a variable
};

StatusOr<std::vector<std::string>> NamesOn(std::string_view path) {
  std::vector<std::string> names;
  for (const std::string_view name : StrSplit(path, '/')) {
    if (name.empty()) {
      return errors::InvalidArgument("'", path, "' is no path of objects: a name in it is empty");
    }
    names.emplace_back(name);
  }
  return names;
}

StatusOr<Object*> ObjectAt(Object* root, std::string_view path) {
  MR_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesOn(path));
  for (const std::string& name : names) {
    std::unique_ptr<Object>& child = root->children[name];
    if (child == nullptr) child = std::make_unique<Object>();
    root = child.get();
  }
  return root;
}

// "layer/kernel", "optimizer" and "m" of a slot's path.
struct SlotPath {
  std::string_view variable, optimizer, name;
};
StatusOr<SlotPath> ParseSlot(std::string_view path, std::size_t mark) {
  const std::string_view owner = path.substr(mark + kSlot.size());
  const std::size_t slash = owner.rfind('/');
  if (slash == std::string_view::npos) {
    return errors::InvalidArgument("'", path, "' names no slot: write VARIABLE", kSlot,
                                   "OPTIMIZER/NAME");
  }
  return SlotPath{path.substr(0, mark), owner.substr(0, slash), owner.substr(slash + 1)};
}

// Breadth first; slots behind all others.
class Numbering {
 public:
  explicit Numbering(const Object* root) {
    Add(root);
    for (std::size_t i = 0; i < objects_.size(); ++i) {
      for (const auto& [name, child] : objects_[i]->children) Add(child.get());
    }
    const std::size_t in_tree = objects_.size();
    for (std::size_t i = 0; i < in_tree; ++i) {
      for (const Object::Slot& slot : objects_[i]->slots) Add(slot.value);
    }
  }

  pb::TrackableObjectGraph ToProto() const {
    pb::TrackableObjectGraph graph;
    for (const Object* object : objects_) {
      auto* const node = graph.add_nodes();
      for (const auto& [name, child] : object->children) {
        auto* const reference = node->add_children();
        reference->set_node_id(numbers_.at(child.get()));
        reference->set_local_name(name);
      }
      for (const Object::Slot& slot : object->slots) {
        auto* const reference = node->add_slot_variables();
        reference->set_original_variable_node_id(numbers_.at(slot.variable));
        reference->set_slot_name(slot.name);
        reference->set_slot_variable_node_id(numbers_.at(slot.value));
      }
      if (!object->key.empty()) {
        auto* const attribute = node->add_attributes();
        attribute->set_name("VARIABLE_VALUE");
        attribute->set_full_name(object->full_name);
        attribute->set_checkpoint_key(object->key);
      }
    }
    return graph;
  }

 private:
  void Add(const Object* object) {
    numbers_.emplace(object, static_cast<int>(objects_.size()));
    objects_.push_back(object);
  }

  std::vector<const Object*> objects_;
  std::map<const Object*, int> numbers_;
};

}  // namespace

StatusOr<std::string> KeyOfPath(std::string_view path) {
  std::string key;
  const std::size_t mark = path.find(kSlot);
  if (mark != std::string_view::npos) {
    MR_ASSIGN_OR_RETURN(const SlotPath slot, ParseSlot(path, mark));
    MR_ASSIGN_OR_RETURN(const std::string variable, KeyOfPath(slot.variable));
    key = StrCat(variable.substr(0, variable.size() - kValue.size()), kSlot);
    path = path.substr(mark + kSlot.size());
  }
  MR_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesOn(path));
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) key += '/';
    for (const char c : names[i]) key += c == '.' ? std::string("..") : std::string(1, c);
  }
  return StrCat(key, kValue);
}

StatusOr<std::string> ObjectGraphOf(const std::map<std::string, std::string>& names) {
  Object root;
  std::deque<Object> slots;  // keeps their places
  for (const auto& [path, name] : names) {
    if (path.find(kSlot) != std::string::npos) continue;
    MR_ASSIGN_OR_RETURN(Object* const object, ObjectAt(&root, path));
    MR_ASSIGN_OR_RETURN(object->key, KeyOfPath(path));
    object->full_name = name;
  }
  for (const auto& [path, name] : names) {
    const std::size_t mark = path.find(kSlot);
    if (mark == std::string::npos) continue;
    MR_ASSIGN_OR_RETURN(const SlotPath slot, ParseSlot(path, mark));
    if (!names.contains(std::string(slot.variable))) {
      return errors::InvalidArgument(path, " is a slot of ", slot.variable, ", which is not there");
    }
    MR_ASSIGN_OR_RETURN(Object* const variable, ObjectAt(&root, slot.variable));
    MR_ASSIGN_OR_RETURN(Object* const optimizer, ObjectAt(&root, slot.optimizer));
    Object& value = slots.emplace_back();
    MR_ASSIGN_OR_RETURN(value.key, KeyOfPath(path));
    value.full_name = name;
    optimizer->slots.push_back({variable, std::string(slot.name), &value});
  }
  return Numbering(&root).ToProto().SerializeAsString();
}

}  // namespace millrace
