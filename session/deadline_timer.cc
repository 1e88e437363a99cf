#include "session/deadline_timer.h"

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

DeadlineTimer::Token DeadlineTimer::Schedule(Deadline deadline, std::function<void()> callback) {
  if (deadline == kNoDeadline) return kNone;
  MutexLock lock(&mu_);
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
  const Token token = next_token_++;
  const auto at = entries_.emplace(std::make_pair(deadline, token), std::move(callback)).first;
  deadlines_.emplace(token, deadline);
  // The thread already sleeps no longer than the earlier ones allow.
  if (at == entries_.begin()) wake_.SignalAll();
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
  entries_.erase(entry);
  deadlines_.erase(it);
  return true;
}

void DeadlineTimer::Run() {
  mu_.Lock();
  while (!stop_) {
    if (entries_.empty()) {
      wake_.Wait(&mu_);
      continue;
    }
    const auto first = entries_.begin();
    const Deadline deadline = first->first.first;
    if (SteadyClock::now() < deadline) {
      wake_.WaitUntil(&mu_, deadline);
      continue;
    }
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
