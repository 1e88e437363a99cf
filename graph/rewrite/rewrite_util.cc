// SPDX-License-Identifier: Apache-2.0
#include "graph/rewrite/rewrite_util.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "base/status_macros.h"

namespace millrace::rewrite {
namespace {

bool IsOneOf(std::string_view type, std::initializer_list<std::string_view> types) {
  return std::find(types.begin(), types.end(), type) != types.end();
}

bool HasFunctions(const Node& node) {
  return std::any_of(node.attrs().begin(), node.attrs().end(),
                     [](const auto& attr) { return attr.second.function() != nullptr; });
}

bool IsOpaque(DataType dtype) {
  return IsRefType(dtype) || dtype == kResource || dtype == DataType::kVariant;
}

}  // namespace

bool IsControlFlow(const Node& node) {
  return IsOneOf(node.type(), {"Switch", "RefSwitch", "_SwitchN", "Merge", "RefMerge", "Enter",
                               "RefEnter", "Exit", "RefExit", "NextIteration", "RefNextIteration",
                               "LoopCond", "ControlTrigger"});
}

namespace {

// What the op alone tells. Sends, receives, arguments and all else that is the engine's own
// begin with an underscore.
bool MayBePure(const Node& node) {
  return !node.is_stateful() && !IsControlFlow(node) && !node.type().starts_with('_') &&
         !IsOneOf(node.type(), {"Placeholder", "PlaceholderV2", "CheckNumerics",
                                // Files change between steps.
                                "ReadFile", "MatchingFiles"});
}

// What this node tells beside its op.
bool HasPureTypes(const Node& node) {
  if (node.num_outputs() == 0) return false;
  if (std::any_of(node.input_types().begin(), node.input_types().end(), IsOpaque)) return false;
  if (std::any_of(node.output_types().begin(), node.output_types().end(), IsOpaque)) return false;
  for (const Edge* edge : node.in_edges()) {
    if (!edge->IsControl() && IsOpaque(edge->src->output_types()[edge->src_output])) return false;
  }
  return !HasFunctions(node);
}

}  // namespace

bool IsPure(const Node& node) { return node.IsOp() && MayBePure(node) && HasPureTypes(node); }

bool Purity::operator()(const Node& node) {
  if (!node.IsOp()) return false;
  if (&node.op() != last_op_) {
    const auto [known, added] = ops_.try_emplace(&node.op(), false);
    if (added) known->second = MayBePure(node);
    last_op_ = &node.op();
    last_ = known->second;
  }
  return last_ && HasPureTypes(node);
}

bool IsConst(const Node& node) { return node.type() == "Const"; }

bool HasControlInputs(const Node& node) {
  return std::any_of(node.in_edges().begin(), node.in_edges().end(),
                     [](const Edge* edge) { return edge->IsControl() && edge->src->IsOp(); });
}

bool HasControlOutputs(const Node& node) {
  return std::any_of(node.out_edges().begin(), node.out_edges().end(),
                     [](const Edge* edge) { return edge->IsControl() && edge->dst->IsOp(); });
}

bool HasConsumers(const Node& node) {
  return std::any_of(node.out_edges().begin(), node.out_edges().end(),
                     [](const Edge* edge) { return edge->dst->IsOp(); });
}

std::vector<Node*> InOrder(const DataflowGraph& graph) {
  // A loop has to begin somewhere.
  const auto comes_back = [](const Node& node) {
    return node.type() == "NextIteration" || node.type() == "RefNextIteration";
  };
  std::vector<int> pending(graph.num_node_ids());
  std::vector<Node*> order;
  order.reserve(graph.num_nodes());
  const std::vector<Node*> nodes = graph.OpNodes();
  for (Node* node : nodes) {
    int inputs = 0;
    for (const Edge* edge : node->in_edges()) {
      inputs += edge->src != graph.source() && !comes_back(*edge->src) ? 1 : 0;
    }
    pending[node->id()] = inputs;
    if (inputs == 0) order.push_back(node);
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (comes_back(*order[i])) continue;
    for (const Edge* edge : order[i]->out_edges()) {
      if (edge->dst != graph.sink() && --pending[edge->dst->id()] == 0) order.push_back(edge->dst);
    }
  }
  for (Node* node : nodes) {
    if (pending[node->id()] > 0) order.push_back(node);
  }
  return order;
}

Node* OnlyReader(const Node& node) {
  Node* reader = nullptr;
  for (const Edge* edge : node.out_edges()) {
    if (!edge->dst->IsOp()) continue;
    if (edge->IsControl() || edge->dst_input != 0 || reader != nullptr) return nullptr;
    reader = edge->dst;
  }
  return reader;
}

Status ReplaceChain(const std::vector<Node*>& members, std::string_view op, AttrMap attrs,
                    const std::vector<std::pair<Node*, int>>& inputs, DataflowGraph* graph) {
  const Node* const last = members.back();
  std::vector<Node*> before;
  for (const Node* node : members) {
    for (const Edge* edge : node->in_edges()) {
      if (edge->IsControl() && edge->src->IsOp()) before.push_back(edge->src);
    }
  }
  std::vector<std::pair<Node*, int>> readers;  // -1: waits for it
  for (const Edge* edge : last->out_edges()) {
    if (!edge->dst->IsOp()) continue;
    readers.emplace_back(edge->dst, edge->IsControl() ? -1 : edge->dst_input);
  }
  const std::string name = last->name();
  const InternedString device = last->shared_assigned_device(), origin(last->origin());
  for (Node* node : members) graph->RemoveNode(node);
  MR_ASSIGN_OR_RETURN(Node* const made, graph->AddNode(name, op, std::move(attrs)));
  made->set_assigned_device(device);
  made->set_origin(origin);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    MR_RETURN_IF_ERROR(
        graph->AddEdge(inputs[i].first, inputs[i].second, made, static_cast<int>(i)).status());
  }
  for (const auto& [reader, input] : readers) {
    if (input < 0) {
      graph->AddControlEdge(made, reader);
    } else {
      MR_RETURN_IF_ERROR(graph->AddEdge(made, 0, reader, input).status());
    }
  }
  for (Node* node : before) graph->AddControlEdge(node, made);
  return OkStatus();
}

