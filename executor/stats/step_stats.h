// SPDX-License-Identifier: Apache-2.0
// What ran when in one step on one device.
#ifndef EXECUTOR_STATS_STEP_STATS_H_
#define EXECUTOR_STATS_STEP_STATS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "executor/memory/memory_tracker.h"
#include "kernels/kernel_context.h"
#include "proto/step_stats.pb.h"

namespace millrace {

// Wall clock, in nanoseconds; each not before the one above it.
struct NodeTimes {
  int64_t scheduled = 0;
  int64_t all_start = 0;
  int64_t op_start = 0;
  int64_t op_end = 0;
};

// One per device and step, and one per part of a function body that is called in it; a step without
// one pays nothing. Record is thread-safe and takes no lock but with the first node of a thread:
// what it keeps is made a message of by MoveTo.
class StepStatsCollector {
 public:
  explicit StepStatsCollector(std::string device);
  // For a function body that the node `call` runs. Its nodes are told by `caller`, as
  // "CALL/NODE", under `device`. `caller` must outlive it.
  StepStatsCollector(StepStatsCollector* caller, std::string_view call, std::string_view device);
  ~StepStatsCollector();
  StepStatsCollector(const StepStatsCollector&) = delete;
  StepStatsCollector& operator=(const StepStatsCollector&) = delete;

  // A node has run on this thread; all_end is now. `memory`, if not null, is finished. The kernel,
  // and whatever gave the memory, must be there until MoveTo.
  void Record(const Kernel& kernel, const NodeTimes& times, std::span<const EdgeValue> outputs,
              const NodeAllocator* memory = nullptr);
  // Adds all that was recorded since the last call, in the order in which it ended, to the
  // DeviceStepStats of its device, which is added if there is none. Nothing may be recording. Not
  // of a body's collector.
  void MoveTo(pb::StepStats* stats);

 private:
  struct Records;

  const std::unique_ptr<Records> own_;  // null: those of the caller
  Records* const records_;
  const int32_t body_;
};

// The most that tensors made in the step took at one time on the device, in bytes: the largest
// allocator_bytes_in_use of its nodes. 0 if memory was not recorded.
int64_t PeakBytes(const pb::DeviceStepStats& stats);

}  // namespace millrace

#endif  // EXECUTOR_STATS_STEP_STATS_H_
