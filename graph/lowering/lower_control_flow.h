// SPDX-License-Identifier: Apache-2.0
// Branches and loops of functions as Switch, Merge, Enter, Exit and NextIteration: these can
// span devices and tasks, and run as far as their inputs allow.
#ifndef GRAPH_LOWERING_LOWER_CONTROL_FLOW_H_
#define GRAPH_LOWERING_LOWER_CONTROL_FLOW_H_

#include <memory>
#include <vector>

#include "graph/dataflow_graph.h"
#include "graph/functions/function_body.h"
#include "millrace/status.h"

namespace millrace {

// Each replaces `node` as ReplaceNode (function_inline.h) does. All bodies must be such that
// CanInline. InvalidArgument if their types do not fit the node's; the graph may be half
// changed then.

// If, StatelessIf (input 0 chooses): bodies else, then. Case, StatelessCase: the branches by
// number; a number out of range means the last one.
Status LowerBranches(Node* node, const std::vector<const FunctionBody*>& branches,
                     DataflowGraph* graph);
// While, StatelessWhile.
Status LowerWhile(Node* node, const FunctionBody& cond, const FunctionBody& body,
                  DataflowGraph* graph);

}  // namespace millrace

#endif  // GRAPH_LOWERING_LOWER_CONTROL_FLOW_H_
