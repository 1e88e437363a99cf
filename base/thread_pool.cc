// SPDX-License-Identifier: Apache-2.0
#include "base/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/errors.h"
#include "base/exceptions.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/strings.h"
#include "base/work_queue.h"

namespace millrace {
namespace {

// How often an idle thread looks before it parks: about 10 us, less than a wake-up costs.
constexpr int kSpinRounds = 200;
// Where work has come soon after a thread had parked, as between the operations of a step: about
// 100 us more, in which others may have the processor.
constexpr int kMostSpinRounds = 400;
constexpr int64_t kSoonNanos = 200'000;
// A worker looks at what came from elsewhere first in every so many turns.
constexpr uint64_t kTurnsOfOthers = 61;
// Ranges with less work than this are not worth a second thread.
constexpr double kMinParallelNanos = 20'000;
constexpr double kMinBlockNanos = 10'000;
// Blocks per thread: enough for a late thread to find something left to do.
constexpr int64_t kBlocksPerThread = 8;

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Looks until `condition` holds, first closely, then leaving the processor to others in between:
// where there are more threads than processors, what is waited for may need this one. False after
// so many rounds.
template <typename Condition>
bool SpinUntil(const Condition& condition, int rounds) {
  for (int i = 0; i < rounds; ++i) {
    if (condition()) return true;
    if (i < kSpinRounds) {
      Pause();
    } else {
      sched_yield();
    }
  }
  return condition();
}

// A queue that keeps its memory: tasks in a ring that only grows.
class TaskRing {
 public:
  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  void Push(ThreadPool::Task task) {
    if (size_ == ring_.size()) Grow();
    ring_[(head_ + size_++) & (ring_.size() - 1)] = task;
  }
  ThreadPool::Task Pop() {
    const ThreadPool::Task task = ring_[head_];
    head_ = (head_ + 1) & (ring_.size() - 1);
    --size_;
    return task;
  }

 private:
  void Grow() {
    std::vector<ThreadPool::Task> larger(ring_.size() * 2);
    for (std::size_t i = 0; i < size_; ++i) larger[i] = ring_[(head_ + i) & (ring_.size() - 1)];
    ring_.swap(larger);
    head_ = 0;
  }

  std::vector<ThreadPool::Task> ring_ = std::vector<ThreadPool::Task>(64);  // power of two
  std::size_t head_ = 0;
  std::size_t size_ = 0;
};

// The worker that this thread is, if it is one.
struct CurrentWorker {
  const void* pool = nullptr;
  WorkQueue* queue = nullptr;
};
thread_local CurrentWorker current;

}  // namespace

struct ThreadPool::Impl {
  // One ParallelFor: lives until its last helper task has looked at it, which may be after
  // the call returned; then it waits in the pool for the next call. `body` is touched only
  // by whoever claimed a block, and the call does not return before all blocks are done.
  struct Loop {
    Impl* pool = nullptr;
    Loop* next_free = nullptr;
    const absl::FunctionRef<void(int64_t, int64_t)>* body = nullptr;
    int64_t n = 0;
    int64_t block = 0;
    int64_t num_blocks = 0;
    std::atomic<int64_t> next_block{0};
    std::atomic<int> references{0};
    std::atomic<int64_t> blocks_done{0};
    Mutex mu;
    CondVar all_done;
    std::atomic<bool> failed{false};
    std::exception_ptr exception;  // the first; written by whoever set `failed`

    // Claims and runs blocks until none is left.
    void RunBlocks() {
      int64_t ran = 0;
      for (;;) {
        const int64_t i = next_block.fetch_add(1, std::memory_order_relaxed);
        if (i >= num_blocks) break;
        try {
          if (!failed.load(std::memory_order_relaxed)) {
            (*body)(i* block, std::min(n, (i + 1) * block));
          }
        } catch (...) {
          if (!failed.exchange(true)) exception = std::current_exception();
        }
        ++ran;
      }
      if (ran == 0 || blocks_done.fetch_add(ran, std::memory_order_acq_rel) + ran < num_blocks) {
        return;
      }
      // Whoever was about to wait does so by now, or has seen it.
      {
        MutexLock lock(&mu);
      }
      all_done.SignalAll();
    }
    bool AllDone() const { return blocks_done.load(std::memory_order_acquire) == num_blocks; }
    void Wait() {
      if (SpinUntil([this] { return AllDone(); }, kMostSpinRounds)) return;
      MutexLock lock(&mu);
      while (!AllDone()) all_done.Wait(&mu);
    }
  };

