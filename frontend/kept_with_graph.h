// SPDX-License-Identifier: Apache-2.0
// What nodes of a graph need besides the graph.
#ifndef FRONTEND_KEPT_WITH_GRAPH_H_
#define FRONTEND_KEPT_WITH_GRAPH_H_

#include <memory>

namespace millrace {

struct GraphState;  // frontend/graph_builder.h

// `what` lives as long as the graph's nodes, and those of graphs that it is the body of a function
// of. Defined in frontend/graph_builder.cc.
void KeepWithGraph(GraphState* graph, std::shared_ptr<const void> what);

}  // namespace millrace

#endif  // FRONTEND_KEPT_WITH_GRAPH_H_
