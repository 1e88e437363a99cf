// SPDX-License-Identifier: Apache-2.0
// The other tasks of a context, as an eager server sees them: called through stubs.
#ifndef EAGER_TRANSPORT_H_
#define EAGER_TRANSPORT_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/calls/caller_host.h"
#include "millrace/status.h"
#include "proto/eager.pb.h"
#include "session/rendezvous_manager.h"
#include "session/worker_cache.h"
#include "session/worker_interface.h"

namespace millrace {

// The eager server of another task. Thread-safe. Callbacks run on an engine thread; every call ends
// by its cancellation.
class EagerPeer {
 public:
  using Done = std::function<void(Status)>;
  virtual ~EagerPeer() = default;

  virtual void EnqueueAsync(const CallOptions& options, const pb::EnqueueRequest& request,
                            Done done) = 0;
  // `response` must stay valid until `done`.
  virtual void RunComponentFunctionAsync(const CallOptions& options,
                                         const pb::RunComponentFunctionRequest& request,
                                         pb::RunComponentFunctionResponse* response, Done done) = 0;
};

// The tasks that a context names, with connections made at the first call. Thread-safe. Destroying
// it ends the calls that run and waits for them: not from one of their callbacks.
class EagerCluster {
 public:
  virtual ~EagerCluster() = default;
  // Valid as long as the cluster.
  virtual WorkerCache* workers() = 0;
  // Null if there is no such task.
  virtual EagerPeer* FindPeer(std::string_view task) = 0;
};

// What a composer gives. Thread-safe; outlives the contexts.
class EagerTransport {
 public:
  // The worker of a task, to be kept until it has answered; null if there is no such task.
  using FindWorker = std::function<std::shared_ptr<WorkerInterface>(std::string_view task)>;
  virtual ~EagerTransport() = default;
  // `addresses`: "/job:J/replica:0/task:T" -> "host:port", `own_task` among them or not, as the
  // client at `caller` names them. Where this task does not call an address, the calls to it fail.
  virtual std::unique_ptr<EagerCluster> Connect(std::map<std::string, std::string> addresses,
                                                const std::string& own_task,
                                                const CallerHost& caller) = 0;
  // For steps of a context that calls this task `own_task`. What `find` uses must outlive the
  // manager.
  virtual std::unique_ptr<RendezvousManager> NewRendezvous(const std::string& own_task,
                                                           FindWorker find) = 0;
};

}  // namespace millrace

#endif  // EAGER_TRANSPORT_H_