  std::string name;
  std::vector<std::thread> threads;
  // What each worker queued itself, and what came from elsewhere or found no room.
  std::vector<std::unique_ptr<WorkQueue>> queues;
  Mutex mu;
  TaskRing shared ABSL_GUARDED_BY(mu);
  std::atomic<std::size_t> num_shared{0};  // its size, for those who look without the lock

  // Workers without work. A thread that says that it is about to stop looking looks once more
  // afterwards, and whoever queues something looks at these counts afterwards: both in one total
  // order, so that one of them sees the other.
  std::atomic<std::size_t> spinning{0}, parked{0};
  std::atomic<int> spin_rounds{kSpinRounds};  // of the next worker that finds nothing
  std::size_t max_spinning = 0;
  CondVar work_cv;
  bool stopping ABSL_GUARDED_BY(mu) = false;

  Mutex loops_mu;
  Loop* free_loops ABSL_GUARDED_BY(loops_mu) = nullptr;

  ~Impl() {
    while (free_loops != nullptr) delete std::exchange(free_loops, free_loops->next_free);
  }

  void Push(Task task, std::size_t copies, bool last = false) {
    std::size_t queued = 0;
    if (current.pool == this && !last) {
      while (queued < copies && current.queue->Push(task)) ++queued;
    }
    if (queued < copies) {
      MutexLock lock(&mu);
      for (; queued < copies; ++queued) shared.Push(task);
      num_shared.store(shared.size(), std::memory_order_seq_cst);
    }
    // A spinning thread is as good as a woken one.
    const std::size_t awake = spinning.load(std::memory_order_seq_cst);
    if (copies > awake) Wake(copies - awake);
  }

  void Wake(std::size_t count) {
    if (parked.load(std::memory_order_seq_cst) == 0) return;
    MutexLock lock(&mu);
    for (count = std::min(count, parked.load(std::memory_order_relaxed)); count > 0; --count) {
      work_cv.Signal();
    }
  }

  bool TakeShared(Task* task) {
    if (num_shared.load(std::memory_order_seq_cst) == 0) return false;
    MutexLock lock(&mu);
    if (shared.empty()) return false;
    *task = shared.Pop();
    num_shared.store(shared.size(), std::memory_order_seq_cst);
    return true;
  }

  // Its own work first, but now and then what came from elsewhere: nobody waits for ever.
  bool Take(std::size_t worker, uint64_t turn, Task* task) {
    if (turn % kTurnsOfOthers == 0 && TakeShared(task)) return true;
    if (queues[worker]->Take(task) || TakeShared(task)) return true;
    for (std::size_t i = 1; i < queues.size(); ++i) {
      if (queues[(worker + i) % queues.size()]->Take(task)) return true;
    }
    return false;
  }

  bool AnyWork() const {
    if (num_shared.load(std::memory_order_seq_cst) > 0) return true;
    for (const auto& queue : queues) {
      if (!queue->empty()) return true;
    }
    return false;
  }

  // Looks for a while. True if there is something to take.
  bool Spin() {
    if (spinning.fetch_add(1, std::memory_order_seq_cst) >= max_spinning) {
      spinning.fetch_sub(1, std::memory_order_seq_cst);
      return AnyWork();
    }
    const bool found =
        SpinUntil([this] { return AnyWork(); }, spin_rounds.load(std::memory_order_relaxed));
    const bool was_last = spinning.fetch_sub(1, std::memory_order_seq_cst) == 1;
    // It was counted on by everybody who queued something meanwhile; there may be more than one.
    if (found && was_last) Wake(1);
    return found || AnyWork();
  }

  // False when the pool is stopping and nothing is queued.
  bool WaitForWork() {
    if (Spin()) return true;
    const int64_t start = SteadyNanos();
    MutexLock lock(&mu);
    parked.fetch_add(1, std::memory_order_seq_cst);
    if (!AnyWork() && !stopping) work_cv.Wait(&mu);
    parked.fetch_sub(1, std::memory_order_seq_cst);
    const bool soon = SteadyNanos() - start < kSoonNanos;
    spin_rounds.store(soon ? kMostSpinRounds : kSpinRounds, std::memory_order_relaxed);
    return !stopping || AnyWork();
  }

  // Nobody waits for what comes out of a task; the thread has others to run.
  void Run(Task task) {
    try {
      task.run(task.arg);
    } catch (...) {
      MR_LOG(kError, "a task of the threads ", name, " was given up: ", Message(CaughtStatus()));
    }
  }

