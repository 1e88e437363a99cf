// SPDX-License-Identifier: Apache-2.0
#include "kernels/background.h"

#include <pthread.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <thread>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/errors.h"
#include "base/exceptions.h"
#include "base/log.h"
#include "base/mutex.h"

namespace millrace {
namespace {

constexpr int kMostIdleThreads = 16;

struct Work {
  uint64_t id = 0;
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
  int count ABSL_GUARDED_BY(mu) = 0;
  uint64_t last_id ABSL_GUARDED_BY(mu) = 0;
  absl::flat_hash_map<uint64_t, int> under_way ABSL_GUARDED_BY(mu);

  static Threads& Get() {
    static auto* const threads = new Threads;
    return *threads;
  }

  void Main() {
    pthread_setname_np(pthread_self(), "background");
    Work work;
    while (Take(&work)) {
      try {
        work.run();
      } catch (...) {
        MR_LOG(kError, "work in the background was given up: ", Message(CaughtStatus()));
      }
      work.run = nullptr;
      work.run_before = true;
    }
  }

  void EndOne(uint64_t owner) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    const auto it = under_way.find(owner);
    if (--it->second == 0) under_way.erase(it);
    work_ended.SignalAll();
  }

  // Says that the previous piece has ended. False: the thread leaves.
  bool Take(Work* work) {
    MutexLock lock(&mu);
    if (work->run_before) EndOne(work->owner);
    if (queue.empty() && idle >= kMostIdleThreads) {
      --count;
      return false;
    }
    ++idle;
    while (queue.empty()) work_came.Wait(&mu);
    --idle;
    *work = std::move(queue.front());
    queue.pop_front();
    return true;
  }

  // A thread that is counted already. It may come to any piece of the queue.
  Status Start() {
    try {
      std::thread([this] { Main(); }).detach();
      return OkStatus();
    } catch (...) {
      MutexLock lock(&mu);
      --count;
      return CaughtStatus();
    }
  }

  // False if another thread has come to the piece meanwhile.
  bool Withdraw(uint64_t id) {
    Work withdrawn;  // ends without the lock
    MutexLock lock(&mu);
    const auto it = std::find_if(queue.begin(), queue.end(),
                                 [id](const Work& piece) { return piece.id == id; });
    if (it == queue.end()) return false;
    withdrawn = std::move(*it);
    queue.erase(it);
    EndOne(withdrawn.owner);
    return true;
  }
};

}  // namespace

Status RunInBackground(const Device* device, std::function<void()> work) {
  Threads& threads = Threads::Get();
  uint64_t id = 0;
  bool may_start = false;
  {
    MutexLock lock(&threads.mu);
    id = ++threads.last_id;
    ++threads.under_way[device->incarnation()];
    threads.queue.push_back({id, device->incarnation(), std::move(work)});
    if (threads.queue.size() <= threads.idle) {
      threads.work_came.Signal();
      return OkStatus();
    }
    may_start = threads.count < kMostBackgroundThreads;
    if (may_start) ++threads.count;
  }
  const Status started =
      may_start ? threads.Start()
                : errors::ResourceExhausted("there are already ", kMostBackgroundThreads);
  if (started.ok() || !threads.Withdraw(id)) return OkStatus();
  return errors::ResourceExhausted("no thread for work in the background of ", device->name(), ": ",
                                   Message(started),
                                   "; let fewer steps wait for data sets at a time");
}

void ComputeInBackground(const Device* device, DoneCallback done, std::function<Status()> compute) {
  const Status begun =
      RunInBackground(device, [done, compute = std::move(compute)] { done(Guarded(compute)); });
  if (!begun.ok()) done(begun);
}

void WaitForBackground(const Device* device) {
  Threads& threads = Threads::Get();
  MutexLock lock(&threads.mu);
  while (threads.under_way.contains(device->incarnation())) threads.work_ended.Wait(&threads.mu);
}

}  // namespace millrace
