// SPDX-License-Identifier: Apache-2.0
// Derivatives of while loops. A loop of Enter, Merge, Switch, NextIteration and Exit is taken as
// one thing. Its derivative is another loop, which runs as often and the other way round: each
// of its iterations computes the body again from what the forward loop kept of the same
// iteration (the loop's variables, and what stateful ops gave), and from there the derivative.
#ifndef GRAPH_GRADIENTS_LOOP_GRAD_H_
#define GRAPH_GRADIENTS_LOOP_GRAD_H_

#include <functional>
#include <string>
#include <vector>

#include "graph/gradients/find_loops.h"
#include "millrace/graph.h"
#include "millrace/status.h"

namespace millrace {

// What arrives at the sources of the loop's Enters, given what arrives at its Exits: `dys` by
// variable, not valid for nothing. `wanted` says of which sources to tell `add`. Unimplemented
// if an op in the body has no gradient, or would give something else when it runs again.
// `source`: GradContext::source().
Status LoopGradient(const std::string& source, const Scope& scope, const Loops& loops, int loop,
                    const std::vector<Output>& dys,
                    const std::function<bool(const Output& source)>& wanted,
                    const std::function<void(const Output& source, const Output& dx)>& add);

}  // namespace millrace

#endif  // GRAPH_GRADIENTS_LOOP_GRAD_H_
