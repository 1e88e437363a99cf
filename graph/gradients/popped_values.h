// SPDX-License-Identifier: Apache-2.0
// What a loop's derivative needs of the loop it takes off stacks, and no edge leads from a pop to
// the push that it answers. Before such a derivative is differentiated itself, the values are read
// from arrays instead, whose uses hang together by edges.
#ifndef GRAPH_GRADIENTS_POPPED_VALUES_H_
#define GRAPH_GRADIENTS_POPPED_VALUES_H_

#include <span>

#include "millrace/graph.h"
#include "millrace/status.h"

namespace millrace {

// For loops that LoopGradient made and that `ys` depend on, not beyond `xs`. Adds nodes, and moves
// the edges that leave the pops; the values are the same. Pops of other makers stay as they are.
Status ReadPoppedValuesFromArrays(const Scope& scope, std::span<const Output> ys,
                                  std::span<const Output> xs);

}  // namespace millrace

#endif  // GRAPH_GRADIENTS_POPPED_VALUES_H_
