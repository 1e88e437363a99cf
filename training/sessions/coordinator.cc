// SPDX-License-Identifier: Apache-2.0
#include "millrace/coordinator.h"

#include <map>
#include <thread>
#include <utility>

#include "base/errors.h"
#include "base/exceptions.h"
#include "base/mutex.h"
#include "base/notification.h"
#include "base/preemption/on_preemption.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace millrace {

struct Coordinator::State {
  mutable Mutex mu;
  CondVar changed;
  bool stop ABSL_GUARDED_BY(mu) = false;
  Status cause ABSL_GUARDED_BY(mu);
  int64_t next_id ABSL_GUARDED_BY(mu) = 0;
  std::map<int64_t, std::string> running ABSL_GUARDED_BY(mu);
  std::vector<std::thread> ended ABSL_GUARDED_BY(mu);  // joined without a wait
  std::map<int64_t, std::thread> threads ABSL_GUARDED_BY(mu);

  void RequestStop(const Status& status) {
    MutexLock lock(&mu);
    if (stop) return;
    stop = true;
    if (!errors::IsOutOfRange(status)) cause = status;
    changed.SignalAll();
  }
  bool WaitForStop(Deadline deadline) {
    MutexLock lock(&mu);
    while (!stop) {
      if (deadline == kNoDeadline) {
        changed.Wait(&mu);
      } else if (!changed.WaitUntil(&mu, deadline)) {
        return stop;
      }
    }
    return true;
  }
  // The last that a thread does: whoever sees it gone may join it.
  void Ended(int64_t id) {
    MutexLock lock(&mu);
    running.erase(id);
    if (const auto it = threads.find(id); it != threads.end()) {
      ended.push_back(std::move(it->second));
      threads.erase(it);
    }
    changed.SignalAll();
  }
  void Reap() {
    std::vector<std::thread> done;
    {
      MutexLock lock(&mu);
      done.swap(ended);
    }
    for (std::thread& thread : done) thread.join();
  }
  // Nobody waits for those that still run any more.
  void Abandon() {
    MutexLock lock(&mu);
    for (auto& [id, thread] : threads) thread.detach();
    threads.clear();
  }
  std::vector<std::string> Running() const {
    MutexLock lock(&mu);
    std::vector<std::string> names;
    for (const auto& [id, name] : running) names.push_back(name);
    return names;
  }
};

Coordinator::Coordinator() : state_(std::make_shared<State>()) {}

Coordinator::~Coordinator() {
  RequestStop();
  state_->Abandon();
  state_->Reap();
}

void Coordinator::RequestStop(const Status& cause) { state_->RequestStop(cause); }

bool Coordinator::ShouldStop() const {
  MutexLock lock(&state_->mu);
  return state_->stop;
}

Status Coordinator::status() const {
  MutexLock lock(&state_->mu);
  return state_->cause;
}

bool Coordinator::WaitForStop(std::chrono::milliseconds limit) const {
  const OnPreemption stop([state = state_] { state->RequestStop(OkStatus()); });
  return state_->WaitForStop(DeadlineAfter(limit));
}

std::vector<std::string> Coordinator::running() const { return state_->Running(); }

Status Coordinator::StartThread(std::string name, std::function<Status()> body) {
  state_->Reap();
  // Started under the lock, so that its end finds it among the threads.
  MutexLock lock(&state_->mu);
  const int64_t id = state_->next_id++;
  const auto run = [state = state_, body = std::move(body), name, id]() mutable {
    const Status status = Guarded(body);
    // What it has captured goes before anybody is told that it has ended.
    body = nullptr;
    if (!status.ok()) {
      state->RequestStop(Annotate(status, StrCat("; in the thread \"", name, "\"")));
    }
    state->Ended(id);
  };
  std::thread thread;
  MR_RETURN_IF_ERROR(Guarded([&]() -> Status {
    thread = std::thread(run);
    return OkStatus();
  }));
  state_->threads.emplace(id, std::move(thread));
  state_->running.emplace(id, std::move(name));
  return OkStatus();
}

Status Coordinator::StartLoop(std::string name, std::chrono::milliseconds interval,
                              std::function<Status()> body) {
  return StartThread(std::move(name), [state = state_, interval, body = std::move(body)] {
    // Of a fixed schedule, so that what `body` takes does not add up.
    for (Deadline next = SteadyClock::now();; next += interval) {
      if (state->WaitForStop(next)) return OkStatus();
      MR_RETURN_IF_ERROR(body());
    }
  });
}

Status Coordinator::Join(std::chrono::milliseconds grace) {
  if (!ShouldStop()) {
    const OnPreemption stop([state = state_] { state->RequestStop(OkStatus()); });
    state_->WaitForStop(kNoDeadline);
  }
  const Deadline deadline = DeadlineAfter(grace);
  bool all_ended = false;
  {
    MutexLock lock(&state_->mu);
    while (!state_->running.empty() && state_->changed.WaitUntil(&state_->mu, deadline)) {
    }
    all_ended = state_->running.empty();
  }
  state_->Reap();
  MR_RETURN_IF_ERROR(status());
  if (all_ended) return OkStatus();
  return errors::DeadlineExceeded("threads that were asked to stop still run after ", grace.count(),
                                  " ms: ", StrJoin(running(), ", "));
}

}  // namespace millrace
