// SPDX-License-Identifier: Apache-2.0
// Loops: which frame each node is in, and what a loop needs to run on several devices.
#ifndef PARTITIONER_CONTROL_FLOW_H_
#define PARTITIONER_CONTROL_FLOW_H_

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/dataflow_graph.h"
#include "millrace/status.h"

namespace millrace {

// A frame is named by its first Enter; _SOURCE stands for the root frame.
struct FrameOfNode {
  const Node* frame = nullptr;
  const Node* parent = nullptr;
  std::string_view name;  // "" in the root frame; the text belongs to the graph
};

// By node id. InvalidArgument if a node has inputs from different frames or an Enter has no
// frame name. Needs every node to be reachable from _SOURCE.
StatusOr<std::vector<FrameOfNode>> FindFrames(const DataflowGraph& graph);

bool IsSwitch(const Node& node);
bool IsMerge(const Node& node);
bool IsEnter(const Node& node);
bool IsExit(const Node& node);
bool IsNextIteration(const Node& node);
bool IsLoopCond(const Node& node);
// True if the graph has any of the ops above.
bool HasControlFlow(const DataflowGraph& graph);

// A control loop's Merge, as AddControlLoops makes it.
bool IsControlLoopMerge(const Node& node);

// How many edges into a node need its device's control loop, and the loop's Merge.
struct LoopControl {
  Node* merge = nullptr;
  int edges = 0;
};

// Moves Switch, Exit, Enter and NextIteration to the devices of their neighbours, and adds to
// `graph` one control loop for each pair of a frame and a device that an edge crosses into.
// The answer is by node id, as of before; the edges from the merges are not added.
StatusOr<std::vector<LoopControl>> AddControlLoops(
    DataflowGraph* graph, const std::function<std::string(std::string_view)>& new_name);

}  // namespace millrace

#endif  // PARTITIONER_CONTROL_FLOW_H_
