// SPDX-License-Identifier: Apache-2.0
// The functions of a graph. A library never changes: an extension makes another one, which
// shares what was there, so graphs, plans and workers may hold on to theirs.
#ifndef GRAPH_FUNCTION_LIBRARY_H_
#define GRAPH_FUNCTION_LIBRARY_H_

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/string_map.h"
#include "millrace/attr_value.h"
#include "millrace/status.h"
#include "ops/op_registry.h"
#include "proto/function.pb.h"

namespace millrace {

// One function as it was defined. Thread-safe; lives as long as a library that has it.
struct Function {
  pb::FunctionDef def;
  OpInfo op;  // the signature: a node whose type is the function's name is a call of it
  std::vector<std::string> mentions;  // every op and function that the body names, sorted

  const std::string& name() const { return op.def.name(); }
};

class FunctionLibrary {
 public:
  // The functions of `base` (null: none) and of `added`. InvalidArgument if a function has no
  // name or that of another one with a different definition ("because a different function with
  // the same name already exists"), or if a function gets a second gradient.
  static StatusOr<std::shared_ptr<const FunctionLibrary>> Extend(
      const std::shared_ptr<const FunctionLibrary>& base, const pb::FunctionDefLibrary& added);

  // Null if there is none of this name.
  const Function* Find(std::string_view name) const;
  // The function that computes the gradient of `name`, "" if none was registered.
  const std::string& GradientOf(std::string_view name) const;
  std::span<const std::shared_ptr<const Function>> functions() const { return functions_; }

  // What can be reached from functions of these names, gradients included; other names do not
  // matter. Null if that is nothing. Costs what is reached.
  std::shared_ptr<const FunctionLibrary> Reachable(std::span<const std::string> names) const;

  // In order of definition.
  void ToProto(pb::FunctionDefLibrary* proto) const;

 private:
  std::vector<std::shared_ptr<const Function>> functions_;
  StringMap<std::size_t> by_name_;  // index in functions_
  StringMap<std::string> gradients_;
};

// Adds the name of `function` and of every function among its attributes, however deep.
void AddMentioned(const FunctionName& function, std::vector<std::string>* names);
// The same of an attribute.
void AddMentioned(const AttrValue& value, std::vector<std::string>* names);

}  // namespace millrace

#endif  // GRAPH_FUNCTION_LIBRARY_H_
