// SPDX-License-Identifier: Apache-2.0
// Objects that wait to be used again, the last one first.
#ifndef BASE_IDLE_LIST_H_
#define BASE_IDLE_LIST_H_

#include <atomic>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"

namespace millrace {

// A list of T, linked by a member of theirs. One object, which is all that a single thread ever
// needs, waits outside of the lock: taking it and giving it back is one atomic exchange each.
// Thread-safe. Owns what is in it.
template <typename T, T* T::* kNext>
class IdleList {
 public:
  IdleList() = default;
  ~IdleList() {
    while (T* idle = Take()) delete idle;
  }
  IdleList(const IdleList&) = delete;
  IdleList& operator=(const IdleList&) = delete;

  // Null if there is none.
  T* Take() {
    if (first_.load(std::memory_order_relaxed) != nullptr) {
      if (T* first = first_.exchange(nullptr, std::memory_order_acquire)) return first;
    }
    MutexLock lock(&mu_);
    T* const idle = rest_;
    if (idle != nullptr) rest_ = std::exchange(idle->*kNext, nullptr);
    return idle;
  }

  void Keep(T* idle) {
    T* none = nullptr;
    if (first_.load(std::memory_order_relaxed) == nullptr &&
        first_.compare_exchange_strong(none, idle, std::memory_order_release,
                                       std::memory_order_relaxed)) {
      return;
    }
    MutexLock lock(&mu_);
    idle->*kNext = std::exchange(rest_, idle);
  }

 private:
  std::atomic<T*> first_{nullptr};
  Mutex mu_;
  T* rest_ ABSL_GUARDED_BY(mu_) = nullptr;
};

}  // namespace millrace

#endif  // BASE_IDLE_LIST_H_
