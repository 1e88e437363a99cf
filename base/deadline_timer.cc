// SPDX-License-Identifier: Apache-2.0
#include "base/deadline_timer.h"

#include <time.h>

#include <utility>

namespace millrace {

DeadlineTimer::~DeadlineTimer() {
  std::thread thread;
  {
    MutexLock lock(&mu_);
    stop_ = true;
    wake_.SignalAll();
    thread = std::move(thread_);
  }
  if (thread.joinable()) thread.join();
}

DeadlineTimer& DeadlineTimer::Global() {
  static auto* const timer = new DeadlineTimer();
  return *timer;
}

Deadline StepDeadline(std::chrono::milliseconds timeout) {
  constexpr std::chrono::seconds kLong(10);
  if (timeout < kLong) return DeadlineAfter(timeout);
  timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);  // SteadyClock's, as of the last tick
  return Deadline(std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec)) +
         timeout;
}

DeadlineTimer::Token DeadlineTimer::Schedule(Deadline deadline, std::function<void()> callback) {
  if (deadline == kNoDeadline) return kNone;
  MutexLock lock(&mu_);
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
  const Token token = next_token_++;
  if (spare_.empty()) {
    entries_.emplace(std::make_pair(deadline, token), std::move(callback));
    deadlines_.emplace(token, deadline);
  } else {
    Nodes nodes = std::move(spare_.back());
    spare_.pop_back();
    nodes.entry.key() = {deadline, token};
    nodes.entry.mapped() = std::move(callback);
    entries_.insert(std::move(nodes.entry));
    nodes.deadline.key() = token;
    nodes.deadline.mapped() = deadline;
    deadlines_.insert(std::move(nodes.deadline));
  }
  // Waking the thread would cost more than the step whose time it keeps: it looks by itself when
  // the deadline that it slept for has passed, be that cancelled or not.
  if (deadline < sleeps_until_) wake_.SignalAll();
  return token;
}

bool DeadlineTimer::Cancel(Token token) {
  if (token == kNone) return true;
  std::function<void()> dropped;  // destroyed without the lock
  MutexLock lock(&mu_);
  const auto it = deadlines_.find(token);
  if (it == deadlines_.end()) return false;
  const auto entry = entries_.find({it->second, token});
  dropped = std::move(entry->second);
  Nodes nodes{entries_.extract(entry), deadlines_.extract(it)};
  if (spare_.size() < kMaxSpare) spare_.push_back(std::move(nodes));
  return true;
}

void DeadlineTimer::Run() {
  mu_.Lock();
  while (!stop_) {
    sleeps_until_ = entries_.empty() ? kNoDeadline : entries_.begin()->first.first;
    if (sleeps_until_ == kNoDeadline) {
      wake_.Wait(&mu_);
      continue;
    }
    if (SteadyClock::now() < sleeps_until_) {
      wake_.WaitUntil(&mu_, sleeps_until_);
      continue;
    }
    const auto first = entries_.begin();
    std::function<void()> callback = std::move(first->second);
    deadlines_.erase(first->first.second);
    entries_.erase(first);
    mu_.Unlock();
    callback();
    callback = nullptr;
    mu_.Lock();
  }
  mu_.Unlock();
}

}  // namespace millrace
