// SPDX-License-Identifier: Apache-2.0
// The activities of an accelerator among the statistics of a step.
#ifndef EXECUTOR_STATS_ACTIVITY_STATS_H_
#define EXECUTOR_STATS_ACTIVITY_STATS_H_

#include <string>

#include "device/activity.h"
#include "proto/step_stats.pb.h"

namespace millrace {

// Adds them as TensorFlow does, as if each list were a device: `<device>/stream:N` holds all of one
// stream, `<device>/stream:all` the kernels and fills of all streams, `<device>/memcpy` the copies.
// A kernel is "node:Op", with its function as the label; a copy "node:MEMCPYHtoD", with its bytes
// in the label and as the size of its output. The op is that of the node's own statistics, where
// `stats` has them already; else "unknown". Thread names have the streams' purposes (of thread N),
// and what is missing (of thread 0 of stream:all). Nothing without activities or a shortfall.
void AddActivities(const std::string& device, const ActivityReport& report, pb::StepStats* stats);

}  // namespace millrace

#endif  // EXECUTOR_STATS_ACTIVITY_STATS_H_
