// SPDX-License-Identifier: Apache-2.0
#include "graph/prune.h"

namespace millrace {

std::vector<bool> Ancestors(std::span<Node* const> from, const DataflowGraph& graph) {
  std::vector<bool> reached(graph.num_node_ids());
  std::vector<Node*> stack(from.begin(), from.end());
  while (!stack.empty()) {
    Node* const node = stack.back();
    stack.pop_back();
    if (reached[node->id()]) continue;
    reached[node->id()] = true;
    for (const Edge* edge : node->in_edges()) stack.push_back(edge->src);
  }
  return reached;
}

void PruneTo(std::span<Node* const> kept, DataflowGraph* graph) {
  const std::vector<bool> needed = Ancestors(kept, *graph);
  for (Node* node : graph->OpNodes()) {
    if (!needed[node->id()]) graph->RemoveNode(node);
  }
  graph->FixSourceAndSink();
}

}  // namespace millrace
