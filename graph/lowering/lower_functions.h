// SPDX-License-Identifier: Apache-2.0
// Calls of functions before anything is placed: bodies take the place of calls, so that their
// nodes are placed, cut and run like any others.
#ifndef GRAPH_LOWERING_LOWER_FUNCTIONS_H_
#define GRAPH_LOWERING_LOWER_FUNCTIONS_H_

#include <cstdint>
#include <memory>
#include <string_view>

#include "base/string_map.h"
#include "graph/dataflow_graph.h"
#include "graph/functions/function_body.h"
#include "millrace/status.h"

namespace millrace {

// Bodies that were made for one library; those of another one are made anew. Not synchronised.
class FunctionBodies {
 public:
  // The body of a function, or of its gradient; null if it cannot be made. It lives until
  // the library changes.
  const FunctionBody* Find(const DataflowGraph& graph, const FunctionName& function,
                           bool gradient = false);

 private:
  std::shared_ptr<const FunctionLibrary> library_;
  StringMap<std::unique_ptr<FunctionBody>> bodies_;
};

struct LoweringOptions {
  int first_node = 2;  // only nodes from this id on, and what comes out of them
  // No more nodes than these are added: the calls that remain are made when they are run.
  int64_t max_added_nodes = int64_t{1} << 15;
  // Functions that say _noinline are put in too, and branches and loops that do not ask for it.
  bool everything = false;
  // Branches and loops stay, whatever they ask for, unless a body asks for another task.
  bool keep_control_flow = false;
};

// Puts in place of
//   PartitionedCall, StatefulPartitionedCall   the function's body, whose nodes keep the devices
//                                              that they ask for, as far as they say
//   a call by name, SymbolicGradient           the body, all of it at the call's device
//   If, While, Case and their stateless kin    Switch, Merge, Enter..., if the node says
//                                              _lower_using_switch_merge or a body asks for
//                                              another task
// A node of the call's name remains. Calls stay where a function says _noinline, calls itself,
// cannot be made into a graph (running it says why), or hides effects in branches; a call by
// name is then a PartitionedCall or StatefulPartitionedCall with kOnOneDevice. Those that stay and
// return resources are isolated (isolate_calls.h).
// `bodies` may be null.
Status LowerFunctions(const LoweringOptions& options, FunctionBodies* bodies, DataflowGraph* graph);

// The same within a body; what neither has effects nor leads to a result goes.
Status LowerBody(FunctionBodies* bodies, FunctionBody* body, const LoweringOptions& options = {});

// Of a call that was by name: all of the body runs where the call does.
inline constexpr char kOnOneDevice[] = "_on_one_device";

}  // namespace millrace

#endif  // GRAPH_LOWERING_LOWER_FUNCTIONS_H_
