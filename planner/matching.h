// SPDX-License-Identifier: Apache-2.0
// Which node of one graph is which node of another, whatever they are called.
#ifndef PLANNER_MATCHING_H_
#define PLANNER_MATCHING_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "graph/dataflow_graph.h"

namespace millrace {

// What a graph means: nodes without names. Node numbers count the op nodes in order of ids.
struct MeaningGraph {
  struct Use {
    int node, slot;  // slot -1: control
    friend auto operator<=>(const Use&, const Use&) = default;
  };
  struct Vertex {
    const Node* node = nullptr;
    std::string op;      // of a function: what it does, not its name
    std::string device;  // canonical
    // Name and text, but for defaults and what only names something: places in the program,
    // nodes (these are `classes`), functions, the keys of sends and receives.
    std::vector<std::pair<std::string, std::string>> attrs;
    std::vector<Use> inputs;    // by slot
    std::vector<int> controls;  // sorted
    // What "loc:@" of _class says, sorted: nodes, and one number for each label that is no node
    // (from the number of nodes on).
    std::vector<int> classes;
  };
  std::vector<Vertex> vertices;
  int num_labels = 0;
};
MeaningGraph MeaningOf(const DataflowGraph& placed);

// For each node of `a` its counterpart in `b`, or -1. No node has two.
//
// Nodes are counterparts if hashes of all that is before and after them, devices included, agree;
// then, if they agree without devices; then, if names, ops and attributes do; then, if the
// hashes of what is up to three, two and one edges away do, where what is matched already counts
// as the same; then, if names and ops do. Where several have the same hash, equal names decide,
// then the matched neighbours, then the order of nodes. A graph of which only names, the order
// of nodes, and the spelling of devices changed is matched wholly, unless it has symmetries that
// hashes cannot see through. O(V + E) but for sorting.
std::vector<int> MatchNodes(const MeaningGraph& a, const MeaningGraph& b);

}  // namespace millrace

#endif  // PLANNER_MATCHING_H_
