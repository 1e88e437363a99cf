// SPDX-License-Identifier: Apache-2.0
// Sessions on clusters that their clients bring (ConfigProto.cluster_def), whatever the servers
// were started with.
#ifndef SESSION_SESSION_CLUSTERS_H_
#define SESSION_SESSION_CLUSTERS_H_

#include <memory>
#include <string>

#include "millrace/status.h"
#include "proto/cluster.pb.h"
#include "proto/server.pb.h"
#include "session/worker_env.h"

namespace millrace {

// What a session on such a cluster has in place of the task's environment: the task as the cluster
// calls it, the cluster's other workers, a rendezvous that meets them. There are no collectives,
// and no devices but CPUs. The connections, and the rest, are given back with the last share of the
// environment, which may be dropped on any thread. Thread-safe.
class SessionClusters {
 public:
  virtual ~SessionClusters() = default;

  // For the master of a session: it is the task of the cluster that has its own address, or
  // `target`, what the client called ("grpc://h:p", or ""). The workers name their devices as the
  // cluster does, and open sessions on it. `devices` is empty: the master asks its worker.
  // InvalidArgument for a cluster without this task, with this task under the name that it was
  // started with, or that is none (job names, addresses, too many tasks); PermissionDenied for
  // addresses that a client may not make this server call; ResourceExhausted if too many are open.
  virtual StatusOr<std::shared_ptr<const WorkerEnv>> Lead(const pb::ClusterDef& cluster,
                                                          const std::string& target) = 0;

  // The same for a worker, which `server` names. `make_session_devices` makes devices with
  // resources of their own; unless the session is to have those, `devices` are the task's under
  // their other names, which share its resources.
  virtual StatusOr<std::shared_ptr<const WorkerEnv>> Join(const pb::ServerDef& server,
                                                          bool isolated) = 0;
};

}  // namespace millrace

#endif  // SESSION_SESSION_CLUSTERS_H_
