// SPDX-License-Identifier: Apache-2.0
// What a set of nodes needs, and graphs without the rest.
#ifndef GRAPH_PRUNE_H_
#define GRAPH_PRUNE_H_

#include <span>
#include <vector>

#include "graph/dataflow_graph.h"

namespace millrace {

// By node id: whether the node is one of `from` or one of them depends on it, through data or
// control edges. O(V + E).
std::vector<bool> Ancestors(std::span<Node* const> from, const DataflowGraph& graph);

// Removes every op that none of `kept` depends on. O(V + E).
void PruneTo(std::span<Node* const> kept, DataflowGraph* graph);

}  // namespace millrace

#endif  // GRAPH_PRUNE_H_
