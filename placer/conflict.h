// SPDX-License-Identifier: Apache-2.0
// Why a graph cannot be placed, in as few words as are true.
#ifndef PLACER_CONFLICT_H_
#define PLACER_CONFLICT_H_

#include <functional>
#include <string>

#include "graph/dataflow_graph.h"
#include "millrace/status.h"
#include "placer/placer.h"

namespace millrace {

// Places a graph, without a record and without explaining errors.
using PlacementAttempt = std::function<Status(DataflowGraph* graph, const PlacerInput& input)>;

// To be appended to the error of a graph that `attempt` could not place because of `culprit`:
// a smallest set of constraints that cannot hold together (requests, edges and labels that tie
// nodes to one device, missing kernels; each with the place in the program that made it), such
// that without any one of them there is no error; the devices, each with the constraint that
// refuses it; and what would help. The set is found by asking `attempt` again for ever smaller
// graphs made of the nodes that are tied to the culprit, so it is as right as the placer. Very
// large groups are cut short, which the text then says. "" if the error does not come back.
std::string ExplainConflict(const DataflowGraph& graph, const PlacerInput& input,
                            const Node& culprit, const PlacementAttempt& attempt);

}  // namespace millrace

#endif  // PLACER_CONFLICT_H_
