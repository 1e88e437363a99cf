// SPDX-License-Identifier: Apache-2.0
// A checkpoint of objects beside the tree of a program: what is what, and what is left over.
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <deque>

#include "base/errors.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "training/checkpoint/checkpoint_impl.h"
#include "training/checkpoint/object_names.h"

namespace millrace {
namespace {

constexpr char kValue[] = "VARIABLE_VALUE";
constexpr std::size_t kMostNamed = 10;

// "(2,)", "(2, 3)", "()": as the messages that programs look for have it.
std::string TupleText(const Shape& shape) {
  return StrCat("(", StrJoin(shape.dims(), ", "), shape.rank() == 1 ? ",)" : ")");
}

std::string SomeOf(const std::vector<std::string>& names) {
  const std::size_t shown = std::min(names.size(), kMostNamed);
  return StrCat("Showing ", shown, " of ", names.size(), " unmatched objects: [",
                StrJoin(std::span(names.data(), shown), ", "), "]");
}

std::string TextOf(const pb::TrackableObjectGraph::TrackableObject& node) {
  std::string text;
  google::protobuf::TextFormat::PrintToString(node, &text);
  return text;
}

}  // namespace

bool LoadStatus::Load::Bind(const TreeObject& object, int number) {
  const auto [it, is_new] = number_of.emplace(object.identity, number);
  if (!is_new && it->second == number) return false;
  if (!is_new || (object_of[number] != nullptr && object_of[number] != object.identity)) {
    MR_LOG(kWarning, "Inconsistent references when loading the checkpoint into this object graph: ",
           object.spoken, " and ", Spoken(number), "; the first one stays");
    if (is_new) number_of.erase(it);
    return false;
  }
  object_of[number] = object.identity;
  return true;
}

void LoadStatus::Load::Match(const ObjectTree& tree) {
  std::deque<std::pair<int, int>> open = {{0, 0}};  // ours, the file's
  std::set<std::pair<int, int>> seen;
  while (!open.empty()) {
    const auto [ours, number] = open.front();
    open.pop_front();
    if (!seen.insert({ours, number}).second) continue;
    const TreeObject& object = tree.objects[ours];
    Bind(object, number);
    const auto it = number_of.find(object.identity);
    if (it == number_of.end() || it->second != number) continue;
    for (const auto& child : graph.nodes(number).children()) {
      for (const auto& [name, id] : object.children) {
        if (name == child.local_name()) open.emplace_back(id, child.node_id());
      }
    }
  }
  MatchSlots(tree);
  held.insert(held.end(), tree.held.begin(), tree.held.end());
}

void LoadStatus::Load::MatchSlots(const ObjectTree& tree) {
  for (const TreeObject& object : tree.objects) {
    const auto it = number_of.find(object.identity);
    if (it == number_of.end() || object.slots.empty()) continue;
    for (const auto& stored : graph.nodes(it->second).slot_variables()) {
      if (IsSkipped(stored.slot_variable_node_id())) continue;
      const void* const variable = object_of[stored.original_variable_node_id()];
      for (const TreeObject::Slot& slot : object.slots) {
        if (slot.name == stored.slot_name() && tree.objects[slot.variable].identity == variable) {
          Bind(tree.objects[slot.value], stored.slot_variable_node_id());
        }
      }
    }
  }
}

std::string LoadStatus::Load::KeyFor(const TreeObject& object) const {
  if (object.is_slot && checkpoint->options.skip_slot_variables) return "";
  if (by_name) {
    const std::string& name = object.value->name;
    return !name.empty() && reader->Find(name) != nullptr ? name : "";
  }
  const auto it = number_of.find(object.identity);
  if (it == number_of.end()) return "";
  for (const auto& attribute : graph.nodes(it->second).attributes()) {
    if (attribute.name() == kValue) return attribute.checkpoint_key();
  }
  return "";
}

Status LoadStatus::Load::CheckFits(const std::string& key, const TreeObject& object) const {
  const std::vector<SavedVariable>& parts = object.value->parts;
  const Variable& variable = parts[0].variable;
  DataType dtype;
  Shape shape;
  MR_RETURN_IF_ERROR(reader->Lookup(key, &dtype, &shape));
  if (dtype != BaseType(variable.dtype())) {
    return errors::InvalidArgument("tensor_name = ", key, "; expected dtype ",
                                   DataTypeName(BaseType(variable.dtype())),
                                   " does not equal original dtype ", DataTypeName(dtype),
                                   " (variable ", variable.name(), ", checkpoint ", prefix, ")");
  }
  const auto wanted = object.value->shape.AsShape();
  if (!wanted || *wanted == shape) return OkStatus();
  if (parts.size() > 1) {
    return errors::InvalidArgument(
        "tensor_name = ", key, "; shape in shape_and_slice spec ", wanted->DebugString(),
        " does not match the shape stored in checkpoint: ", shape.DebugString(), " (",
        object.spoken, " in ", parts.size(), " parts, the first of them ", variable.name(), ")");
  }
  return errors::InvalidArgument("Received incompatible tensor with shape ", TupleText(shape),
                                 " when attempting to restore variable with shape ",
                                 TupleText(*wanted), " and name ", variable.name(), ":0.");
}

Status LoadStatus::Load::Restore(Session& session) {
  const ObjectTree tree = NumberObjects(checkpoint->root);
  if (!by_name) Match(tree);
  std::vector<SavedVariable> wanted;
  std::map<const void*, std::string> found;
  for (const TreeObject& object : tree.objects) {
    if (!object.value || given.contains(object.identity)) continue;
    const std::string key = KeyFor(object);
    if (key.empty()) continue;
    if (checkpoint->given_by[object.identity] > number) {
      given.insert(object.identity);
      keys_given.insert(key);
      continue;
    }
    MR_RETURN_IF_ERROR(CheckFits(key, object));
    found.emplace(object.identity, key);
    for (const SavedVariable& part : object.value->parts) {
      wanted.push_back({key, part.variable, part.slice});
    }
  }
  MR_RETURN_IF_ERROR(checkpoint->Restore(session, prefix, wanted));
  for (const auto& [identity, key] : found) {
    given.insert(identity);
    checkpoint->given_by[identity] = number;
    keys_given.insert(key);
  }
  return OkStatus();
}

std::string LoadStatus::Load::Spoken(int number) const {
  std::vector<std::string> way(static_cast<std::size_t>(graph.nodes_size()));
  way[0] = "(root)";
  std::deque<int> open = {0};
  while (!open.empty() && way[number].empty()) {
    const int i = open.front();
    open.pop_front();
    for (const auto& child : graph.nodes(i).children()) {
      if (!way[child.node_id()].empty()) continue;
      way[child.node_id()] = StrCat(way[i], ".", child.local_name());
      open.push_back(child.node_id());
    }
  }
  if (!way[number].empty()) return way[number];
  for (int i = 0; i < graph.nodes_size(); ++i) {
    for (const auto& slot : graph.nodes(i).slot_variables()) {
      if (slot.slot_variable_node_id() != number) continue;
      return StrCat(way[i], "'s state '", slot.slot_name(), "' for ",
                    way[slot.original_variable_node_id()]);
    }
  }
  return StrCat("object ", number);
}

Status LoadStatus::Load::Consumed(const ObjectTree& tree) const {
  if (by_name) return ObjectsMatched(tree);
  for (int i = 0; i < graph.nodes_size(); ++i) {
    const auto& node = graph.nodes(i);
    if (node.attributes().empty() || IsSkipped(i)) continue;
    if (object_of[i] == nullptr) {
      return errors::FailedPrecondition("Unresolved object in checkpoint ", Spoken(i), ": ",
                                        TextOf(node));
    }
    for (const auto& attribute : node.attributes()) {
      if (keys_given.contains(attribute.checkpoint_key())) continue;
      return errors::FailedPrecondition(
          "Unused attributes in these objects (the attributes exist in the checkpoint but were "
          "not restored): ",
          Spoken(i), ": ", attribute.name());
    }
  }
  return ObjectsMatched(tree);
}

Status LoadStatus::Load::ObjectsMatched(const ObjectTree& tree) const {
  std::vector<std::string> unmatched;
  const void* const counter = IdentityOf(checkpoint->counter);  // whoever writes need not count
  for (const TreeObject& object : tree.objects) {
    if (object.is_slot && checkpoint->options.skip_slot_variables) continue;
    if (object.value) {
      if (given.contains(object.identity) || object.identity == counter) continue;
      if (number_of.contains(object.identity)) {
        return errors::FailedPrecondition("Object ", object.spoken,
                                          " not assigned a value from checkpoint.");
      }
      unmatched.push_back(StrCat("<variable '", object.value->name, "' ", object.spoken,
                                 " shape=", object.value->shape.DebugString(), ">"));
    } else if (!by_name && !object.children.empty() && !number_of.contains(object.identity)) {
      unmatched.push_back(object.spoken);
    }
  }
  if (unmatched.empty()) return OkStatus();
  return errors::FailedPrecondition(
      "Found ", unmatched.size(),
      " objects that were not bound to checkpointed values, likely due to changes in the "
      "program. ",
      SomeOf(unmatched));
}

void LoadStatus::Load::Tell() const {
  if (expect_partial || reader == nullptr || by_name) return;
  for (int i = 0; i < graph.nodes_size(); ++i) {
    if (IsSkipped(i)) continue;
    for (const auto& attribute : graph.nodes(i).attributes()) {
      if (keys_given.contains(attribute.checkpoint_key())) continue;
      MR_LOG(kWarning,
             "Value in checkpoint could not be found in the restored object: ", Spoken(i));
    }
  }
}

LoadStatus::LoadStatus(std::shared_ptr<Load> load) : load_(std::move(load)) {}
LoadStatus::LoadStatus(LoadStatus&&) noexcept = default;
LoadStatus& LoadStatus::operator=(LoadStatus&&) noexcept = default;
LoadStatus::~LoadStatus() {
  if (load_ != nullptr && load_.use_count() == 1) load_->Tell();
}

namespace {

Status NothingAsked() {
  return errors::FailedPrecondition(
      "No checkpoint specified (save_path=None); nothing is being restored.");
}

}  // namespace

Status LoadStatus::AssertConsumed() const {
  load_->expect_partial = true;  // whoever asks has been told
  if (load_->prefix.empty()) return NothingAsked();
  return load_->Consumed(NumberObjects(load_->checkpoint->root));
}

Status LoadStatus::AssertExistingObjectsMatched() const {
  load_->expect_partial = true;
  if (load_->prefix.empty()) return NothingAsked();
  return load_->ObjectsMatched(NumberObjects(load_->checkpoint->root));
}

Status LoadStatus::AssertNontrivialMatch() const {
  load_->expect_partial = true;
  if (load_->prefix.empty()) return NothingAsked();
  const ObjectTree tree = NumberObjects(load_->checkpoint->root);
  std::vector<std::string> unmatched;
  for (std::size_t i = 1; i < tree.objects.size(); ++i) {
    const void* const identity = tree.objects[i].identity;
    if (load_->given.contains(identity) || load_->number_of.contains(identity)) return OkStatus();
    unmatched.push_back(tree.objects[i].spoken);
  }
  if (unmatched.empty()) {
    return errors::FailedPrecondition(
        "Nothing to load. No objects have been added to the checkpoint yet.");
  }
  return errors::FailedPrecondition(
      "Nothing except the root object matched a checkpointed value. Typically this means that the "
      "checkpoint does not match the program. ",
      SomeOf(unmatched));
}

LoadStatus& LoadStatus::ExpectPartial() {
  load_->expect_partial = true;
  return *this;
}

Status LoadStatus::RestoreAdded(Session& session) {
  if (load_->prefix.empty()) return OkStatus();
  return load_->Restore(session);
}

}  // namespace millrace
