// SPDX-License-Identifier: Apache-2.0
// Two plans compared by what they mean.
#ifndef PLANNER_DIFF_H_
#define PLANNER_DIFF_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "graph/dataflow_graph.h"
#include "planner/memory.h"
#include "planner/traffic.h"

namespace millrace {

struct PlanDiff {
  struct NodeChange {
    std::string name, other_name;  // in the first and the second plan; "" where it is not
    std::string op;
    std::string what;  // "DEVICE -> DEVICE", or which attributes and inputs differ
  };
  struct CutEdge {
    std::string tensor;    // "n:0", "^n"
    std::string from, to;  // tasks
    int64_t bytes = -1;    // -1: unknown; 0 for control edges
  };
  struct LinkChange {
    std::string from, to;
    TransferSum before, after;  // if the whole graph runs once
  };
  struct LoadChange {
    TaskLoad before, after;
  };
  std::vector<NodeChange> moved, changed, removed, added;
  std::vector<CutEdge> new_cuts, removed_cuts;  // between nodes that are, or are not, matched
  std::vector<LinkChange> links;
  std::vector<LoadChange> loads;  // of tasks of which the variables differ
  // No differences: the pairs of names of nodes that mean the same.
  std::vector<std::pair<std::string, std::string>> renamed;

  bool IsEmpty() const {
    return moved.empty() && changed.empty() && removed.empty() && added.empty() &&
           new_cuts.empty() && removed_cuts.empty() && links.empty() && loads.empty();
  }
};

// Nodes are matched as MatchNodes says; every list is in the order of the first plan, then of the
// second.
PlanDiff DiffPlans(const DataflowGraph& before, const DataflowGraph& after);

std::string DiffToText(const PlanDiff& diff);
std::string DiffToJson(const PlanDiff& diff);

}  // namespace millrace

#endif  // PLANNER_DIFF_H_
