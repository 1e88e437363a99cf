// What ran when in one step on one device.
#ifndef EXECUTOR_STEP_STATS_H_
#define EXECUTOR_STEP_STATS_H_

#include <cstdint>
#include <span>
#include <string>

#include "base/mutex.h"
#include "executor/memory_tracker.h"
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

// Thread-safe. One per device and step; a step without one pays nothing.
class StepStatsCollector {
 public:
  explicit StepStatsCollector(std::string device);

  // A node has run on this thread; all_end is now. `memory`, if not null, is finished.
  void Record(const Kernel& kernel, const NodeTimes& times, std::span<const EdgeValue> outputs,
              const NodeAllocator* memory = nullptr);
  // Adds one DeviceStepStats with all that was recorded since the last call.
  void MoveTo(pb::StepStats* stats);

 private:
  Mutex mu_;
  const std::string device_;
  pb::DeviceStepStats stats_ ABSL_GUARDED_BY(mu_);
};

// The most that tensors made in the step took at one time on the device, in bytes: the largest
// allocator_bytes_in_use of its nodes. 0 if memory was not recorded.
int64_t PeakBytes(const pb::DeviceStepStats& stats);

}  // namespace millrace

#endif  // EXECUTOR_STEP_STATS_H_
