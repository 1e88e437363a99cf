// SPDX-License-Identifier: Apache-2.0
// A session at a worker: its graphs, its stateful kernels, the steps that run.
#ifndef WORKER_WORKER_SESSION_H_
#define WORKER_WORKER_SESSION_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_set.h"
#include "base/mutex.h"
#include "base/string_map.h"
#include "base/use_count.h"
#include "kernels/state/session_tensors.h"
#include "session/worker_env.h"
#include "session/worker_interface.h"
#include "worker/worker_graph.h"
#include "worker/worker_step.h"

namespace millrace {

// Thread-safe.
class WorkerSession {
 public:
  // `env` is the worker's own, or that of the session if its client brought a cluster
  // (session_clusters.h), which `own_env` then keeps.
  WorkerSession(WorkerSessionOptions options, std::shared_ptr<SessionResources> resources,
                const WorkerEnv& env, std::shared_ptr<const WorkerEnv> own_env = nullptr);
  // Before the first graph; null: none.
  void set_memory_quota(RefPtr<MemoryQuota> quota) { memory_quota_ = std::move(quota); }
  const RefPtr<MemoryQuota>& memory_quota() const { return memory_quota_; }
  // What lies on devices of its own may hold on to them: functions of iterators do.
  ~WorkerSession() {
    if (resources_->own_devices == nullptr) return;
    for (const auto& kept : resources_->own_devices->resources) kept->Clear();
  }

  const WorkerSessionOptions& options() const { return options_; }
  const std::shared_ptr<SessionResources>& resources() const { return resources_; }
  const WorkerEnv& env() const { return env_; }
  const std::shared_ptr<const WorkerEnv>& own_env() const { return own_env_; }
  // Who the master is to whoever watches over it: its task, of a cluster that a client brought with
  // its address, as "task@host:port". "" if nobody knows, or if it is in this process.
  const std::string& watched_master() const { return watched_master_; }

  // The graph's steps find here what clients left between steps.
  void AddGraph(std::string handle, std::shared_ptr<WorkerGraph> graph);
  bool RemoveGraph(std::string_view handle);
  std::shared_ptr<WorkerGraph> FindGraph(std::string_view handle) const;  // null if unknown

  // What Close cancels. AddStep is false, and nothing happens, once the session is closed;
  // otherwise RemoveStep must follow, while the step is referenced. `self` is this session.
  bool AddStep(const std::shared_ptr<WorkerSession>& self, WorkerStep* step);
  void RemoveStep(WorkerStep* step);
  // Forgets the graphs and cancels the steps.
  void Close(const Status& reason);
  bool HasSteps() const;
  // Adds what its steps wait for: those of this id, or all.
  void ListWaits(std::optional<int64_t> step_id, pb::TaskWaits* waits) const;
  // Until the last reference to the last step is gone, and its share of the session; every step
  // must be ending.
  void WaitForSteps();

 private:
  friend class WorkerStep;
  // For a step that drops its share of the session, which may go with it.
  static void Forget(std::shared_ptr<WorkerSession> session);

  const WorkerSessionOptions options_;
  const std::shared_ptr<const WorkerEnv> own_env_;
  const WorkerEnv& env_;
  const std::string watched_master_;
  const std::shared_ptr<SessionResources> resources_;
  RefPtr<MemoryQuota> memory_quota_;
  // Gone with the session and its graphs.
  const std::shared_ptr<SessionTensors> tensors_ =
      std::make_shared<SessionTensors>(options_.master_task, options_.session_handle);
  // How many steps are referenced. Outlives the session: its last share may be that of a step,
  // which is gone only once what the session had is freed.
  const std::shared_ptr<UseCount> step_count_ = std::make_shared<UseCount>();
  mutable Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  StringMap<std::shared_ptr<WorkerGraph>> graphs_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_set<WorkerStep*> steps_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace

#endif  // WORKER_WORKER_SESSION_H_
