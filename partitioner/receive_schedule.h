// SPDX-License-Identifier: Apache-2.0
// Holds receives back until shortly before their values are needed, so that tensors that are
// needed late do not wait in memory from the start of a step.
#ifndef PARTITIONER_RECEIVE_SCHEDULE_H_
#define PARTITIONER_RECEIVE_SCHEDULE_H_

#include <vector>

#include "graph/dataflow_graph.h"
#include "millrace/status.h"
#include "partitioner/partition.h"

namespace millrace {

// The time at which each node could start at the earliest, by node id, if every op took one unit
// of time and a value from elsewhere `transfer` units. Empty if the graph has loops: how often
// they turn is not known. O(V + E).
std::vector<int> EarliestStarts(const DataflowGraph& graph, int transfer = 1);

// Divides a step into 100 epochs of equal length. On each device of each part, a receive that
// belongs into the seventh epoch or a later one waits for a ControlTrigger "synch_<epoch>" that
// runs when all nodes of the device that start up to six epochs before it have run. `starts` is by
// id of the nodes of the graph that was cut (EarliestStarts), a receive starts when the first of
// its consumers does. Nothing is changed if `starts` is empty. Never makes a cycle: an edge is only
// added from what starts earlier to what starts later.
Status ScheduleReceives(const DataflowGraph& graph, const std::vector<int>& starts,
                        std::vector<Partition>* parts);

}  // namespace millrace

#endif  // PARTITIONER_RECEIVE_SCHEDULE_H_
