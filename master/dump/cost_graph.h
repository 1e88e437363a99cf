// SPDX-License-Identifier: Apache-2.0
// What the nodes of a step cost, as a graph: RunMetadata.cost_graph.
#ifndef MASTER_DUMP_COST_GRAPH_H_
#define MASTER_DUMP_COST_GRAPH_H_

#include <cstdint>

#include "proto/config.pb.h"

namespace millrace {

// Whether a session with these options tells the costs of its step number `step` (from 0):
// build_cost_model is every how many, build_cost_model_after how many first ones are left out.
bool WantsCosts(const pb::GraphOptions& options, int64_t step);

// Fills in the cost graph from the partition graphs and step statistics of the same metadata: for
// each partition _SOURCE, _SINK and its nodes, numbered from 0, with microseconds of computing and
// the sizes, types and shapes of what they gave. Nodes without statistics have no costs.
void AddCostGraph(pb::RunMetadata* metadata);

}  // namespace millrace

#endif  // MASTER_DUMP_COST_GRAPH_H_
