// SPDX-License-Identifier: Apache-2.0
#include "training/checkpoint/tree_parts.h"

#include <algorithm>
#include <set>

#include "base/strings.h"
#include "io/tensor_slice.h"
#include "millrace/partitioners.h"
#include "training/sharding/part_marks.h"

namespace millrace {
namespace {

// What is kept for each part, as parts of one tensor; empty if a part has none or another shape.
std::optional<TreeValue> Joined(const TreeValue& whole, std::span<const Variable> kept) {
  TreeValue joined{.name = "", .shape = whole.shape};
  if (kept.size() != whole.parts.size()) return std::nullopt;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    const SavedVariable& part = whole.parts[i];
    if (!kept[i].handle.valid() || kept[i].dtype() != kept[0].dtype() ||
        kept[i].shape().DebugString() != part.variable.shape().DebugString()) {
      return std::nullopt;
    }
    joined.parts.push_back({"", kept[i], part.slice});
  }
  joined.name = NameOfWhole(kept[0].name(), whole.parts[0].variable.name(), whole.name);
  return joined;
}

Trackable ObjectOf(TreeValue value) {
  Trackable object;
  object.node()->value = std::move(value);
  return object;
}

}  // namespace

TreeValue ValueOf(const Variable& variable) {
  if (!variable.handle.valid()) return {.name = "", .shape = {}, .parts = {{"", variable, ""}}};
  return {.name = variable.name(), .shape = variable.shape(), .parts = {{"", variable, ""}}};
}

Trackable TrackableOf(const ShardedVariable& variable) {
  if (variable.parts.empty()) return Trackable(Variable());
  if (variable.parts.size() == 1) return Trackable(variable.parts[0].variable);
  TreeValue value{.name = "", .shape = PartialShape(variable.shape)};
  for (const VariablePart& part : variable.parts) {
    // All numbers are written out, as TensorFlow does.
    TensorSlice slice;
    for (const int64_t dim : variable.shape.dims()) slice.extents.push_back({0, dim});
    slice.extents[0] = {part.begin, part.rows};
    value.parts.push_back(
        {"", part.variable, StrCat(StrJoin(variable.shape.dims(), " "), " ", slice.DebugString())});
  }
  // The scope's name is in the parts' names only.
  const Variable& first = variable.parts[0].variable;
  if (first.handle.valid() && first.name().ends_with("/part_0")) {
    value.name = first.name().substr(0, first.name().rfind('/'));
  }
  return ObjectOf(std::move(value));
}

TreeParts::TreeParts(const Trackable& root) {
  std::set<const Trackable::Node*> seen;
  std::vector<Trackable> open = {root};
  while (!open.empty()) {
    const Trackable object = open.back();
    open.pop_back();
    if (!seen.insert(object.node().get()).second) continue;
    for (const auto& [name, child] : object.node()->children) open.push_back(child);
    const std::optional<TreeValue>& value = object.node()->value;
    if (!value || value->parts.size() < 2) continue;
    for (std::size_t i = 0; i < value->parts.size(); ++i) {
      parts_.emplace(IdentityOf(value->parts[i].variable), Part{object, i});
    }
  }
}

const TreeParts::Part* TreeParts::Find(const Variable& variable) const {
  const auto it = parts_.find(IdentityOf(variable));
  return it == parts_.end() ? nullptr : &it->second;
}

std::vector<TreeParts::Slot> TreeParts::SlotsOf(const Trackable::Node& node,
                                                std::vector<std::string>* partial) const {
  std::vector<Slot> slots;
  std::map<std::pair<std::string, const void*>, std::vector<Variable>> of_wholes;
  std::map<const void*, Trackable> wholes;
  for (const Trackable::Node::Slot& slot : node.slots) {
    const Part* const part = Find(slot.variable);
    if (part == nullptr) {
      slots.push_back({slot.name, IdentityOf(slot.variable), ValueOf(slot.value)});
      continue;
    }
    const void* const whole = IdentityOf(part->whole);
    wholes.emplace(whole, part->whole);
    std::vector<Variable>& kept = of_wholes[{slot.name, whole}];
    kept.resize(part->whole.node()->value->parts.size());
    kept[part->index] = slot.value;
  }
  for (const auto& [key, kept] : of_wholes) {
    std::optional<TreeValue> joined = Joined(*wholes.at(key.second).node()->value, kept);
    if (joined) {
      slots.push_back({key.first, key.second, *std::move(joined)});
    } else {
      partial->push_back(
          StrCat("'", key.first, "' of ", wholes.at(key.second).node()->value->name));
    }
  }
  return slots;
}

// In the order of the parts.
std::vector<Variable> TreeParts::KeptFor(const Trackable::Node& list, const Trackable& whole,
                                         const std::string& slot) const {
  std::vector<Variable> kept(whole.node()->value->parts.size());
  for (std::size_t i = 0; i < list.items.size(); ++i) {
    const Trackable::Node::Item& item = list.items[i];
    if (!item.variable || item.slot != slot) continue;
    const Part* const part = Find(*item.variable);
    if (part == nullptr || IdentityOf(part->whole) != IdentityOf(whole)) continue;
    const std::optional<TreeValue>& value = list.children[i].second.node()->value;
    if (value && value->parts.size() == 1) kept[part->index] = value->parts[0].variable;
  }
  return kept;
}

std::vector<std::pair<std::string, Trackable>> TreeParts::ChildrenOf(
    const Trackable::Node& node) const {
  if (node.items.empty() || parts_.empty()) return node.children;
  std::vector<std::pair<std::string, Trackable>> children;
  std::set<const void*> joined_already;
  for (std::size_t i = 0; i < node.children.size(); ++i) {
    Trackable child = node.children[i].second;
    const bool is_item = i < node.items.size() && node.items[i].variable;
    const Part* const part = is_item ? Find(*node.items[i].variable) : nullptr;
    if (part != nullptr) {
      const std::vector<Variable> kept = KeptFor(node, part->whole, node.items[i].slot);
      if (std::optional<TreeValue> joined = Joined(*part->whole.node()->value, kept)) {
        child = node.items[i].slot.empty() ? part->whole : ObjectOf(*std::move(joined));
        if (!joined_already.insert(IdentityOf(child)).second) continue;
      }
    }
    children.emplace_back(StrCat(children.size()), child);
  }
  return children;
}

}  // namespace millrace
