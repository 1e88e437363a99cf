// SPDX-License-Identifier: Apache-2.0
#include "base/preemption/on_preemption.h"

#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <thread>
#include <utility>

#include "base/errors.h"
#include "base/exceptions.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/preemption/preemption_bell.h"
#include "millrace/preemption.h"

namespace millrace {
namespace {

// The counter that the thread reads; -1: nobody has waited yet. Read in signal handlers.
std::atomic<int> bell{-1};

// Who is to be called. Never destroyed: its thread runs as long as the process.
class Waiters {
 public:
  int64_t Add(std::function<void()> action) {
    MutexLock lock(&mu_);
    Start();
    const int64_t id = next_id_++;
    waiting_.emplace(id, std::move(action));
    // A signal before the bell was there has rung nothing.
    if (PreemptionSignal() != 0) RingPreemptionBell();
    return id;
  }

  void Remove(int64_t id) {
    MutexLock lock(&mu_);
    waiting_.erase(id);
    while (running_ == id) ended_.Wait(&mu_);
  }

 private:
  void Start() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (is_started_) return;
    is_started_ = true;
    const int fd = eventfd(0, EFD_CLOEXEC);
    Status status = fd >= 0 ? OkStatus() : errors::Internal("eventfd: ", std::strerror(errno));
    // Signals are for the threads of the program.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (status.ok()) {
      status = Guarded([&]() -> Status {
        std::thread([this, fd] { Listen(fd); }).detach();
        return OkStatus();
      });
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (status.ok()) {
      bell.store(fd);
    } else {
      MR_LOG(kWarning, "waits will not end when this process is to end: ", Message(status));
    }
  }

  void Listen(int fd) {
    for (;;) {
      uint64_t rung = 0;
      if (read(fd, &rung, sizeof(rung)) < 0 && errno != EINTR) return;
      CallAll();
    }
  }

  void CallAll() {
    mu_.Lock();
    while (PreemptionSignal() != 0 && !waiting_.empty()) {
      const auto first = waiting_.begin();
      running_ = first->first;
      std::function<void()> action = std::move(first->second);
      waiting_.erase(first);
      mu_.Unlock();
      action();
      action = nullptr;  // what it has captured goes before anybody is told that it has ended
      mu_.Lock();
      running_ = -1;
      ended_.SignalAll();
    }
    mu_.Unlock();
  }

  Mutex mu_;
  CondVar ended_;
  bool is_started_ ABSL_GUARDED_BY(mu_) = false;
  int64_t next_id_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t running_ ABSL_GUARDED_BY(mu_) = -1;
  std::map<int64_t, std::function<void()>> waiting_ ABSL_GUARDED_BY(mu_);
};

Waiters& AllWaiters() {
  static auto* const waiters = new Waiters;
  return *waiters;
}

}  // namespace

void RingPreemptionBell() {
  const int fd = bell.load();
  if (fd < 0) return;
  const int before = errno;
  const uint64_t one = 1;
  // Full only after 2^64 - 2 rings that nobody has heard.
  const ssize_t written = write(fd, &one, sizeof(one));
  (void)written;
  errno = before;
}

OnPreemption::OnPreemption(std::function<void()> action)
    : id_(AllWaiters().Add(std::move(action))) {}

OnPreemption::~OnPreemption() { AllWaiters().Remove(id_); }

}  // namespace millrace
