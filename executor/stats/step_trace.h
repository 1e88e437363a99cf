// SPDX-License-Identifier: Apache-2.0
// The statistics of a step as a picture over time.
#ifndef EXECUTOR_STATS_STEP_TRACE_H_
#define EXECUTOR_STATS_STEP_TRACE_H_

#include <string>
#include <string_view>

#include "proto/step_stats.pb.h"

namespace millrace {

// JSON in the trace event format, for chrome://tracing and ui.perfetto.dev: a process for each
// device, a thread for each of its threads, one slice for each node that ran ("X", from its start
// to its end, with node, op, outputs and bytes), and the bytes of the step's tensors as a counter.
// Each stream of an accelerator is a row beside the threads of its device, with what it ran, for
// which node; what is known to be missing is a label of the device. Times begin with the first
// node.
std::string ChromeTrace(const pb::StepStats& stats);

// The op of a node: "MatMul" where its label is "a/b = MatMul(...)", else the node's name. Lives as
// long as `node` is not changed.
std::string_view OpOf(const pb::NodeExecStats& node);

}  // namespace millrace

#endif  // EXECUTOR_STATS_STEP_TRACE_H_
