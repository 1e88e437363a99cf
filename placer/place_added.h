// SPDX-License-Identifier: Apache-2.0
// Places nodes that were added to a graph whose other nodes are placed, without looking at those.
#ifndef PLACER_PLACE_ADDED_H_
#define PLACER_PLACE_ADDED_H_

#include "base/string_map.h"
#include "graph/dataflow_graph.h"
#include "millrace/status.h"
#include "placer/placer.h"

namespace millrace {

// True if the nodes from `first_node` on are now placed as they would be if all nodes that are
// not stateful were placed again: the others then stay where they are. False, and nothing is
// changed, if that cannot be told from the new nodes and their inputs: they ask for the company
// of old nodes, say, or an old constant would have to follow them. `labels` are those of the old
// nodes (CollectLabels). Errors as Place; `log` may
// be null. Costs as much as there are new nodes and edges.
StatusOr<bool> PlaceAdded(DataflowGraph* graph, int first_node, const StringSet& labels,
                          const PlacerInput& input, PlacementLog* log);

// Adds the labels of attribute _class of the nodes from `first_node` to before `end_node`.
void CollectLabels(const DataflowGraph& graph, int first_node, int end_node, StringSet* labels);

}  // namespace millrace

#endif  // PLACER_PLACE_ADDED_H_
