// SPDX-License-Identifier: Apache-2.0
// What a task gets from each other task, and how long it waits for it.
#ifndef OBSERVE_PEER_TRAFFIC_H_
#define OBSERVE_PEER_TRAFFIC_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "observe/metrics.h"

namespace millrace {

// Thread-safe.
struct PeerStats {
  std::string task, address;
  Counter received_bytes;             // of tensors, those of collectives included
  Counter collective_bytes;           // of those the parts that collectives exchange
  Counter receives_begun;             // values that were asked for
  Histogram receives;                 // and came: how long they took
  Counter calls_begun, failed_calls;  // of all kinds
  Counter calls_ended;
  std::atomic<int64_t> last_heard{0};  // by SteadyNanos; 0: never

  // It has answered, or called.
  void Heard() { last_heard.store(SteadyNanos(), std::memory_order_relaxed); }
};

// The tasks of a cluster, which are known beforehand. Thread-safe.
class PeerTraffic {
 public:
  // Address by task.
  explicit PeerTraffic(const std::map<std::string, std::string>& tasks) {
    for (const auto& [task, address] : tasks) {
      PeerStats& stats = peers_.emplace_back();
      stats.task = task;
      stats.address = address;
      by_task_[task] = &stats;
    }
  }
  // Null if the cluster has no such task.
  PeerStats* Find(std::string_view task) {
    const auto it = by_task_.find(task);
    return it == by_task_.end() ? nullptr : it->second;
  }
  const std::deque<PeerStats>& peers() const { return peers_; }

 private:
  std::deque<PeerStats> peers_;
  std::map<std::string, PeerStats*, std::less<>> by_task_;
};

}  // namespace millrace

#endif  // OBSERVE_PEER_TRAFFIC_H_
