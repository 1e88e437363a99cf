// Pictures of graphs, for people.
#ifndef GRAPH_DOT_H_
#define GRAPH_DOT_H_

#include <cstdint>
#include <string>

#include "graph/dataflow_graph.h"
#include "graph/shape_refiner.h"

namespace millrace {

// Bytes of one value of the output; -1 if its shape or type does not tell.
int64_t OutputBytes(const Node& node, int output, const ShapeRefiner& shapes);

// The graph in Graphviz's language, the same text for the same graph. Nodes are grouped by
// task and coloured by device (assigned, else requested); control edges are dashed; an edge
// between devices is bold and says how many bytes it carries ("? B" if unknown); a send is
// joined to the receive of the same tensor by a dotted edge. `shapes` may be null: then no
// sizes are shown.
std::string ToDot(const DataflowGraph& graph, const ShapeRefiner* shapes);

// One line a node in id order: "name = Op(input, input:1, ^control) @ device".
std::string ToText(const DataflowGraph& graph);

}  // namespace millrace

#endif  // GRAPH_DOT_H_
