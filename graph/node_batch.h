// SPDX-License-Identifier: Apache-2.0
// Nodes on their way from one graph of this process into another, where a GraphDef would be
// written only to be read again.
#ifndef GRAPH_NODE_BATCH_H_
#define GRAPH_NODE_BATCH_H_

#include <memory>
#include <string>
#include <vector>

#include "graph/dataflow_graph.h"
#include "graph/graph_def_io.h"
#include "millrace/status.h"
#include "proto/graph.pb.h"

namespace millrace {

// Copies of nodes, which share attributes and constants with the originals, and what leads to them
// from nodes that the receiver has already. It owes nothing to the graph that it came from.
struct NodeBatch {
  // An edge from a node that is not in the batch.
  struct Entry {
    std::string source;     // its name
    int source_output = 0;  // kControlSlot: a control edge
    Node* node = nullptr;   // of `graph`
    int input = 0;
  };
  std::unique_ptr<DataflowGraph> graph;
  std::vector<Entry> entries;
};

// The nodes of `graph` from id `first_id` on, as ExportGraphDef gives them in a message; all
// functions. InvalidArgument for what ImportGraphDef would refuse in that message.
StatusOr<NodeBatch> CopyNodes(const DataflowGraph& graph, int first_id);

// Whether nodes can go from `batch` into `graph`, or only as a message: they know the same ops, and
// no function of `graph` is another one there.
bool CanAddNodes(const NodeBatch& batch, const DataflowGraph& graph);

// Adds the nodes to `graph`, all or nothing, with ids and errors as ImportGraphDef's.
// Precondition: CanAddNodes.
Status AddNodes(const NodeBatch& batch, DataflowGraph* graph);

// The batch as a message.
Status ExportNodes(const NodeBatch& batch, const ExportOptions& options, pb::GraphDef* def);

}  // namespace millrace

#endif  // GRAPH_NODE_BATCH_H_
