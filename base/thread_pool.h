// SPDX-License-Identifier: Apache-2.0
// The engine's threads. A pool with 0 threads runs everything in the calling thread, in
// order: the deterministic reference for tests.
#ifndef BASE_THREAD_POOL_H_
#define BASE_THREAD_POOL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"

namespace millrace {

// Thread-safe. Work that is queued when the pool is destroyed still runs.
class ThreadPool {
 public:
  // A unit of work without an allocation: `run(arg)`.
  struct Task {
    void (*run)(void* arg) = nullptr;
    void* arg = nullptr;
  };

  // `name` prefixes the threads' names (at most 15 characters are kept).
  ThreadPool(std::string name, int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const;

  // Runs the work on some thread of the pool; with 0 threads it has run when this returns.
  // Task form: no allocation of ours in the steady state. What a task throws is logged and dropped:
  // a task with somebody to tell catches it itself (base/exceptions.h).
  void Schedule(Task task);
  void Schedule(std::function<void()> work);
  // The same, behind all that was scheduled from elsewhere before, also if the caller is a thread
  // of this pool, and behind what that thread has queued itself: so that long work can let others
  // have their turn.
  void ScheduleLast(Task task);

  // Splits [0, n) into blocks and calls `body(begin, end)` for each, also on the calling
  // thread; returns when all are done. `cost_per_unit` is a rough number of nanoseconds per
  // element: ranges too cheap to share (under ~20 us in all) run inline. Never waits for
  // queued unrelated work: blocks that no thread has begun are run by the caller. If `body` throws,
  // the blocks that have not begun are skipped and the first exception comes out of this call.
  void ParallelFor(int64_t n, double cost_per_unit,
                   absl::FunctionRef<void(int64_t begin, int64_t end)> body);

  // True on a thread of this pool.
  bool IsCurrentThread() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace

#endif  // BASE_THREAD_POOL_H_
