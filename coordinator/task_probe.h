// SPDX-License-Identifier: Apache-2.0
// Asks one task, at its own server and for nothing but itself, whether it lives and is still the
// process that it was: what an error that some session saw cannot tell for sure.
#ifndef COORDINATOR_TASK_PROBE_H_
#define COORDINATOR_TASK_PROBE_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "base/mutex.h"
#include "millrace/graph.h"
#include "millrace/session.h"
#include "millrace/status.h"

namespace millrace {

// Thread-safe; one look at a time.
//
// A variable at the task is the sign: sessions come and go, it has its value as long as the process
// lives. It goes with the probe.
class TaskProbe {
 public:
  // `task` as "/job:ps/task:0". `id` is no other coordinator's.
  TaskProbe(std::string task, std::string target, const std::string& id);
  ~TaskProbe();

  struct Report {
    Status alive;  // OK, or why not
    // Counts the processes that were seen there; 0: none yet. A higher one has lost all state.
    int64_t process = 0;
  };
  Report Look(std::chrono::milliseconds limit);

  const std::string& task() const { return task_; }
  const std::string& target() const { return target_; }

 private:
  Status Open(std::chrono::milliseconds limit) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  StatusOr<bool> HasMark(std::chrono::milliseconds limit) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string task_, target_;
  Graph graph_;  // constant once constructed
  Output has_mark_;
  Operation set_mark_, remove_mark_;

  Mutex mu_;
  std::optional<Session> session_ ABSL_GUARDED_BY(mu_);
  Callable look_ ABSL_GUARDED_BY(mu_);
  int64_t process_ ABSL_GUARDED_BY(mu_) = 0;
  bool answered_ ABSL_GUARDED_BY(mu_) = false;  // the last time
};

// A task is gone, silent or another process, or has dropped a session: it may be another's fault.
bool MayBeALostTask(const Status& status);

}  // namespace millrace

#endif  // COORDINATOR_TASK_PROBE_H_
