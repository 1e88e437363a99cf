// SPDX-License-Identifier: Apache-2.0
// The tasks that eager contexts name, over gRPC.
#ifndef DISTRIBUTED_RUNTIME_STUB_EAGER_TRANSPORT_H_
#define DISTRIBUTED_RUNTIME_STUB_EAGER_TRANSPORT_H_

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/thread_pool.h"
#include "eager/transport.h"
#include "session/rendezvous_manager.h"
#include "session/worker_cache.h"
#include "session/worker_interface.h"
#include "transport/grpc/credentials.h"

namespace millrace {

// Something around the workers of a context, which outlive it.
using ObserveWorkers = std::function<std::unique_ptr<WorkerCache>(WorkerCache*)>;

// Answers are given on `pool`, those to small questions on `control`. `rendezvous` is that of the
// task's own steps, `own_worker` what the contexts reach as their own task. All must outlive the
// transport; `credentials` (null: none) are what this task shows. What `observe` (null: nothing)
// puts around workers must outlive their calls, as what it points to must. Tasks of `proven`
// ("/job:J/replica:0/task:T" -> "host:port") are called there, and not where a client says that
// they are: clients may reach them through proxies, which show the client's credentials.
std::unique_ptr<EagerTransport> NewGrpcEagerTransport(
    ThreadPool* pool, ThreadPool* control, RendezvousManager* rendezvous,
    WorkerInterface* own_worker, std::shared_ptr<const LoadedCredentials> credentials,
    ObserveWorkers observe = nullptr, std::map<std::string, std::string> proven = {});

}  // namespace millrace

#endif  // DISTRIBUTED_RUNTIME_STUB_EAGER_TRANSPORT_H_
