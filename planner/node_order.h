// SPDX-License-Identifier: Apache-2.0
// Nodes after their inputs.
#ifndef PLANNER_NODE_ORDER_H_
#define PLANNER_NODE_ORDER_H_

#include <vector>

#include "graph/dataflow_graph.h"

namespace millrace {

// The op nodes, each after its inputs but for the back edges of loops; among those that could
// come next, the one with the smallest id. Nodes on other circles come last, by id.
std::vector<Node*> InOrder(const DataflowGraph& graph);

}  // namespace millrace

#endif  // PLANNER_NODE_ORDER_H_
