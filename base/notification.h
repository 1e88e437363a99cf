// SPDX-License-Identifier: Apache-2.0
// Waiting for something that happens once, or for a number of things.
#ifndef BASE_NOTIFICATION_H_
#define BASE_NOTIFICATION_H_

#include <chrono>

#include "base/mutex.h"

namespace millrace {

using SteadyClock = std::chrono::steady_clock;
using Deadline = SteadyClock::time_point;
inline constexpr Deadline kNoDeadline = Deadline::max();
inline Deadline DeadlineAfter(std::chrono::nanoseconds d) { return SteadyClock::now() + d; }

// Thread-safe. The object may be destroyed by the waiter as soon as its wait returned.
class Notification {
 public:
  void Notify() {
    MutexLock lock(&mu_);
    notified_ = true;
    cv_.SignalAll();
  }
  bool HasBeenNotified() const {
    MutexLock lock(&mu_);
    return notified_;
  }
  // False if the deadline passed first.
  [[nodiscard]] bool WaitUntil(Deadline deadline) {
    MutexLock lock(&mu_);
    while (!notified_) {
      if (deadline == kNoDeadline) {
        cv_.Wait(&mu_);
      } else if (!cv_.WaitUntil(&mu_, deadline)) {
        return notified_;
      }
    }
    return true;
  }
  // Only for waits whose end is certain (our own callbacks, joined threads).
  void Wait() { (void)WaitUntil(kNoDeadline); }

 private:
  mutable Mutex mu_;
  CondVar cv_;
  bool notified_ ABSL_GUARDED_BY(mu_) = false;
};

// Counts down to zero. Thread-safe.
class BlockingCounter {
 public:
  explicit BlockingCounter(int count) : count_(count) {}
  void DecrementCount() {
    MutexLock lock(&mu_);
    if (--count_ == 0) cv_.SignalAll();
  }
  [[nodiscard]] bool WaitUntil(Deadline deadline) {
    MutexLock lock(&mu_);
    while (count_ > 0) {
      if (deadline == kNoDeadline) {
        cv_.Wait(&mu_);
      } else if (!cv_.WaitUntil(&mu_, deadline)) {
        return count_ <= 0;
      }
    }
    return true;
  }
  void Wait() { (void)WaitUntil(kNoDeadline); }

 private:
  Mutex mu_;
  CondVar cv_;
  int count_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace

#endif  // BASE_NOTIFICATION_H_
