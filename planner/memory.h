// SPDX-License-Identifier: Apache-2.0
// What tasks have to keep: variables, and the values of a step while it runs.
#ifndef PLANNER_MEMORY_H_
#define PLANNER_MEMORY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "graph/dataflow_graph.h"
#include "planner/prepared_run.h"
#include "planner/traffic.h"

namespace millrace {

bool IsVariable(const Node& node);
// What the attributes of a variable say; 0 to unbounded if its shape is not known.
ByteRange VariableBytes(const Node& variable);

struct TaskLoad {
  std::string task;
  int variables = 0, not_exact = 0;
  ByteRange bytes;
};
// The variables of each task that has a node of `placed`, in order of names of tasks.
std::vector<TaskLoad> VariableLoads(const DataflowGraph& placed);

struct TaskMemory {
  TaskLoad variables;  // of the whole graph, whether the run touches them or not
  // The values of a step that are there at one time, whatever the order of nodes: at least the
  // inputs and outputs of the largest node, at most everything that is computed or received.
  ByteRange step;
  // The most at one time if nodes run one after the other, inputs first, otherwise in order of
  // ids, and a value goes after its last reader. Values of unknown size are not in it.
  int64_t in_order = 0;
  int unknown_values = 0;
};
// For each task that has a node of `placed`, in order of names.
std::vector<TaskMemory> PredictMemory(const DataflowGraph& placed, const PlannedRun& run);

}  // namespace millrace

#endif  // PLANNER_MEMORY_H_
