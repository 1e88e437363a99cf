// SPDX-License-Identifier: Apache-2.0
// Makes room around calls whose functions the placer has to look into.
#ifndef GRAPH_FUNCTIONS_ISOLATE_CALLS_H_
#define GRAPH_FUNCTIONS_ISOLATE_CALLS_H_

#include "graph/dataflow_graph.h"
#include "millrace/status.h"

namespace millrace {

// True for a PartitionedCall or StatefulPartitionedCall that returns resources: where these are,
// only its function tells.
bool ReturnsResources(const Node& node);

// Puts an Identity before each input and behind each output of such calls, as TensorFlow does:
// what the function asks of its arguments and results is then asked of the identities, and only
// resources hand it on to their neighbours. Looks at the nodes from `first_node` on, and at what
// they read; what is isolated already stays as it is. The names are those of TensorFlow:
// "<source>_<call>" and "<call>_<consumer>", with "_<n>" if that is taken.
Status IsolateCalls(int first_node, DataflowGraph* graph);

}  // namespace millrace

#endif  // GRAPH_FUNCTIONS_ISOLATE_CALLS_H_
