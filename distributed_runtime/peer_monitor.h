// SPDX-License-Identifier: Apache-2.0
// Which other tasks show signs of life.
#ifndef DISTRIBUTED_RUNTIME_PEER_MONITOR_H_
#define DISTRIBUTED_RUNTIME_PEER_MONITOR_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/cancellation.h"
#include "base/deadline_timer.h"
#include "base/mutex.h"
#include "base/string_map.h"
#include "base/thread_pool.h"
#include "base/use_count.h"
#include "base/wait.h"
#include "millrace/status.h"
#include "session/worker_interface.h"

namespace millrace {

// Asks the tasks that matter right now, those that calls wait for and the masters of sessions, for
// their status again and again: a question over gRPC with a deadline, which every server answers,
// TensorFlow's too. One that has not answered for the whole timeout is lost. Time in which this
// process itself stood still counts for little. Thread-safe.
class PeerMonitor {
 public:
  struct Options {
    std::chrono::nanoseconds timeout{0};
    ThreadPool* pool = nullptr;  // where it looks around; must outlive the monitor
    // The tasks that matter, without this one. Called on the pool, like the next three.
    std::function<std::vector<std::string>()> watched;
    // Ends with Unavailable, DeadlineExceeded or Cancelled if the task does not answer.
    std::function<void(const std::string& task, const CallOptions&, WorkerInterface::Done)> ask;
    // Whether the task has ever been there. One that never was is not lost: it may be reachable in
    // another way than by its address here.
    std::function<bool(const std::string& task)> known;
    // When a silence has lasted for the timeout, and no later, and again whenever somebody has
    // waited for the silent task for as long after that. `why` is Unavailable and names the task.
    std::function<void(const std::string& task, const Status& why)> lost;
    // "host:port" of a task.
    std::function<std::string(const std::string& task)> address;
  };
  explicit PeerMonitor(Options options);
  ~PeerMonitor();  // stops
  PeerMonitor(const PeerMonitor&) = delete;
  PeerMonitor& operator=(const PeerMonitor&) = delete;

  void Start();
  // Looks no more, and waits for what it has begun. Not on the pool.
  void Stop();

  // Something speaks against this task, such as that its link was closed: it is asked at once, and
  // counts as silent until it answers. On any thread.
  void Suspect(const std::string& task);

  // Adds the tasks that were watched lately and do not answer: "/job:worker/replica:0/task:1 at h:p
  // has shown no sign of life for 12 s".
  void ListSilent(std::vector<Wait>* waits) const;

 private:
  struct Peer {
    // When it answered, or the last look at which nobody waited for it: not before that can
    // somebody have begun to.
    Deadline last_sign;
    std::chrono::nanoseconds silence{0};  // as far as this process could have heard something
    bool asked = false;                   // and has not answered yet
    bool lost = false;
    Deadline told;           // if lost: when that was last told, or somebody began to wait after it
    bool matters = false;    // as of the last look
    Deadline watched_until;  // still of interest
  };
  void ScheduleTick(std::chrono::nanoseconds wait) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Tick();
  // For a question that was counted in working_.
  void AskTask(const std::string& task);
  void Answered(const std::string& task, const Status& status);
  std::string Describe(const std::string& task, const Peer& peer) const;

  const Options options_;
  const std::chrono::nanoseconds interval_;
  CancellationManager stopping_;
  UseCount working_;  // ticks and questions under way
  mutable Mutex mu_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = true;
  DeadlineTimer::Token timer_ ABSL_GUARDED_BY(mu_) = DeadlineTimer::kNone;
  Deadline last_tick_ ABSL_GUARDED_BY(mu_);
  StringMap<Peer> peers_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace

#endif  // DISTRIBUTED_RUNTIME_PEER_MONITOR_H_
