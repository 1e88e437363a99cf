// SPDX-License-Identifier: Apache-2.0
// The state behind the public Graph: nodes, what is known of their shapes, names in use, the
// first error. First station of the walk of a graph: built here, placed and cut further on.
#ifndef FRONTEND_GRAPH_BUILDER_H_
#define FRONTEND_GRAPH_BUILDER_H_

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/string_map.h"
#include "graph/dataflow_graph.h"
#include "graph/shape_refiner.h"
#include "millrace/graph.h"

namespace millrace {

// The definitions of all ops of this build, filled at first use and then constant.
const OpRegistry& BuiltinOps();

// Not synchronised: one thread builds a graph at a time.
struct GraphState {
  GraphState();

  std::unique_ptr<DataflowGraph> graph;
  ShapeRefiner shapes;
  Status status;
  int64_t seed = 0;          // of the graph
  int64_t last_op_seed = 0;  // of the random ops made so far
  StringMap<int> names_in_use;
  std::map<std::string, std::vector<Output>, std::less<>> collections;

  // `name`, or `name` with the first suffix _1, _2, ... that is free; now in use.
  std::string UniqueName(std::string_view name);
  // Keeps the first error only, with the place of the call appended.
  void RecordError(Status error, std::source_location where);
};

// "train.cc:42", without folders.
std::string FormatOrigin(std::source_location where);

}  // namespace millrace

#endif  // FRONTEND_GRAPH_BUILDER_H_
