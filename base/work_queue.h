// SPDX-License-Identifier: Apache-2.0
// A bounded queue of one producer and many consumers: what a worker of a pool queued itself, in
// order, for itself and for others who have nothing to do.
#ifndef BASE_WORK_QUEUE_H_
#define BASE_WORK_QUEUE_H_

#include <array>
#include <atomic>
#include <cstdint>

#include "base/thread_pool.h"

namespace millrace {

// The array deque of Chase and Lev (2005), of which the producer uses one end only: so there is no
// last element to fight for. Lock-free.
class WorkQueue {
 public:
  // False if there is no room. By the producer only.
  bool Push(ThreadPool::Task task) {
    const uint64_t end = end_.load(std::memory_order_relaxed);
    if (end - begin_.load(std::memory_order_acquire) >= kCapacity) return false;
    Slot& slot = slots_[end % kCapacity];
    slot.run.store(task.run, std::memory_order_relaxed);
    slot.arg.store(task.arg, std::memory_order_relaxed);
    // Sequentially consistent: whoever says that it will park looks here afterwards.
    end_.store(end + 1, std::memory_order_seq_cst);
    return true;
  }

  // The oldest task; false if there is none. By anybody.
  bool Take(ThreadPool::Task* task) {
    uint64_t begin = begin_.load(std::memory_order_acquire);
    for (;;) {
      if (begin >= end_.load(std::memory_order_seq_cst)) return false;
      // Overwritten only when `begin_` has moved on, and then what was read is not used.
      const Slot& slot = slots_[begin % kCapacity];
      task->run = slot.run.load(std::memory_order_relaxed);
      task->arg = slot.arg.load(std::memory_order_relaxed);
      if (begin_.compare_exchange_weak(begin, begin + 1, std::memory_order_acq_rel,
                                       std::memory_order_acquire)) {
        return true;
      }
    }
  }

  bool empty() const {
    return begin_.load(std::memory_order_seq_cst) >= end_.load(std::memory_order_seq_cst);
  }

 private:
  static constexpr uint64_t kCapacity = 256;
  struct Slot {
    std::atomic<void (*)(void*)> run;
    std::atomic<void*> arg;
  };

  alignas(64) std::atomic<uint64_t> begin_{0};  // numbers of tasks; they never wrap around
  alignas(64) std::atomic<uint64_t> end_{0};
  std::array<Slot, kCapacity> slots_;
};

}  // namespace millrace

#endif  // BASE_WORK_QUEUE_H_
