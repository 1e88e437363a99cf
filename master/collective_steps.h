// SPDX-License-Identifier: Apache-2.0
// Steps in which collectives take part: whose ids several masters must agree on.
#ifndef MASTER_COLLECTIVE_STEPS_H_
#define MASTER_COLLECTIVE_STEPS_H_

#include <cstdint>
#include <functional>
#include <string>

#include "base/cancellation.h"
#include "collective/collective_manager.h"
#include "graph/dataflow_graph.h"
#include "master/step.h"
#include "millrace/status.h"

namespace millrace {

// 0 if neither the graph nor a function of its library has a collective; otherwise what
// TensorFlow makes of the instance keys, so that masters with the same collectives agree.
int64_t CollectiveGraphKey(const DataflowGraph& graph);

// The members of a collective that are in one graph agree, so that a mistake is told before
// anything runs: Internal, as at the leader of the group, naming both nodes and what differs.
// Keys that are inputs are compared in the step.
Status VerifyCollectives(const DataflowGraph& graph);

// The id of the next step with this key, by the limits of the step: DeadlineExceeded or Cancelled,
// also if `closing` is. `done` may run before it returns.
void AgreeOnStepId(CollectiveManager* collectives, const std::string& leader, int64_t graph_key,
                   const Step::Limits& limits, CancellationManager* closing,
                   std::function<void(StatusOr<int64_t>)> done);

}  // namespace millrace

#endif  // MASTER_COLLECTIVE_STEPS_H_