Status MoveConsumers(Node* node, int from, Node* by, int to, DataflowGraph* graph) {
  std::vector<Edge*> edges;
  for (Edge* edge : node->out_edges()) {
    if (!edge->IsControl() && edge->src_output == from) edges.push_back(edge);
  }
  for (Edge* edge : edges) {
    Node* const dst = edge->dst;
    const int input = edge->dst_input;
    graph->RemoveEdge(edge);
    if (auto added = graph->AddEdge(by, to, dst, input); !added.ok()) return added.status();
  }
  return OkStatus();
}

Status MoveControlOutputs(Node* node, Node* by, DataflowGraph* graph) {
  std::vector<Edge*> edges;
  for (Edge* edge : node->out_edges()) {
    if (edge->IsControl() && edge->dst->IsOp()) edges.push_back(edge);
  }
  for (Edge* edge : edges) {
    Node* const dst = edge->dst;
    graph->RemoveEdge(edge);
    if (dst != by) graph->AddControlEdge(by, dst);
  }
  return OkStatus();
}

void RemoveUnused(Node* node, DataflowGraph* graph) {
  std::vector<int> stack = {node->id()};
  while (!stack.empty()) {
    Node* const unused = graph->node(stack.back());
    stack.pop_back();
    if (unused == nullptr) continue;  // fed two of them
    if (!IsPure(*unused) || HasConsumers(*unused)) continue;
    for (const Edge* edge : unused->in_edges()) {
      if (edge->src->IsOp()) stack.push_back(edge->src->id());
    }
    graph->RemoveNode(unused);
  }
}

}  // namespace millrace::rewrite
