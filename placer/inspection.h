// SPDX-License-Identifier: Apache-2.0
// Looks into the functions of calls that return resources.
#ifndef PLACER_INSPECTION_H_
#define PLACER_INSPECTION_H_

#include <memory>
#include <string>
#include <vector>

#include "base/string_map.h"
#include "graph/dataflow_graph.h"
#include "millrace/status.h"
#include "placer/device_table.h"
#include "placer/placer.h"

namespace millrace {

// What a function asks of its arguments and results. Those of one group must share a device.
struct IoGroups {
  std::string function;
  std::vector<int> of_arg, of_result;  // index in `requests`
  std::vector<GroupConstraints> requests;
};

// For one placement; not synchronised. Each function is looked into once for all of its calls
// with the same attributes, however often these are nested.
class Inspection {
 public:
  Inspection(const PlacerInput& input, DeviceTable* table) : input_(input), table_(table) {}

  // Of the function that `call`, a node of `graph` for which ReturnsResources holds, runs; valid
  // as long as this object. InvalidArgument ("Failed to find function") if there is none, or if
  // it cannot be made into a graph, or if its own nodes cannot be together; Unimplemented
  // ("Recursive function calls are not supported"), with the calls that lead there, if it is
  // looked into already; ResourceExhausted if calls are nested deeper than 100.
  StatusOr<const IoGroups*> Look(const DataflowGraph& graph, const Node& call);

 private:
  struct Frame {
    std::string function;  // that contains the node; "" for the graph
    std::string node;
    std::string callee;
  };
  Status CheckStack(const Node& call, const std::string& callee) const;
  StatusOr<IoGroups> LookInto(const DataflowGraph& graph, const FunctionName& function);

  const PlacerInput& input_;
  DeviceTable* const table_;
  std::vector<Frame> stack_;
  StringMap<std::unique_ptr<IoGroups>> known_;
};

}  // namespace millrace

#endif  // PLACER_INSPECTION_H_
