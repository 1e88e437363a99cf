// SPDX-License-Identifier: Apache-2.0
// What a run of one node takes, once more: as the body of a loop that makes many such runs.
#ifndef FRONTEND_SUBGRAPH_COPY_H_
#define FRONTEND_SUBGRAPH_COPY_H_

#include <span>
#include <utility>

#include "millrace/graph.h"
#include "millrace/status.h"

namespace millrace {

// An output of the graph, and what the copies read in its place.
using OutputReplacement = std::pair<Output, Output>;

// Copies `target` and all nodes that it needs, with names beside that of `pivot`, and returns the
// copy of `target`. Not copied, but read as they are: constants and handles of resources that need
// nothing, and what is replaced. What would run on its own runs after `pivot`. InvalidArgument for
// a placeholder that is not replaced.
StatusOr<Operation> CopySubgraph(const Operation& target,
                                 std::span<const OutputReplacement> replacements,
                                 const Operation& pivot);

// Whether all nodes that `target` needs may run in the caller's task: none asks for a job or task.
bool AsksForNoTask(const Operation& target);

}  // namespace millrace

#endif  // FRONTEND_SUBGRAPH_COPY_H_
