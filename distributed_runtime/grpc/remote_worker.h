// The worker of another task, called over gRPC.
#ifndef DISTRIBUTED_RUNTIME_GRPC_REMOTE_WORKER_H_
#define DISTRIBUTED_RUNTIME_GRPC_REMOTE_WORKER_H_

#include <memory>
#include <string>

#include "base/thread_pool.h"
#include "distributed_runtime/link/link_hub.h"
#include "session/worker_interface.h"

namespace millrace {

// A stub for the worker of `task` at "host:port". Connects at the first call. Callbacks run on
// `pool`, which must outlive the stub. Destroying it cancels its calls and waits for them.
// Unavailable if the task cannot be reached or went away during a call; nothing is tried again.
// Steps go over a link where `links` can have one to the task; it may be null, and must outlive
// the stub's calls.
std::unique_ptr<WorkerInterface> NewGrpcRemoteWorker(const std::string& address, std::string task,
                                                     ThreadPool* pool, ThreadPool* control,
                                                     LinkHub* links = nullptr);

}  // namespace millrace

#endif  // DISTRIBUTED_RUNTIME_GRPC_REMOTE_WORKER_H_