  void ThreadMain(int index) {
    std::string thread_name = StrCat(name, "-", index);
    thread_name.resize(std::min<std::size_t>(thread_name.size(), 15));
    pthread_setname_np(pthread_self(), thread_name.c_str());
    const auto worker = static_cast<std::size_t>(index);
    current = {this, queues[worker].get()};
    Task task;
    for (uint64_t turn = 1;; ++turn) {
      if (Take(worker, turn, &task)) {
        Run(task);
      } else if (!WaitForWork()) {
        return;
      }
    }
  }

  Loop* NewLoop() {
    MutexLock lock(&loops_mu);
    if (free_loops == nullptr) return new Loop;
    return std::exchange(free_loops, free_loops->next_free);
  }

  void Release(Loop* loop) {
    if (loop->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    MutexLock lock(&loops_mu);
    loop->next_free = free_loops;
    free_loops = loop;
  }
};

ThreadPool::ThreadPool(std::string name, int num_threads) : impl_(std::make_unique<Impl>()) {
  impl_->name = std::move(name);
  // With one core, spinning only keeps the one who has the work from running.
  impl_->max_spinning = std::min<std::size_t>(std::thread::hardware_concurrency() / 2,
                                              static_cast<std::size_t>(std::max(num_threads, 0)));
  for (int i = 0; i < num_threads; ++i) impl_->queues.push_back(std::make_unique<WorkQueue>());
  for (int i = 0; i < num_threads; ++i) {
    impl_->threads.emplace_back([impl = impl_.get(), i] { impl->ThreadMain(i); });
  }
}

ThreadPool::~ThreadPool() {
  {
    MutexLock lock(&impl_->mu);
    impl_->stopping = true;
    impl_->work_cv.SignalAll();
  }
  for (std::thread& thread : impl_->threads) thread.join();
}

int ThreadPool::num_threads() const { return static_cast<int>(impl_->threads.size()); }

void ThreadPool::Schedule(Task task) {
  if (impl_->threads.empty()) {
    impl_->Run(task);
  } else {
    impl_->Push(task, 1);
  }
}

void ThreadPool::ScheduleLast(Task task) {
  if (impl_->threads.empty()) {
    impl_->Run(task);
  } else {
    impl_->Push(task, 1, /*last=*/true);
  }
}

void ThreadPool::Schedule(std::function<void()> work) {
  if (impl_->threads.empty()) {
    impl_->Run({[](void* arg) { (*static_cast<std::function<void()>*>(arg))(); }, &work});
    return;
  }
  auto* owned = new std::function<void()>(std::move(work));
  Schedule(Task{[](void* arg) {
                  std::unique_ptr<std::function<void()>> f(
                      static_cast<std::function<void()>*>(arg));
                  (*f)();
                },
                owned});
}

void ThreadPool::ParallelFor(int64_t n, double cost_per_unit,
                             absl::FunctionRef<void(int64_t begin, int64_t end)> body) {
  if (n <= 0) return;
  const double total = static_cast<double>(n) * std::max(cost_per_unit, 0.0);
  if (impl_->threads.empty() || n == 1 || total < kMinParallelNanos) {
    body(0, n);
    return;
  }
  const auto worth = static_cast<int64_t>(std::min(total / kMinBlockNanos, 1e9));
  const int64_t wanted = std::min({n, worth, (num_threads() + 1) * kBlocksPerThread});
  const int64_t block = (n + wanted - 1) / wanted;
  const int64_t num_blocks = (n + block - 1) / block;
  const auto helpers = static_cast<int>(std::min<int64_t>(num_threads(), num_blocks - 1));

  Impl::Loop* loop = impl_->NewLoop();
  loop->pool = impl_.get();
  loop->body = &body;
  loop->n = n;
  loop->block = block;
  loop->num_blocks = num_blocks;
  loop->next_block.store(0, std::memory_order_relaxed);
  loop->references.store(helpers + 1, std::memory_order_relaxed);
  loop->blocks_done.store(0, std::memory_order_relaxed);
  const auto help = [](void* arg) {
    auto* shared = static_cast<Impl::Loop*>(arg);
    shared->RunBlocks();
    shared->pool->Release(shared);
  };
  impl_->Push(Task{help, loop}, static_cast<std::size_t>(helpers));
  loop->RunBlocks();
  loop->Wait();
  std::exception_ptr exception;
  if (loop->failed.load(std::memory_order_relaxed)) [[unlikely]] {
    exception = std::exchange(loop->exception, nullptr);
    loop->failed.store(false, std::memory_order_relaxed);
  }
  impl_->Release(loop);
  if (exception) [[unlikely]]
    std::rethrow_exception(std::move(exception));
}

bool ThreadPool::IsCurrentThread() const { return current.pool == impl_.get(); }

}  // namespace millrace
