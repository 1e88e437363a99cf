// SPDX-License-Identifier: Apache-2.0
#include "planner/node_order.h"

#include <functional>
#include <queue>

#include "partitioner/control_flow.h"

namespace millrace {

std::vector<Node*> InOrder(const DataflowGraph& graph) {
  std::vector<int> waits_for(graph.num_node_ids());
  std::priority_queue<int, std::vector<int>, std::greater<int>> ready;
  const std::vector<Node*> nodes = graph.OpNodes();
  for (const Node* node : nodes) {
    for (const Edge* edge : node->in_edges()) {
      waits_for[node->id()] += edge->src->IsOp() && !IsNextIteration(*edge->src);
    }
    if (waits_for[node->id()] == 0) ready.push(node->id());
  }
  std::vector<Node*> order;
  order.reserve(nodes.size());
  std::vector<bool> listed(graph.num_node_ids());
  while (!ready.empty()) {
    Node* const node = graph.node(ready.top());
    ready.pop();
    order.push_back(node);
    listed[node->id()] = true;
    if (IsNextIteration(*node)) continue;
    for (const Edge* edge : node->out_edges()) {
      if (edge->dst->IsOp() && --waits_for[edge->dst->id()] == 0) ready.push(edge->dst->id());
    }
  }
  for (Node* node : nodes) {
    if (!listed[node->id()]) order.push_back(node);
  }
  return order;
}

}  // namespace millrace
