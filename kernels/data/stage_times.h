// SPDX-License-Identifier: Apache-2.0
// How long the stages of a data set take, and which of them the program waits for. Of this folder
// alone.
#ifndef KERNELS_DATA_STAGE_TIMES_H_
#define KERNELS_DATA_STAGE_TIMES_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "kernels/data/dataset.h"

namespace millrace {

// What all walks of a stage have taken, with what they took of the stages below on their thread.
// Estimated: the first calls, which fill buffers, are all timed, and then one of many. Thread-safe.
class StageTimes {
 public:
  using Clock = std::chrono::steady_clock;

  // Number of the call that begins now, of all walks; it is timed if IsTimed.
  int64_t Begin() { return calls_.fetch_add(1, std::memory_order_relaxed); }
  static bool IsTimed(int64_t call) { return call < kAlways || call % kOneOf == 0; }
  void Add(int64_t call, Clock::duration taken);

  int64_t calls() const { return calls_.load(std::memory_order_relaxed); }
  std::chrono::nanoseconds total() const;
  Clock::time_point made() const { return made_; }

 private:
  static constexpr int64_t kAlways = 64, kOneOf = 16;
  const Clock::time_point made_ = Clock::now();
  std::atomic<int64_t> calls_{0}, first_ns_{0}, later_{0}, later_ns_{0};
};

// `walk`, which is one of the stage's, timed, and Cancelled once the step is that asks. Leaves out
// elements as it does.
DatasetWalkPtr TimeWalk(DatasetWalkPtr walk, std::shared_ptr<StageTimes> times);

// One line for whoever wonders why a program is slow: what part of the time since `dataset` was
// made it has waited for elements, which stage took most of that, by op and node, and what to try.
// "" if it has waited for less than `least` or a fifth of that time, or if no op has made the data
// set.
std::string SlowestStage(const DatasetValue& dataset, std::chrono::nanoseconds least);

}  // namespace millrace

#endif  // KERNELS_DATA_STAGE_TIMES_H_
