// SPDX-License-Identifier: Apache-2.0
// The while loops of a graph, made of Enter, Merge, Switch, NextIteration and Exit.
#ifndef GRAPH_GRADIENTS_FIND_LOOPS_H_
#define GRAPH_GRADIENTS_FIND_LOOPS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "graph/dataflow_graph.h"
#include "millrace/status.h"

namespace millrace {

// An outermost loop.
struct Loop {
  struct Variable {
    Node* enter = nullptr;
    Node* merge = nullptr;
    Node* branch = nullptr;  // the Switch
    Node* next = nullptr;    // the NextIteration
    Node* exit = nullptr;    // one; null if nobody wanted the last value
  };
  std::string frame;
  int64_t parallel_iterations = 10;
  std::vector<Variable> variables;
  std::vector<Node*> invariants;  // constant Enters
  Node* condition = nullptr;      // LoopCond
  Status well_formed;             // else what is wrong; such a loop has no derivative
};

struct Loops {
  std::vector<Loop> loops;
  std::vector<int> loop_of;  // by node id: the outermost loop that the node is in, -1 for none
};

// The loops among the nodes with ids below `num_ids`.
Loops FindLoops(const DataflowGraph& graph, int num_ids);

}  // namespace millrace

#endif  // GRAPH_GRADIENTS_FIND_LOOPS_H_
