// SPDX-License-Identifier: Apache-2.0
// Objects of checkpoints, and the structures that TensorFlow gives to optimizers.
#include <algorithm>
#include <array>
#include <cctype>
#include <map>

#include "base/strings.h"
#include "millrace/keras_optimizers.h"
#include "training/checkpoint/object_tree.h"
#include "training/checkpoint/tree_parts.h"

namespace millrace {
namespace {

// The slots of TensorFlow's optimizers by the names of their variables, "v/Adam", "v/Adam_1", ...
struct SlotNames {
  const char* optimizer;
  std::array<const char*, 3> slots;
};
constexpr SlotNames kSlotNames[] = {
    {"Momentum", {"momentum"}},
    {"Adam", {"m", "v"}},
    {"Adagrad", {"accumulator"}},
    {"AdagradDA", {"gradient_accumulator", "gradient_squared_accumulator"}},
    {"Adadelta", {"accum", "accum_update"}},
    {"Ftrl", {"accum", "linear"}},
    {"ProximalAdagrad", {"accumulator"}},
    {"ExponentialMovingAverage", {"average"}},
};
constexpr SlotNames kRmsProp{"RMSProp", {"rms", "momentum"}};
constexpr SlotNames kCenteredRmsProp{"RMSProp", {"rms", "mg", "momentum"}};

// "Adam_1" is {"Adam", 1}.
std::pair<std::string, int> SplitNumber(const std::string& name) {
  const std::size_t at = name.rfind('_');
  int64_t number = 0;
  if (at == std::string::npos || !ParseInt64(std::string_view(name).substr(at + 1), &number)) {
    return {name, 0};
  }
  return {name.substr(0, at), static_cast<int>(number)};
}

std::string SlotName(const std::string& leaf, bool is_centered) {
  const auto [optimizer, number] = SplitNumber(leaf);
  const SlotNames* names = nullptr;
  for (const SlotNames& n : kSlotNames) {
    if (optimizer == n.optimizer) names = &n;
  }
  if (optimizer == kRmsProp.optimizer) names = is_centered ? &kCenteredRmsProp : &kRmsProp;
  if (names == nullptr || number >= static_cast<int>(names->slots.size()) ||
      names->slots[number] == nullptr) {
    return leaf;
  }
  return names->slots[number];
}

const Variable* Primary(const std::string& slot_variable, std::span<const Variable> trained) {
  const Variable* longest = nullptr;
  for (const Variable& v : trained) {
    if (slot_variable.starts_with(StrCat(v.name(), "/")) &&
        (longest == nullptr || v.name().size() > longest->name().size())) {
      longest = &v;
    }
  }
  return longest;
}

Trackable OfSlotOptimizer(const Optimizer& optimizer, std::span<const Variable> trained) {
  Trackable object;
  const std::vector<Variable> own = optimizer.variables();
  const bool is_centered = std::any_of(
      own.begin(), own.end(), [](const Variable& v) { return v.name().ends_with("/RMSProp_2"); });
  std::map<std::string, Variable> others;
  for (const Variable& v : own) {
    if (const Variable* primary = Primary(v.name(), trained)) {
      const std::string leaf = v.name().substr(primary->name().size() + 1);
      object.AddSlot(SlotName(leaf, is_centered), *primary, v);
    } else {
      std::string leaf = v.name().substr(v.name().rfind('/') + 1);
      std::string plain = SplitNumber(leaf).first;
      others.emplace(others.contains(plain) ? leaf : plain, v);
    }
  }
  for (const auto& [name, v] : others) object.Add(name, v);
  return object;
}

// "momentum" -> "_momentums"
std::string ListName(const std::string& slot) {
  if (slot.ends_with("y")) return StrCat("_", slot.substr(0, slot.size() - 1), "ies");
  return StrCat("_", slot, "s");
}

// "adam/dense_kernel_momentum" is the slot "momentum" of the variable "dense/kernel".
Trackable::Node::Item KerasSlot(const std::string& name, std::span<const Variable> trained) {
  const std::string leaf = name.substr(name.rfind('/') + 1);
  Trackable::Node::Item slot;
  std::size_t longest = 0;
  for (const Variable& v : trained) {
    std::string start = v.name() + "_";
    std::replace(start.begin(), start.end(), '/', '_');
    if (!leaf.starts_with(start) || start.size() <= longest) continue;
    longest = start.size();
    slot = {v, leaf.substr(longest)};
  }
  return slot;
}

Trackable ListOf(std::span<const Variable> variables, std::vector<Trackable::Node::Item> items) {
  Trackable list = Trackable::List(variables);
  list.node()->items = std::move(items);
  return list;
}

Trackable OfKeras(const optimizers::KerasOptimizer& optimizer, std::span<const Variable> trained) {
  Trackable object;
  const std::vector<Variable> own = optimizer.variables();
  std::vector<Trackable::Node::Item> kept, themselves;
  for (const Variable& v : own) kept.push_back(KerasSlot(v.name(), trained));
  for (const Variable& v : trained) themselves.push_back({v, ""});
  object.Add("_variables", ListOf(own, kept));
  object.Add("_trainable_variables", ListOf(trained, themselves));
  object.Add("_trainable_variables_indices", Trackable());
  if (optimizer.iterations().handle.valid()) object.Add("_iterations", optimizer.iterations());
  if (optimizer.learning_rate().handle.valid()) {
    object.Add("_learning_rate", optimizer.learning_rate());
  }
  std::vector<std::string> order;
  std::map<std::string, std::pair<std::vector<Variable>, std::vector<Trackable::Node::Item>>> lists;
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (!kept[i].variable) continue;
    auto& [list, items] = lists[kept[i].slot];
    if (list.empty()) order.push_back(kept[i].slot);
    list.push_back(own[i]);
    items.push_back(kept[i]);
  }
  for (const std::string& slot : order) {
    object.Add(ListName(slot), ListOf(lists[slot].first, lists[slot].second));
  }
  return object;
}

}  // namespace

Trackable::Trackable() : node_(std::make_shared<Node>()) {}

Trackable::Trackable(const Variable& variable) : Trackable() { node_->value = ValueOf(variable); }

Trackable Trackable::List(std::vector<Trackable> items) {
  Trackable list;
  for (std::size_t i = 0; i < items.size(); ++i) list.Add(StrCat(i), items[i]);
  return list;
}

Trackable Trackable::List(std::span<const Variable> items) {
  return List(std::vector<Trackable>(items.begin(), items.end()));
}

Trackable Trackable::Of(const Optimizer& optimizer, std::span<const Variable> trained) {
  const auto* keras = dynamic_cast<const optimizers::KerasOptimizer*>(&optimizer);
  return keras != nullptr ? OfKeras(*keras, trained) : OfSlotOptimizer(optimizer, trained);
}

Trackable& Trackable::Add(const std::string& name, const Trackable& child) {
  for (auto& [existing, object] : node_->children) {
    if (existing != name) continue;
    object = child;
    return *this;
  }
  node_->children.emplace_back(name, child);
  return *this;
}

Trackable& Trackable::AddSlot(const std::string& slot, const Variable& variable,
                              const Variable& value) {
  node_->slots.push_back({slot, variable, value});
  return *this;
}

std::optional<Trackable> Trackable::child(const std::string& name) const {
  for (const auto& [existing, object] : node_->children) {
    if (existing == name) return object;
  }
  return std::nullopt;
}

}  // namespace millrace
