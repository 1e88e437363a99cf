// SPDX-License-Identifier: Apache-2.0
// How big a graph may be where it becomes a message: protobuf ends at 2 GiB, and what is beyond
// is written as nothing at all.
#ifndef GRAPH_GRAPH_DEF_SIZE_H_
#define GRAPH_GRAPH_DEF_SIZE_H_

#include <string>

#include "graph/dataflow_graph.h"
#include "millrace/status.h"
#include "proto/graph.pb.h"

namespace millrace {

// InvalidArgument if the nodes from `first_id` on do not fit into a message, with the biggest
// constants and what to do. Counts their tensors, without making any message.
Status CheckMessageSize(const DataflowGraph& graph, int first_id);

// The message as bytes, with the same error.
Status SerializeGraphDef(const pb::GraphDef& def, std::string* bytes);

}  // namespace millrace

#endif  // GRAPH_GRAPH_DEF_SIZE_H_
