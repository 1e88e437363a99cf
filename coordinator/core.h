// SPDX-License-Identifier: Apache-2.0
// The threads of a coordinator and what they share: for each worker one that keeps its session and
// some that run functions in it, and one that watches the parameter servers.
#ifndef COORDINATOR_CORE_H_
#define COORDINATOR_CORE_H_

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/notification.h"
#include "coordinator/call.h"
#include "coordinator/coordinated_session.h"
#include "coordinator/function_queue.h"
#include "coordinator/graph_gate.h"
#include "coordinator/task_probe.h"
#include "millrace/cluster_coordinator.h"
#include "millrace/graph.h"
#include "millrace/status.h"

namespace millrace {

// Thread-safe. Its threads share it; one that is stuck in a call to a task that does not answer
// keeps it after Stop.
//
// Locks: recover_mu_ and judge_mu_, never both, before any other; while mu_ or the queue's is held
// only a session's own or a result's is taken.
class CoordinatorCore : public std::enable_shared_from_this<CoordinatorCore> {
 public:
  // The options have been checked.
  CoordinatorCore(Graph& graph, const CoordinatorOptions& options);

  // Waits until the parameter servers answer, then starts the threads.
  Status Start();
  // Cancels everything. Returns when the threads have ended, or are stuck.
  void Stop();
  // After a notice that this process is to end: as after an error of no function in particular.
  void EndForNotice();

  // Called before anything is asked of the cluster: sessions are made from the first call on. After
  // a parameter server was lost it runs Recover, or says that somebody has to.
  Status EnsureUsable();
  Status Recover();

  StatusOr<std::vector<Tensor>> Run(std::span<const Feed> feeds, std::span<const Output> fetches,
                                    std::span<const Operation> targets);

  // Constant, or thread-safe by itself.
  Graph& graph() { return *graph_; }
  GraphGate& gate() { return gate_; }
  FunctionQueue& queue() { return queue_; }
  const CoordinatorOptions& options() const { return options_; }
  bool running() const { return phase_.load(std::memory_order_acquire) == Phase::kRunning; }
  // How it stands, for an error: what is queued, what runs where, who is lost.
  std::string Describe() const;
  CoordinatorStats stats() const;

  // `init` is what workers run before functions that are added from now on.
  void AddPerWorkerInit(std::shared_ptr<const PerWorkerInit> init);
  // Gives the function its number.
  std::shared_ptr<const CoordinatedFunction> AddFunction(std::string name, FunctionParts parts);
  // Null if there is none.
  std::shared_ptr<const CoordinatedFunction> FindFunction(int id) const;

 private:
  enum class Phase { kIdle, kRunning, kPsLost, kRecovering, kStopped };
  struct Worker {
    int index = 0;
    std::string address;
    std::unique_ptr<TaskProbe> probe;
    PerWorkerProgress progress;
    // Guarded by mu_.
    std::shared_ptr<CoordinatedSession> session;  // null: there is none, because of:
    std::string reason = "it has not answered yet";
    Deadline since = SteadyClock::now();  // when that began
  };
  struct ParameterServer {
    std::string address;
    std::unique_ptr<TaskProbe> probe;
    int64_t process = 0;  // guarded by mu_: the one that has our variables
  };
  // Whose fault an error is.
  enum class Verdict { kFunction, kPsLost, kWorkerLost, kSessionLost };

  // keeper.cc: the threads.
  void Spawn(std::function<void(CoordinatorCore&)> body);
  void KeepWorker(Worker& worker);
  std::shared_ptr<CoordinatedSession> Connect(Worker& worker);
  StatusOr<std::shared_ptr<CoordinatedSession>> TryConnect(Worker& worker,
                                                           std::chrono::milliseconds attempt);
  bool Publish(Worker& worker, const std::shared_ptr<CoordinatedSession>& session);
  void Watch(Worker& worker, const std::shared_ptr<CoordinatedSession>& session);
  bool Beat(Worker& worker, const std::shared_ptr<CoordinatedSession>& session,
            Deadline* last_sign);
  void RunFunctions(Worker& worker, const std::shared_ptr<CoordinatedSession>& session);
  Status RunOne(CoordinatedSession& session, const CoordinatedCall& call,
                std::vector<Tensor>* outputs);
  void WatchServers();
  // False once the coordinator has been stopped.
  bool Sleep(std::chrono::milliseconds time);

  // failures.cc: what an error means, and what is done about it.
  void HandleFailure(Worker& worker, const std::shared_ptr<CoordinatedSession>& session,
                     const CoordinatedCallPtr& call, const Status& error);
  Verdict Judge(Worker& worker, const CoordinatedSession& session, const Status& error,
                Status* why);
  // OK if all parameter servers live and have their variables; else what was done with PsLost.
  Status CheckServers();
  Status CheckServer(ParameterServer& server);
  Status PsLost(const ParameterServer& server, std::string_view why);
  // Gives up the session, unless that was done before; what it ran is put back.
  void Lose(Worker& worker, const std::shared_ptr<CoordinatedSession>& session,
            std::string_view why);
  // Whether the error says that the session, or its worker, is gone; it is given up then.
  bool LoseIfGone(const std::shared_ptr<CoordinatedSession>& session, const Status& error);
  void LoseAll(std::string_view why);
  void FailFunction(const CoordinatedCallPtr& call, const Status& error);
  void CancelSoon();

  // recovery.cc
  Status TryRecover(Deadline deadline, Status* why);
  StatusOr<std::vector<std::string>> LookAtServers(std::vector<int64_t>* processes);
  StatusOr<std::shared_ptr<CoordinatedSession>> AwaitWorker(Deadline deadline);
  bool SetPhase(Phase from, Phase to);

  Graph* const graph_;
  const CoordinatorOptions options_;
  GraphGate gate_;
  FunctionQueue queue_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::unique_ptr<ParameterServer>> servers_;
  Mutex judge_mu_;    // one thread at a time asks the parameter servers
  Mutex recover_mu_;  // one recovery at a time

  std::atomic<Phase> phase_{Phase::kIdle};  // changed under mu_
  mutable Mutex mu_;
  CondVar changed_;
  Status ps_error_ ABSL_GUARDED_BY(mu_);
  Deadline cancel_at_ ABSL_GUARDED_BY(mu_) = kNoDeadline;
  int threads_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t sessions_lost_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t ps_lost_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<std::shared_ptr<const CoordinatedFunction>> functions_ ABSL_GUARDED_BY(mu_);
  std::vector<std::shared_ptr<const PerWorkerInit>> inits_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace

#endif  // COORDINATOR_CORE_H_
