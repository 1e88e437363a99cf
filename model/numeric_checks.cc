// SPDX-License-Identifier: Apache-2.0
#include "model/numeric_checks.h"

#include <algorithm>
#include <set>

#include "base/strings.h"
#include "frontend/graph_builder.h"
#include "millrace/math.h"

namespace millrace::model {
namespace {

bool HasInput(const Node& node, const char* type) {
  return std::any_of(node.in_edges().begin(), node.in_edges().end(),
                     [&](const Edge* edge) { return edge->src->type() == type; });
}

// How many loops and branches a node opens, or closes if it is negative.
int Opened(const Node& node) {
  const std::string& type = node.type();
  if (type == "Enter") return 1;
  if (type == "Exit") return -1;
  if (type == "Switch") return HasInput(node, "LoopCond") ? 0 : 1;
  if (type == "Merge") return HasInput(node, "Enter") ? 0 : -1;
  return 0;
}

// By id, how many loops and branches a node from `first` on is in.
std::vector<int> DepthsOf(const DataflowGraph& graph, int first) {
  std::vector<int> depths(static_cast<std::size_t>(graph.num_node_ids()), 0);
  // Once more for each node that was made before what it reads, which loops have; a bound for what
  // is no loop of ours.
  bool changed = true;
  for (int round = 0; changed && round < graph.num_node_ids(); ++round) {
    changed = false;
    for (int id = first; id < graph.num_node_ids(); ++id) {
      const Node* const node = graph.node(id);
      if (node == nullptr) continue;
      int depth = 0;
      for (const Edge* edge : node->in_edges()) depth = std::max(depth, depths[edge->src->id()]);
      depth = std::max(0, depth + Opened(*node));
      changed = changed || depth != depths[id];
      depths[id] = depth;
    }
  }
  return depths;
}

// The ids of the nodes that the outputs need.
std::set<int> NeededBy(const std::vector<Output>& outputs) {
  std::set<int> needed;
  std::vector<const Node*> next;
  for (const Output& output : outputs) {
    if (output.valid()) next.push_back(output.op().node());
  }
  while (!next.empty()) {
    const Node* const node = next.back();
    next.pop_back();
    if (!node->IsOp() || !needed.insert(node->id()).second) continue;
    for (const Edge* edge : node->in_edges()) next.push_back(edge->src);
  }
  return needed;
}

Output IsFinite(const Scope& scope, const Output& value) {
  const Scope beside = scope.ColocateWith(value.op());
  const Output finite = ops::IsFinite(beside, value);
  return ops::All(beside, ops::Reshape(beside, finite, {-1}), {0});
}

}  // namespace

NumericChecks::NumericChecks(Graph* graph)
    : state_(*graph->root().graph()), first_(state_.graph->num_node_ids()) {}

NumericChecks::NamedOutputs NumericChecks::Values(const std::vector<Output>& decisive) const {
  NamedOutputs values = given_;
  const std::vector<int> depths = DepthsOf(*state_.graph, first_);
  for (const int id : NeededBy(decisive)) {
    Node* const node = state_.graph->node(id);
    if (id < first_ || depths[id] > 0 || node->type() == "Const") continue;
    for (int i = 0; i < node->num_outputs(); ++i) {
      const DataType dtype = node->output_types()[i];
      if (!IsFloating(dtype) || IsRefType(dtype)) continue;
      values.emplace_back(StrCat("node '", node->name(), "' (", node->type(), ", ", node->origin(),
                                 node->num_outputs() > 1 ? StrCat(", output ", i) : "", ")"),
                          Output(&state_, node, i));
    }
  }
  return values;
}

Operation NumericChecks::Make(const Scope& outer, const std::vector<Output>& decisive,
                              std::span<const Operation> updates) const {
  const Scope scope = outer.Named("check_numerics");
  const NamedOutputs values = Values(decisive);
  std::vector<Input> finite, decided;
  std::vector<std::string> names;
  for (const auto& [name, value] : values) {
    if (!value.valid() || !IsFloating(value.dtype())) continue;
    names.push_back(
        StrCat("The loss or a gradient is not finite. The first value that is NaN or "
               "infinite is that of ",
               name, "; the weights were left as they are"));
    finite.emplace_back(IsFinite(scope, value));
  }
  for (const Output& value : decisive) {
    if (value.valid()) decided.emplace_back(IsFinite(scope, value));
  }
  if (finite.empty() || decided.empty()) return Operation();
  Tensor sentences(kString, Shape({static_cast<int64_t>(names.size())}));
  std::copy(names.begin(), names.end(), sentences.data<std::string>());
  // The first of the least: false is less than true.
  const Output first =
      ops::ArgMin(scope, ops::Cast(scope, ops::Pack(scope, finite), kInt32), int32_t{0});
  const Output sentence = ops::GatherV2(scope, sentences, first, 0);
  const Output good = ops::All(scope, ops::Pack(scope, decided), {0});
  const Operation check = ops::Assert(scope, good, {sentence});
  if (!check.valid()) return check;
  const std::set<int> needed = NeededBy(decisive);
  for (const Operation& update : updates) {
    if (!needed.contains(update.node()->id())) {
      state_.graph->AddControlEdge(check.node(), update.node());
    }
  }
  return check;
}

}  // namespace millrace::model
