// SPDX-License-Identifier: Apache-2.0
// A step over time with what belongs together in it.
#ifndef TRAINING_HOOKS_TIMELINE_H_
#define TRAINING_HOOKS_TIMELINE_H_

#include <string>

#include "millrace/graph.h"
#include "millrace/status.h"

namespace millrace::hooks {

// `trace`, as StepTrace makes it of a step of the graph: with arrows from ops to those that use
// their values if `dataflow`, without counters of bytes unless `memory`.
StatusOr<std::string> Timeline(const std::string& trace, const Graph& graph, bool dataflow,
                               bool memory);

}  // namespace millrace::hooks

#endif  // TRAINING_HOOKS_TIMELINE_H_
