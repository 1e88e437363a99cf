// SPDX-License-Identifier: Apache-2.0
// Pictures of graphs, for people.
#ifndef GRAPH_DOT_H_
#define GRAPH_DOT_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "graph/dataflow_graph.h"
#include "graph/shape_refiner.h"

namespace millrace {

// Bytes of one value of the output; -1 if its shape or type does not tell.
int64_t OutputBytes(const Node& node, int output, const ShapeRefiner& shapes);

// Bytes of one value of the output; -1 if unknown.
using OutputSize = std::function<int64_t(const Node& node, int output)>;

// Graphs in Graphviz's language, the same text for the same graphs: one graph, or the parts
// that one was cut into. Nodes are grouped by task and coloured by device (assigned, else
// requested); control edges are dashed; an edge between devices is bold and says how many
// bytes it carries ("? B" if unknown). A send is joined by a dotted edge to the receive of the
// same tensor, or to the name of the device where that is if it is not in the picture, and so
// is a receive without its send. `size` may be null: then no sizes are shown.
std::string ToDot(std::span<const DataflowGraph* const> parts, const OutputSize& size);
// Of one graph. `shapes` may be null.
std::string ToDot(const DataflowGraph& graph, const ShapeRefiner* shapes);

// One line a node in id order: "name = Op(input, input:1, ^control) @ device".
std::string ToText(const DataflowGraph& graph);

}  // namespace millrace

#endif  // GRAPH_DOT_H_
