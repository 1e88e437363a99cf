// SPDX-License-Identifier: Apache-2.0
// What the statistics of a step tell (RunOptions.trace, RunMetadata.step_stats; docs/memory.md).
#ifndef MILLRACE_STEP_TRACE_H_
#define MILLRACE_STEP_TRACE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "millrace/status.h"

namespace millrace {

// The step over time, as JSON for chrome://tracing and ui.perfetto.dev: a slice for each node that
// ran, in its device and thread, with op, outputs and bytes, and the memory of the step.
// InvalidArgument if these are no step statistics.
StatusOr<std::string> StepTrace(std::string_view step_stats);

// The same into a file, which is replaced. The error of the file system, with the name.
Status WriteStepTrace(std::string_view step_stats, const std::string& file);

// The most bytes that tensors made in the step took at one time on one device, of the device where
// it is most. InvalidArgument if these are no step statistics.
StatusOr<int64_t> StepPeakBytes(std::string_view step_stats);

}  // namespace millrace

#endif  // MILLRACE_STEP_TRACE_H_
