// SPDX-License-Identifier: Apache-2.0
// Steps that end where a number is not finite, and say where the first came from.
#ifndef MODEL_NUMERIC_CHECKS_H_
#define MODEL_NUMERIC_CHECKS_H_

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "millrace/graph.h"

namespace millrace::model {

// Looks at the nodes of a graph that are made while it lives, and at what it is given.
class NumericChecks {
 public:
  explicit NumericChecks(Graph* graph);

  // What comes before the nodes, such as samples; `name` says what it is.
  void Add(std::string name, const Output& value) { given_.emplace_back(std::move(name), value); }

  // An op that fails with InvalidArgument where one of `decisive` is not finite, and names the
  // first value that was not, of those that were given, and made on the way to these, in their
  // order. What a loop or a branch has inside is seen by what leaves it. `updates` wait for it, but
  // for those that the decisive ones need. Not valid if there is nothing to look at.
  Operation Make(const Scope& scope, const std::vector<Output>& decisive,
                 std::span<const Operation> updates) const;

 private:
  using NamedOutputs = std::vector<std::pair<std::string, Output>>;

  NamedOutputs Values(const std::vector<Output>& decisive) const;

  GraphState& state_;
  const int first_;
  NamedOutputs given_;
};

}  // namespace millrace::model

#endif  // MODEL_NUMERIC_CHECKS_H_
