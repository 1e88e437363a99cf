// SPDX-License-Identifier: Apache-2.0
// Graphs that are bodies of functions while they are built: what their nodes use of other graphs
// is brought inside. Implemented beside graphs (graph_builder.cc), whose own headers do not have
// this: most of the engine is compiled anew when those change.
#ifndef FRONTEND_FUNCTION_SCOPE_H_
#define FRONTEND_FUNCTION_SCOPE_H_

#include <functional>
#include <memory>

#include "millrace/graph.h"

namespace millrace {

// What stands in a body for an output of another graph; InvalidArgument if that cannot be used.
using CaptureFunction = std::function<StatusOr<Output>(const Output& from)>;

// From now on `body` is a body within `outer`, which must live as long as nodes are added to the
// body; null: within no graph. Without a capture: it is a body no more.
void SetBody(GraphState* body, GraphState* outer, CaptureFunction capture);
bool IsBody(GraphState* graph);
// The graph around a body; null if there is none.
GraphState* OuterGraph(GraphState* body);

// `output` itself if it is of this graph, else what stands for it there; InvalidArgument if it may
// not be used there.
StatusOr<Output> BroughtInside(GraphState* graph, const Output& output);

// Handles to nodes of `body` stay harmless as long as `graph` lives.
void KeepBody(GraphState* graph, std::shared_ptr<GraphState> body);

}  // namespace millrace

#endif  // FRONTEND_FUNCTION_SCOPE_H_
