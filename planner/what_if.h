// SPDX-License-Identifier: Apache-2.0
// The same graph with another number of parameter servers.
#ifndef PLANNER_WHAT_IF_H_
#define PLANNER_WHAT_IF_H_

#include "graph/dataflow_graph.h"

namespace millrace {

enum class PsSpread {
  kRoundRobin,   // variables in turn, in order of ids, as TensorFlow's replica_device_setter
  kGreedyBytes,  // each, the largest first, to the task with the fewest bytes
};

// Changes the tasks that nodes ask for with job "ps" to 0 .. num_ps - 1. What belongs to a
// variable (by reference and resource edges, and "loc:@" of _class, slots thus with it) stays
// with it; another node follows the first of its inputs or consumers that was spread, and
// otherwise keeps its task modulo num_ps. Nodes that do not ask for job ps stay as they are.
// Assigned devices are cleared.
void SpreadOverPs(int num_ps, PsSpread how, DataflowGraph* graph);

}  // namespace millrace

#endif  // PLANNER_WHAT_IF_H_
