// SPDX-License-Identifier: Apache-2.0
#include "training/initializers.h"

#include <set>

#include "graph/dataflow_graph.h"
#include "millrace/variables.h"

namespace millrace {
namespace {

// The ops behind a group, and behind the groups in it.
std::vector<Operation> Leaves(const Operation& group) {
  std::vector<Operation> leaves, open = {group};
  std::set<const Node*> seen;
  while (!open.empty()) {
    const Operation op = open.back();
    open.pop_back();
    if (!seen.insert(op.node()).second) continue;
    if (op.type() != "NoOp") {
      leaves.push_back(op);
      continue;
    }
    for (const Edge* edge : op.node()->in_edges()) {
      if (edge->src->IsOp()) open.emplace_back(op.graph(), edge->src);
    }
  }
  return leaves;
}

// The variable that an op assigns to; "" if it does not.
std::string AssignedVariable(const Operation& op) {
  if (!op.type().starts_with("Assign") || op.num_inputs() == 0) return "";
  return op.input(0).op().name();
}

}  // namespace

std::vector<Operation> InitializersOf(const Graph& graph, const Operation& init_op,
                                      std::span<const std::string> missing) {
  std::set<std::string> lost;
  for (const std::string& label : missing) lost.insert(label.substr(0, label.find(" @ ")));
  std::set<std::string> devices, alive;
  for (const Variable& v : Variables(graph)) {
    if (lost.contains(v.name())) {
      devices.insert(v.handle.op().device());
    } else {
      alive.insert(v.name());
    }
  }
  if (alive.empty() || init_op.type() != "NoOp") return {init_op};
  std::vector<Operation> initializers;
  for (const Operation& op : Leaves(init_op)) {
    const std::string variable = AssignedVariable(op);
    if (variable.empty() ? devices.contains(op.device()) : !alive.contains(variable)) {
      initializers.push_back(op);
    }
  }
  return initializers;
}

}  // namespace millrace
