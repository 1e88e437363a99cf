// SPDX-License-Identifier: Apache-2.0
// A placed graph as one file that a browser shows without a network.
#ifndef PLANNER_HTML_H_
#define PLANNER_HTML_H_

#include <string>
#include <string_view>

#include "graph/dataflow_graph.h"
#include "graph/shape_refiner.h"
#include "planner/graph_source.h"

namespace millrace {

// Every node with its attributes (long ones shortened), the bytes of its outputs and, where
// `explanations` has it, the placer's record. The same text for the same arguments; about 300
// bytes a node.
std::string ToHtml(std::string_view title, const DataflowGraph& graph, const ShapeRefiner& shapes,
                   const StringMap<Explanation>& explanations);

}  // namespace millrace

#endif  // PLANNER_HTML_H_
