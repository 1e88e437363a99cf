// SPDX-License-Identifier: Apache-2.0
// GraphDef messages in and out of graphs.
#ifndef GRAPH_GRAPH_DEF_IO_H_
#define GRAPH_GRAPH_DEF_IO_H_

#include <string>
#include <string_view>

#include "graph/dataflow_graph.h"
#include "millrace/status.h"
#include "proto/graph.pb.h"

namespace millrace {

// The graph version that this engine produces and consumes, in TensorFlow's count.
inline constexpr int kGraphVersion = 2474;
inline constexpr int kGraphVersionMinProducer = 0;

struct ImportOptions {
  // Accept node names that start with '_': parts of graphs that a master cut, not what a
  // client sent.
  bool internal_names = false;
  // The device field is the placer's decision: it becomes the assigned device too.
  bool devices_are_assigned = false;
};

// Adds the nodes of `def` to `graph`, which may hold nodes already (their outputs may be
// inputs here; their names may not be used again). Nodes may stand in any order. Either all
// of `def` is added or, on an error, nothing. Unknown attributes are logged and kept.
//
// Node and edge ids follow TensorFlow's order: nodes as listed, but after their inputs;
// edges with their destination, data before control; loop back edges last.
//
// InvalidArgument: names or inputs against the grammar ("Illegal op name", "Illegal op input
// name"), a name "is not unique", "Unknown input node", control inputs before data inputs,
// attributes or types that do not fit the op, cycles without a loop, versions that this
// engine must not read. NotFound: "Op type not registered".
Status ImportGraphDef(const ImportOptions& options, const pb::GraphDef& def, DataflowGraph* graph);

// Attributes that stand for Node::origin and Node::device_origin in a message.
inline constexpr char kOriginAttr[] = "_origin";
inline constexpr char kDeviceOriginAttr[] = "_device_origin";

struct ExportOptions {
  // Say in two attributes more where the node was made and how it came to ask for its device:
  // whoever imports it can then tell the user. Other programs ignore them.
  bool origins = false;
  // Leave out attributes that equal their default (what a master sends to workers).
  bool strip_default_attrs = false;
  // Only nodes from this id on, without the functions: what extends a graph that somebody has
  // got already. Costs what is new, not what is there.
  int first_id = 0;
};

// The graph as a message, the same for the same graph: nodes in id order; data inputs by
// slot, then control inputs by name. The device of a placed node is its assigned device.
// InvalidArgument if an input is not connected.
Status ExportGraphDef(const DataflowGraph& graph, const ExportOptions& options, pb::GraphDef* def);
// One node, without its inputs.
void ExportNode(const Node& node, const ExportOptions& options, pb::NodeDef* def);

// InvalidArgument unless this engine may read a graph of these versions.
Status CheckVersions(const pb::VersionDef& versions);
// The versions of `graph` with nodes of a graph of versions `added`; InvalidArgument if they do not
// go together.
StatusOr<pb::VersionDef> VersionsWith(const DataflowGraph& graph, const pb::VersionDef& added);
// Unimplemented if graphs of this producer have no such op any more.
Status CheckOpVersion(const Node& node, int producer);
// Whether an input of `node` from `source` closes a loop: the node is ready without it.
bool ClosesLoop(const Node& source, const Node& node);

}  // namespace millrace

#endif  // GRAPH_GRAPH_DEF_IO_H_
