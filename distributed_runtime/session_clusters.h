// SPDX-License-Identifier: Apache-2.0
// The clusters that clients bring to this server's sessions, over gRPC.
#ifndef DISTRIBUTED_RUNTIME_SESSION_CLUSTERS_H_
#define DISTRIBUTED_RUNTIME_SESSION_CLUSTERS_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/thread_pool.h"
#include "distributed_runtime/peer_monitor.h"
#include "distributed_runtime/reach.h"
#include "session/session_clusters.h"
#include "session/worker_cache.h"
#include "transport/grpc/credentials.h"
#include "worker/local_worker.h"

namespace millrace {

// What is pointed to outlives the clusters.
struct SessionClustersOptions {
  // The task as it was started, to be completed before the first session.
  const WorkerEnv* task = nullptr;
  // What the clusters reach as this task.
  WorkerInterface* own_worker = nullptr;
  // Answers are given on `pool`, those to small questions on `control`.
  ThreadPool* pool = nullptr;
  ThreadPool* control = nullptr;
  // What the tasks of the server's own cluster are shown; null: nothing. With credentials there are
  // no others.
  std::shared_ptr<const LoadedCredentials> credentials;
  // Something around the workers of a cluster, which outlives it; null: nothing.
  std::function<std::unique_ptr<WorkerCache>(WorkerCache*)> observe;
  // Which addresses a client may name; and where the server listens, once it does.
  const Reach* reach = nullptr;
  std::function<std::string()> own_address;
};

// Thread-safe.
class ServerSessionClusters final : public SessionClusters {
 public:
  explicit ServerSessionClusters(SessionClustersOptions options);
  // Ends the calls that clusters wait for, and waits until all have been given back. Their sessions
  // must have been closed.
  ~ServerSessionClusters() override;

  StatusOr<std::shared_ptr<const WorkerEnv>> Lead(const pb::ClusterDef& cluster,
                                                  const std::string& target) override;
  StatusOr<std::shared_ptr<const WorkerEnv>> Join(const pb::ServerDef& server,
                                                  bool isolated) override;

  // Lets a monitor watch also those tasks of the clusters that somebody waits for, and the masters
  // of the sessions of `worker`, all as "task@host:port". Around what is there; what it gets must
  // not be called after this object, or the worker, has gone.
  void AddTo(std::function<LocalWorker*()> worker, PeerMonitor::Options* watch);

  // How many clusters have not been given back.
  std::size_t num_open() const;

  static constexpr int kMostTasks = 1024;         // of a cluster
  static constexpr std::size_t kMostOpen = 1024;  // a session has one at each of its tasks
  static constexpr std::size_t kMostNames = 64;   // of this task, in sessions that share its state

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace millrace

#endif  // DISTRIBUTED_RUNTIME_SESSION_CLUSTERS_H_
