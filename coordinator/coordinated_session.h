// SPDX-License-Identifier: Apache-2.0
// A worker's session while it lasts: what the functions need of it, and which of them it has.
#ifndef COORDINATOR_COORDINATED_SESSION_H_
#define COORDINATOR_COORDINATED_SESSION_H_

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/notification.h"
#include "coordinator/call.h"
#include "coordinator/graph_gate.h"
#include "millrace/session.h"
#include "millrace/status.h"

namespace millrace {

// Initializers of what every worker has for itself. Constant.
struct PerWorkerInit {
  std::string name;
  std::vector<Operation> initializers;
  Output worker_index;  // a placeholder that they need, or not valid
};

// How far a worker's process has its values. Guarded by the lock within.
struct PerWorkerProgress {
  Mutex mu;
  int64_t process ABSL_GUARDED_BY(mu) = 0;  // TaskProbe::Report::process
  int initialized ABSL_GUARDED_BY(mu) = 0;
};

// Thread-safe.
class CoordinatedSession {
 public:
  // What is shared outlives it.
  CoordinatedSession(int worker, int64_t process, Session session, GraphGate* gate,
                     PerWorkerProgress* progress);

  // Null: not prepared yet.
  std::shared_ptr<const Callable> Find(int function) const;
  // Prepares the function and, before the first that needs them, makes the worker's own values.
  StatusOr<std::shared_ptr<const Callable>> Prepare(
      const CoordinatedFunction& function,
      const std::vector<std::shared_ptr<const PerWorkerInit>>& inits);
  Session& session() { return session_; }
  int worker() const { return worker_; }
  int64_t process() const { return process_; }

  // A call that runs here. False: the session was given up, the call is not taken.
  bool Begin(const CoordinatedCallPtr& call);
  // False: it was given up meanwhile, and the call is somebody else's.
  bool End(const CoordinatedCallPtr& call);
  // From now on nothing begins; the calls that run are the caller's.
  std::vector<CoordinatedCallPtr> GiveUp();
  const std::atomic<bool>& given_up() const { return given_up_; }
  bool busy() const;
  bool has_finished() const { return has_finished_.load(std::memory_order_relaxed); }
  void SetFinished() { has_finished_.store(true, std::memory_order_relaxed); }
  // "'f' for 3 s, 'g' for 1 s"; "" if nothing runs.
  std::string Describe() const;

 private:
  Status Initialize(const std::vector<std::shared_ptr<const PerWorkerInit>>& inits, int count);

  const int worker_;
  const int64_t process_;
  Session session_;
  GraphGate* const gate_;
  PerWorkerProgress* const progress_;
  std::atomic<bool> given_up_{false}, has_finished_{false};

  mutable Mutex mu_;
  std::map<int, std::shared_ptr<const Callable>> prepared_ ABSL_GUARDED_BY(mu_);
  struct Running {
    CoordinatedCallPtr call;
    Deadline since;
  };
  std::vector<Running> running_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace

#endif  // COORDINATOR_COORDINATED_SESSION_H_
