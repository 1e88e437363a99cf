// SPDX-License-Identifier: Apache-2.0
#include "graph/function_library.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace millrace {
namespace {

void AddMentionedIn(const pb::AttrValue& value, std::vector<std::string>* names);

void AddMentionedIn(const pb::NameAttrList& function, std::vector<std::string>* names) {
  names->push_back(function.name());
  for (const auto& [name, value] : function.attr()) AddMentionedIn(value, names);
}

void AddMentionedIn(const pb::AttrValue& value, std::vector<std::string>* names) {
  if (value.has_func()) AddMentionedIn(value.func(), names);
  for (const pb::NameAttrList& function : value.list().func()) AddMentionedIn(function, names);
}

std::vector<std::string> Mentions(const pb::FunctionDef& def) {
  std::vector<std::string> names;
  for (const pb::NodeDef& node : def.node_def()) {
    names.push_back(node.op());
    for (const auto& [name, value] : node.attr()) AddMentionedIn(value, &names);
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

// Maps have no order of their own in a message.
std::string Canonical(const pb::FunctionDef& def) {
  std::string text;
  google::protobuf::io::StringOutputStream stream(&text);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  def.SerializeToCodedStream(&coded);
  coded.Trim();
  return text;
}

}  // namespace

StatusOr<std::shared_ptr<const FunctionLibrary>> FunctionLibrary::Extend(
    const std::shared_ptr<const FunctionLibrary>& base, const pb::FunctionDefLibrary& added) {
  if (added.function().empty() && added.gradient().empty()) return base;
  auto library = base == nullptr ? std::make_shared<FunctionLibrary>()
                                 : std::make_shared<FunctionLibrary>(*base);
  for (const pb::FunctionDef& def : added.function()) {
    const std::string& name = def.signature().name();
    if (name.empty()) return errors::InvalidArgument("a function of the library has no name");
    const auto [slot, is_new] = library->by_name_.try_emplace(name, library->functions_.size());
    if (!is_new) {
      if (Canonical(library->functions_[slot->second]->def) == Canonical(def)) continue;
      return errors::InvalidArgument("Cannot add function '", name,
                                     "' because a different function with the same name already "
                                     "exists.");
    }
    auto function = std::make_shared<Function>();
    function->def = def;
    function->op.def = def.signature();
    function->mentions = Mentions(def);
    library->functions_.push_back(std::move(function));
  }
  for (const pb::GradientDef& gradient : added.gradient()) {
    const auto [slot, is_new] =
        library->gradients_.try_emplace(gradient.function_name(), gradient.gradient_func());
    if (!is_new && slot->second != gradient.gradient_func()) {
      return errors::InvalidArgument("Cannot assign gradient function '", gradient.gradient_func(),
                                     "' to '", gradient.function_name(),
                                     "' because it already has gradient function '", slot->second,
                                     "'");
    }
  }
  return library;
}

const Function* FunctionLibrary::Find(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : functions_[it->second].get();
}

const std::string& FunctionLibrary::GradientOf(std::string_view name) const {
  static const std::string* const none = new std::string;
  const auto it = gradients_.find(name);
  return it == gradients_.end() ? *none : it->second;
}

std::shared_ptr<const FunctionLibrary> FunctionLibrary::Reachable(
    std::span<const std::string> names) const {
  absl::flat_hash_set<std::size_t> reached;
  std::vector<std::size_t> stack;
  const auto reach = [&](const std::string& name) {
    const auto it = by_name_.find(name);
    if (it != by_name_.end() && reached.insert(it->second).second) stack.push_back(it->second);
  };
  for (const std::string& name : names) reach(name);
  while (!stack.empty()) {
    const Function& function = *functions_[stack.back()];
    stack.pop_back();
    for (const std::string& name : function.mentions) reach(name);
    reach(GradientOf(function.name()));
  }
  if (reached.empty()) return nullptr;
  std::vector<std::size_t> order(reached.begin(), reached.end());
  std::sort(order.begin(), order.end());
  auto library = std::make_shared<FunctionLibrary>();
  for (const std::size_t index : order) {
    const std::shared_ptr<const Function>& function = functions_[index];
    library->by_name_.emplace(function->name(), library->functions_.size());
    library->functions_.push_back(function);
    const std::string& gradient = GradientOf(function->name());
    if (!gradient.empty()) library->gradients_.emplace(function->name(), gradient);
  }
  return library;
}

void FunctionLibrary::ToProto(pb::FunctionDefLibrary* proto) const {
  for (const auto& function : functions_) {
    *proto->add_function() = function->def;
    const std::string& gradient = GradientOf(function->name());
    if (gradient.empty()) continue;
    pb::GradientDef* const def = proto->add_gradient();
    def->set_function_name(function->name());
    def->set_gradient_func(gradient);
  }
}

void AddMentioned(const FunctionName& function, std::vector<std::string>* names) {
  names->push_back(function.name);
  for (const auto& [name, value] : function.attrs) AddMentioned(value, names);
}

void AddMentioned(const AttrValue& value, std::vector<std::string>* names) {
  if (const FunctionName* function = value.function()) AddMentioned(*function, names);
  if (const auto* list = value.get_if<std::vector<FunctionName>>()) {
    for (const FunctionName& function : *list) AddMentioned(function, names);
  }
}

}  // namespace millrace
