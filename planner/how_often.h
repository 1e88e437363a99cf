// SPDX-License-Identifier: Apache-2.0
// How often the nodes of a graph run in one step, as far as the graph tells.
#ifndef PLANNER_HOW_OFTEN_H_
#define PLANNER_HOW_OFTEN_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "graph/dataflow_graph.h"

namespace millrace {

enum class HowOften : uint8_t {
  kOnce,   // exactly once
  kMaybe,  // once or not at all: a Switch decides
  kLoop,   // any number of times
};

// Follows Switch and Merge: what joins the two outcomes of one predicate again runs once. A
// value, which does not need the graph any more. Not synchronised.
class StepCount {
 public:
  explicit StepCount(const DataflowGraph& graph);
  // How often an output of this node gets a value (kControlSlot: how often it runs).
  HowOften output(const Node& node, int output) const;

 private:
  // Outcomes that must all happen, sorted: 2 * the number of a predicate + its outcome.
  // kUndecided stands for what cannot be followed.
  using Outcomes = std::vector<int>;
  static constexpr int kUndecided = -1;

  Outcomes OfOutput(const Node& node, int output) const;
  Outcomes OfInputs(const Node& node) const;
  Outcomes OfMerge(const Node& node) const;
  int PredicateOf(const Node& switch_node) const;

  std::vector<Outcomes> outcomes_;  // by node id
  std::vector<int> predicate_;      // of each Switch, -1 for other nodes
  std::vector<bool> in_loop_, leaves_loops_;
};

}  // namespace millrace

#endif  // PLANNER_HOW_OFTEN_H_
