// SPDX-License-Identifier: Apache-2.0
// The way from a handle to a scope of its graph.
#ifndef FRONTEND_ROOT_SCOPE_H_
#define FRONTEND_ROOT_SCOPE_H_

#include "millrace/graph.h"

namespace millrace {

// What Graph::root() gives. The state must be that of a living graph.
Scope RootScope(GraphState* state);

}  // namespace millrace

#endif  // FRONTEND_ROOT_SCOPE_H_
