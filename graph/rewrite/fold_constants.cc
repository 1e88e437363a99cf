// SPDX-License-Identifier: Apache-2.0
// Nodes whose inputs are all constants become constants themselves.
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "graph/rewrite/rewrite.h"
#include "graph/rewrite/rewrite_util.h"

namespace millrace {
namespace {

using namespace rewrite;  // NOLINT: the passes' own

bool HasConstantInputs(const Node& node) {
  if (node.num_inputs() == 0) return false;
  for (int i = 0; i < node.num_inputs(); ++i) {
    const Edge* edge = node.input_edge(i);
    if (edge == nullptr || !IsConst(*edge->src)) return false;
  }
  return true;
}

bool IsSmall(const std::vector<Tensor>& values, int64_t limit) {
  int64_t bytes = 0;
  for (const Tensor& value : values) bytes += static_cast<int64_t>(value.num_bytes());
  return bytes <= limit;
}

// A constant in the place of one output. It waits for what the node and its inputs waited for,
// so that it is dead where they were, and belongs to the same loop.
StatusOr<Node*> AddConstant(const Node& node, Tensor value, DataflowGraph* graph) {
  AttrMap attrs;
  attrs.Set("dtype", value.dtype());
  attrs.Set("value", std::move(value));
  MR_ASSIGN_OR_RETURN(Node * constant,
                      graph->AddNode(graph->NewName(node.name()), "Const", std::move(attrs)));
  constant->set_assigned_device(InternedString(node.assigned_device()));
  const auto wait_as = [&](const Node& waiting) {
    for (const Edge* edge : waiting.in_edges()) {
      if (edge->IsControl() && edge->src->IsOp()) graph->AddControlEdge(edge->src, constant);
    }
  };
  wait_as(node);
  for (int i = 0; i < node.num_inputs(); ++i) wait_as(*node.input_edge(i)->src);
  return constant;
}

// A fold takes nodes away, also such as come later.
std::vector<int> IdsInOrder(const DataflowGraph& graph) {
  std::vector<int> ids;
  for (const Node* node : InOrder(graph)) ids.push_back(node->id());
  return ids;
}

}  // namespace

StatusOr<int> FoldConstants(const RewriteOptions& options, const Evaluator& evaluate,
                            DataflowGraph* graph) {
  int folded = 0;
  Purity is_pure;
  for (const int id : IdsInOrder(*graph)) {
    Node* const node = graph->node(id);
    if (node == nullptr) continue;  // went with one that it fed
    if (!HasConstantInputs(*node) || !is_pure(*node) || !HasConsumers(*node)) continue;
    std::vector<Tensor> inputs;
    for (int i = 0; i < node->num_inputs(); ++i) {
      MR_ASSIGN_OR_RETURN(Tensor value, node->input_edge(i)->src->attrs().Get<Tensor>("value"));
      inputs.push_back(std::move(value));
    }
    if (!IsSmall(inputs, options.max_folded_bytes)) continue;
    StatusOr<std::vector<Tensor>> outputs = evaluate(*node, inputs);
    if (!outputs.ok() || static_cast<int>(outputs->size()) != node->num_outputs() ||
        !IsSmall(*outputs, options.max_folded_bytes)) {
      continue;  // what is wrong with it, a step will say
    }
    Node* last = nullptr;
    for (int i = 0; i < node->num_outputs(); ++i) {
      MR_ASSIGN_OR_RETURN(last, AddConstant(*node, std::move((*outputs)[i]), graph));
      MR_RETURN_IF_ERROR(MoveConsumers(node, i, last, 0, graph));
    }
    MR_RETURN_IF_ERROR(MoveControlOutputs(node, last, graph));
    RemoveUnused(node, graph);
    ++folded;
  }
  return folded;
}

}  // namespace millrace
