#include "kernels/background.h"

#include <pthread.h>

#include <cstdint>
#include <deque>
#include <thread>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/mutex.h"

namespace millrace {
namespace {

constexpr int kMostIdleThreads = 16;

struct Work {
  uint64_t owner = 0;
  std::function<void()> run;
  bool run_before = false;
};

// Never destroyed: its threads may outlive main.
struct Threads {
  Mutex mu;
  CondVar work_came, work_ended;
  std::deque<Work> queue ABSL_GUARDED_BY(mu);
  std::size_t idle ABSL_GUARDED_BY(mu) = 0;
  absl::flat_hash_map<uint64_t, int> under_way ABSL_GUARDED_BY(mu);

  static Threads& Get() {
    static auto* const threads = new Threads;
    return *threads;
  }

  void Main() {
    pthread_setname_np(pthread_self(), "background");
    Work work;
    while (Take(&work)) {
      work.run();
      work.run = nullptr;
      work.run_before = true;
    }
  }

  // Says that the previous piece has ended. False: the thread leaves.
  bool Take(Work* work) {
    MutexLock lock(&mu);
    if (work->run_before) {
      const auto it = under_way.find(work->owner);
      if (--it->second == 0) under_way.erase(it);
      work_ended.SignalAll();
    }
    if (queue.empty() && idle >= kMostIdleThreads) return false;
    ++idle;
    while (queue.empty()) work_came.Wait(&mu);
    --idle;
    *work = std::move(queue.front());
    queue.pop_front();
    return true;
  }
};

}  // namespace

void RunInBackground(const Device* device, std::function<void()> work) {
  Threads& threads = Threads::Get();
  {
    MutexLock lock(&threads.mu);
    ++threads.under_way[device->incarnation()];
    threads.queue.push_back({device->incarnation(), std::move(work)});
    if (threads.queue.size() <= threads.idle) {
      threads.work_came.Signal();
      return;
    }
  }
  std::thread([&threads] { threads.Main(); }).detach();
}

void WaitForBackground(const Device* device) {
  Threads& threads = Threads::Get();
  MutexLock lock(&threads.mu);
  while (threads.under_way.contains(device->incarnation())) threads.work_ended.Wait(&threads.mu);
}

}  // namespace millrace
