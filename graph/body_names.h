// SPDX-License-Identifier: Apache-2.0
// How the definition of a function writes what its nodes read.
#ifndef GRAPH_BODY_NAMES_H_
#define GRAPH_BODY_NAMES_H_

#include <string>

#include "graph/dataflow_graph.h"
#include "millrace/status.h"

namespace millrace {

// "node:name of the output:index within it". Internal if the node has no such output.
StatusOr<std::string> BodyTensorName(const Node& node, int output);

}  // namespace millrace

#endif  // GRAPH_BODY_NAMES_H_
