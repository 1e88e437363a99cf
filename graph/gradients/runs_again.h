// SPDX-License-Identifier: Apache-2.0
// Whether a function can be run a second time for its derivative.
#ifndef GRAPH_GRADIENTS_RUNS_AGAIN_H_
#define GRAPH_GRADIENTS_RUNS_AGAIN_H_

#include "graph/dataflow_graph.h"
#include "millrace/status.h"

namespace millrace {

// The derivative of a call, branch or loop runs its functions again. Unimplemented, naming node
// and function, if something in them would then give something else: random numbers, a queue, or
// the value of a variable that leads to a result while the function writes to that variable. What
// only reads what it writes (a moving average) is no hindrance.
Status CheckRunsAgain(const Node& node, const DataflowGraph& graph);

}  // namespace millrace

#endif  // GRAPH_GRADIENTS_RUNS_AGAIN_H_
