// SPDX-License-Identifier: Apache-2.0
// Branches and loops in graphs that C++ builds.
#ifndef MILLRACE_CONTROL_FLOW_H_
#define MILLRACE_CONTROL_FLOW_H_

#include <cstdint>
#include <functional>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include "millrace/graph.h"

namespace millrace {

// Adds the nodes of a branch through the scope it is given, and says what they compute.
using BranchBuilder = std::function<std::vector<Output>(const Scope& scope)>;

// What `then_branch` computes where `pred` (a bool scalar) is true, else what `else_branch` does.
// Only one of them runs; both may use outputs made before, and return as many outputs of the
// same types. Gradients() goes through. On an error the graph's status says what is wrong, and
// the result is empty.
std::vector<Output> Cond(const Scope& scope, const Output& pred, const BranchBuilder& then_branch,
                         const BranchBuilder& else_branch,
                         std::source_location where = std::source_location::current());

// Adds nodes that say, of the loop's variables, whether there is another iteration: a bool scalar.
using LoopCondition = std::function<Output(const Scope& scope, std::span<const Output> variables)>;
// Adds the nodes of an iteration and returns the new values of the variables: as many, of the same
// types, in the same order.
using LoopBody =
    std::function<std::vector<Output>(const Scope& scope, std::span<const Output> variables)>;

// How a loop is run and named.
struct WhileOptions {
  int64_t parallel_iterations = 10;  // that may run at once
  std::string frame_name{};          // "": made of the scope's name
};

// The variables of a loop that starts with `initial` (at least one) and gives its variables what
// `body` computes for as long as `condition` is true. Both may use outputs made before, which are
// the same in every iteration. Gradients() goes through: what has state in the body runs once
// for each iteration, other ops once more for the gradient. Errors as of Cond.
std::vector<Output> WhileLoop(const Scope& scope, const std::vector<Output>& initial,
                              const LoopCondition& condition, const LoopBody& body,
                              const WhileOptions& options = {},
                              std::source_location where = std::source_location::current());

}  // namespace millrace

#endif  // MILLRACE_CONTROL_FLOW_H_
