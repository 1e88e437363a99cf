// SPDX-License-Identifier: Apache-2.0
// The rendezvous of steps that run in several tasks at once.
#ifndef DISTRIBUTED_RUNTIME_REMOTE_RENDEZVOUS_H_
#define DISTRIBUTED_RUNTIME_REMOTE_RENDEZVOUS_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "session/rendezvous_manager.h"
#include "session/worker_cache.h"

namespace millrace {

// The worker of a task, kept as long as whoever asked for it needs it; null if there is no such
// task. Thread-safe.
using FindWorker = std::function<std::shared_ptr<WorkerInterface>(std::string_view task)>;

// For the task "/job:J/replica:R/task:T". A receive whose source device is in another task asks
// that task's worker for the value (InvalidArgument if the cluster has no such task); one whose
// source and destination are the same device, or whose source is in this task, is served here.
// An abort and a cancellation end the requests under way: the receiver gets the abort's status,
// or Cancelled "RecvAsync is cancelled", marked as derived.
// `workers` must outlive the manager and all its rendezvous.
std::unique_ptr<RendezvousManager> NewRemoteRendezvousManager(std::string task,
                                                              WorkerCache* workers);

// For steps of a cluster that knows this task under another name, or has other tasks, than the one
// that it was started in. What the steps have within this task is that of `own`, the manager of the
// task, where peers find it. What `find` uses (null: there are no peers) and `own` must outlive the
// manager and all its rendezvous; a worker is kept until it has answered. CleanupAll ends its own
// steps only.
std::unique_ptr<RendezvousManager> NewRenamedRendezvousManager(std::string task, FindWorker find,
                                                               RendezvousManager* own);

}  // namespace millrace

#endif  // DISTRIBUTED_RUNTIME_REMOTE_RENDEZVOUS_H_
