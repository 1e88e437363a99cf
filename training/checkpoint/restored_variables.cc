// SPDX-License-Identifier: Apache-2.0
#include "training/checkpoint/restored_variables.h"

#include <optional>
#include <set>
#include <string>
#include <utility>

#include "frontend/graph_builder.h"
#include "graph/dataflow_graph.h"
#include "millrace/variables.h"

namespace millrace {
namespace {

// The op and all that it waits for through groups.
std::vector<Operation> Behind(const Operation& op) {
  std::vector<Operation> all, open = {op};
  std::set<const Node*> seen;
  while (!open.empty()) {
    const Operation next = open.back();
    open.pop_back();
    if (!seen.insert(next.node()).second) continue;
    all.push_back(next);
    if (next.type() != "NoOp") continue;
    for (const Edge* edge : next.node()->in_edges()) {
      if (edge->src->IsOp()) open.emplace_back(next.graph(), edge->src);
    }
  }
  return all;
}

// The text at this place of a constant vector.
std::optional<std::string> TextAt(const Operation& constant, int index) {
  if (constant.type() != "Const") return std::nullopt;
  const StatusOr<Tensor> value = constant.node()->attrs().Get<Tensor>("value");
  if (!value.ok()) return std::nullopt;
  const auto texts = value->TryFlat<std::string>();
  if (!texts.ok() || index < 0 || static_cast<std::size_t>(index) >= texts->size()) {
    return std::nullopt;
  }
  return (*texts)[static_cast<std::size_t>(index)];
}

// As collections have it, by the handle alone: names of the nodes around differ.
Variable VariableOf(const Operation& assign) {
  Variable variable;
  variable.handle = assign.input(0);
  const Operation& op = variable.handle.op();
  for (const char* suffix : {"/read", "/Read/ReadVariableOp"}) {
    const Operation read(op.graph(), op.graph()->graph->FindNode(op.name() + suffix));
    if (read.valid() && !variable.read.valid()) variable.read = read.output(0);
  }
  return variable;
}

}  // namespace

std::vector<SavedVariable> VariablesRestoredBy(const Operation& restore) {
  constexpr int kMostHops = 8;
  std::vector<SavedVariable> restored;
  for (const Operation& op : Behind(restore)) {
    if (op.type() != "Assign" && op.type() != "AssignVariableOp") continue;
    Output value = op.input(1);
    for (int hop = 0; hop < kMostHops && value.valid(); ++hop) {
      const std::string& type = value.op().type();
      if (type != "Identity" && type != "Reshape" && type != "EnsureShape") break;
      value = value.op().input(0);
    }
    if (!value.valid() || value.op().type() != "RestoreV2") continue;
    const auto key = TextAt(value.op().input(1).op(), value.index());
    const auto slice = TextAt(value.op().input(2).op(), value.index());
    Variable variable = VariableOf(op);
    if (key && slice && variable.read.valid()) restored.push_back({*key, variable, *slice});
  }
  return restored;
}

}  // namespace millrace
