// SPDX-License-Identifier: Apache-2.0
#include "kernels/background.h"

#include <pthread.h>

#include <algorithm>
#include <cstdint>
#include <list>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

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
  // Places of the queue that are free, so that the next piece takes no memory.
  std::list<Work> queue ABSL_GUARDED_BY(mu), spare ABSL_GUARDED_BY(mu);
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

  void Add(Work work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    if (spare.empty()) spare.emplace_back();
    spare.front() = std::move(work);
    queue.splice(queue.end(), spare, spare.begin());
  }
  Work TakeOut(std::list<Work>::iterator place) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    Work work = std::move(*place);
    place->run = nullptr;
    spare.splice(spare.end(), queue, place);
    return work;
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
    *work = TakeOut(queue.begin());
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
    withdrawn = TakeOut(it);
    EndOne(withdrawn.owner);
    return true;
  }
};

// What an asynchronous kernel has computed, kept for those to come: a step takes no memory for it.
struct Computation {
  DoneCallback done;
  std::function<Status()> compute;
};

// Never destroyed, as the threads.
struct Computations {
  Mutex mu;
  std::vector<std::unique_ptr<Computation>> spare ABSL_GUARDED_BY(mu);

  static Computations& Get() {
    static auto* const computations = new Computations;
    return *computations;
  }
  Computation* Take() {
    MutexLock lock(&mu);
    if (spare.empty()) return new Computation;
    Computation* const taken = spare.back().release();
    spare.pop_back();
    return taken;
  }
  void PutBack(Computation* computation) {
    computation->compute = nullptr;
    MutexLock lock(&mu);
    spare.emplace_back(computation);
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
    threads.Add({id, device->incarnation(), std::move(work)});
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
  Computation* const computation = Computations::Get().Take();
  computation->done = done;
  computation->compute = std::move(compute);
  const Status begun = RunInBackground(device, [computation] {
    Status status = Guarded(computation->compute);
    const DoneCallback told = computation->done;
    Computations::Get().PutBack(computation);
    told(std::move(status));
  });
  if (begun.ok()) return;
  Computations::Get().PutBack(computation);
  done(begun);
}

void WaitForBackground(const Device* device) {
  Threads& threads = Threads::Get();
  MutexLock lock(&threads.mu);
  while (threads.under_way.contains(device->incarnation())) threads.work_ended.Wait(&threads.mu);
}

}  // namespace millrace
