// SPDX-License-Identifier: Apache-2.0
// What the steps of one session may hold together.
#ifndef EXECUTOR_MEMORY_MEMORY_QUOTA_H_
#define EXECUTOR_MEMORY_MEMORY_QUOTA_H_

#include <atomic>
#include <cstdint>

#include "millrace/ref_ptr.h"

namespace millrace {

// Counts bytes that were taken and not yet given back. Thread-safe.
class MemoryQuota final : public RefCounted {
 public:
  explicit MemoryQuota(int64_t limit) : limit_(limit) {}

  int64_t limit() const { return limit_; }
  int64_t used() const { return used_.load(std::memory_order_relaxed); }

  // False, and nothing is taken, if it would go beyond the limit.
  bool Take(int64_t bytes) {
    int64_t used = used_.load(std::memory_order_relaxed);
    do {
      if (bytes > limit_ - used) return false;
    } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
    return true;
  }
  void Give(int64_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }

 private:
  const int64_t limit_;
  std::atomic<int64_t> used_{0};
};

}  // namespace millrace

#endif  // EXECUTOR_MEMORY_MEMORY_QUOTA_H_
