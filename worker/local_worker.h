// SPDX-License-Identifier: Apache-2.0
// The worker of this process: keeps graphs and runs their steps on the task's devices.
#ifndef WORKER_LOCAL_WORKER_H_
#define WORKER_LOCAL_WORKER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/mutex.h"
#include "base/string_map.h"
#include "session/worker_env.h"
#include "session/worker_interface.h"
#include "worker/partial_steps.h"
#include "worker/worker_session.h"

namespace millrace {

// Callbacks run on the threads of the inter-op pool, on those that complete asynchronous
// kernels, or before the call returns: the calling thread takes part in a step.
class LocalWorker : public WorkerInterface {
 public:
  // What `env` points to must outlive the worker.
  explicit LocalWorker(const WorkerEnv& env);
  // Cancels the steps that run and waits for them. No call may begin.
  ~LocalWorker() override;

  void GetStatusAsync(const CallOptions& options, std::vector<pb::DeviceAttributes>* devices,
                      Done done) override;
  void CreateSessionAsync(const CallOptions& options, const WorkerSessionOptions& session,
                          Done done) override;
  void DeleteSessionAsync(const CallOptions& options, const std::string& session_handle,
                          Done done) override;
  void RegisterGraphAsync(const CallOptions& options, RegisterGraphArgs args,
                          std::string* graph_handle, Done done) override;
  void DeregisterGraphAsync(const CallOptions& options, const std::string& session_handle,
                            const std::string& graph_handle, Done done) override;
  void RunGraphAsync(const CallOptions& options, RunGraphArgs* args, RunGraphResult* result,
                     Done done) override;
  bool OffersDirectGraphs() const override { return true; }
  std::shared_ptr<DirectGraph> FindDirectGraph(const std::string& session_handle,
                                               const std::string& graph_handle) override;
  void CleanupGraphAsync(const CallOptions& options, int64_t step_id, Done done) override;
  void CleanupAllAsync(const CallOptions& options, std::vector<std::string> containers,
                       Done done) override;
  void RecvTensorAsync(const CallOptions& options, int64_t step_id, const std::string& key,
                       RecvDone done) override;
  CollectivePeer* collectives() override;
  void ListWaitsAsync(const CallOptions& options, std::optional<int64_t> step_id,
                      pb::TaskWaits* waits, Done done) override;

  // The masters that have sessions here, without this task: see WorkerSession::watched_master.
  std::vector<std::string> MasterTasks() const;
  // Ends the sessions of a master that is lost, and with them their steps.
  void AbandonMaster(std::string_view task, const Status& why);
  // A task has said which devices it has: ends the sessions of an earlier process of it.
  void MasterAnswered(std::string_view task, const std::vector<pb::DeviceAttributes>& devices);

 private:
  // Aborted if there is no such session. "" is the one of clients that open none.
  StatusOr<std::shared_ptr<WorkerSession>> FindSession(std::string_view handle) const;
  void CloseSession(const std::shared_ptr<WorkerSession>& session, const Status& reason);
  // Closes those for which it is true; they are not found any more.
  template <typename Condition>
  void CloseSessionsIf(const Status& reason, const Condition& condition);
  // The step has something here until it is cleaned up, or its session is closed.
  Status BeginStep(int64_t step_id, const WorkerSession* session);
  void ForgetStep(int64_t step_id);
  Status CreateSession(WorkerSessionOptions options);
  // What the session has in place of `env_`.
  StatusOr<std::shared_ptr<const WorkerEnv>> JoinCluster(const WorkerSessionOptions& options);
  StatusOr<std::string> RegisterGraph(RegisterGraphArgs args);

  const WorkerEnv& env_;
  const std::shared_ptr<WorkerSession> legacy_session_;
  PartialSteps partial_steps_;
  std::atomic<int64_t> next_name_{0};
  std::atomic<uint64_t> next_graph_{1};
  mutable Mutex mu_;
  StringMap<std::shared_ptr<WorkerSession>> sessions_ ABSL_GUARDED_BY(mu_);
  // Begun and not cleaned up.
  struct BegunStep {
    const WorkerSession* session = nullptr;  // only compared: it may be gone
    std::shared_ptr<const WorkerEnv> env;    // of a session that has its own
  };
  absl::flat_hash_map<int64_t, BegunStep> steps_ ABSL_GUARDED_BY(mu_);
  // Closed, but with steps that have not quite ended.
  std::vector<std::shared_ptr<WorkerSession>> ending_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace

#endif  // WORKER_LOCAL_WORKER_H_
