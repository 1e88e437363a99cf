// SPDX-License-Identifier: Apache-2.0
// What one run of a placed graph becomes, worked out by the passes that a session uses.
#ifndef PLANNER_PREPARED_RUN_H_
#define PLANNER_PREPARED_RUN_H_

#include <memory>
#include <string>
#include <vector>

#include "base/string_map.h"
#include "graph/dataflow_graph.h"
#include "graph/shape_refiner.h"
#include "millrace/shape.h"
#include "millrace/status.h"
#include "partitioner/partition.h"

namespace millrace {

struct RunRequest {
  // By name; ":0" may be left out of tensors. Without fetches and targets the whole graph runs.
  std::vector<std::string> feeds{}, fetches{}, targets{};
  // Shapes of fed tensors, where the graph does not tell ("x:0", no ":0" left out).
  StringMap<PartialShape> shapes{};
  // The device at which the client's values come and go: a CPU of the session's task.
  std::string client_device{};
};

// "n" is "n:0".
std::string FullTensorName(const std::string& name);

struct PlannedRun {
  // What the run needs; feeds and fetches are receives and sends (client_terminated).
  std::unique_ptr<DataflowGraph> graph;
  // The same with placeholders for what is fed, and what is known of its shapes. Nodes have
  // the names of `graph`.
  std::unique_ptr<DataflowGraph> typed_graph;
  ShapeRefiner shapes;
  // Cut by task as the master does, and each part by device as its worker does.
  std::vector<Partition> task_parts, device_parts;

  // What is known of an output of a node of `graph`.
  PartialShape shape(const Node& node, int output) const;
};

// `placed` has a device for every node. A feed has the shape that `request` gives it, else the
// one that its node declares. The errors of a session: NotFound for feeds, fetches and targets
// that are not there, InvalidArgument for graphs that cannot be cut, Internal for parts that
// would wait for each other. InvalidArgument for shapes of what is not fed.
StatusOr<PlannedRun> PrepareRun(const DataflowGraph& placed, const RunRequest& request);

}  // namespace millrace

#endif  // PLANNER_PREPARED_RUN_H_
