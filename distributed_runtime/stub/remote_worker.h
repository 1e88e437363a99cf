// SPDX-License-Identifier: Apache-2.0
// The worker of another task.
#ifndef DISTRIBUTED_RUNTIME_STUB_REMOTE_WORKER_H_
#define DISTRIBUTED_RUNTIME_STUB_REMOTE_WORKER_H_

#include <memory>
#include <string>

#include "base/thread_pool.h"
#include "session/worker_interface.h"
#include "transport/grpc/credentials.h"
#include "transport/link/link_hub.h"

namespace millrace {

// The worker of another task. Thread-safe.
class RemoteWorker : public WorkerInterface {
 public:
  // Whether the task has ever answered at its address.
  virtual bool has_answered() const = 0;
  // Whether a call that is no question for a sign of life waits for the task, over gRPC or a link.
  virtual bool waits() const = 0;
  // What it said of itself when it was asked for its status last: "Millrace 0.2.0", or "not
  // Millrace", or "unknown" before that.
  virtual std::string version() const = 0;
  // The task is lost: ends those calls with `why`.
  virtual void FailWaiting(const Status& why) = 0;
};

// A stub for the worker of `task` at "host:port". Connects at the first call. Callbacks run on
// `pool`, which must outlive the stub. Destroying it cancels its calls and waits for them.
// Unavailable if the task cannot be reached or went away during a call; nothing is tried again.
// Steps go over a link where `links` can have one to the task; it may be null, and must outlive
// the stub's calls. `identity` is what this task says of itself (peer_table.h), `credentials` (may
// be null) what it proves of itself: with TLS the answers are those of `task` or of nobody.
std::unique_ptr<RemoteWorker> NewGrpcRemoteWorker(
    const std::string& address, std::string task, ThreadPool* pool, ThreadPool* control,
    LinkHub* links = nullptr, std::string identity = "",
    std::shared_ptr<const LoadedCredentials> credentials = nullptr);

}  // namespace millrace

#endif  // DISTRIBUTED_RUNTIME_STUB_REMOTE_WORKER_H_
