// SPDX-License-Identifier: Apache-2.0
// The tasks that eager contexts name, over gRPC.
#ifndef DISTRIBUTED_RUNTIME_STUB_EAGER_TRANSPORT_H_
#define DISTRIBUTED_RUNTIME_STUB_EAGER_TRANSPORT_H_

#include <functional>
#include <memory>

#include "base/thread_pool.h"
#include "distributed_runtime/reach.h"
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
// transport; `credentials` (null: none) are what this task shows. `reach` says which addresses are
// called: calls to other tasks of a context fail with what it says. What `observe` (null: nothing)
// puts around workers must outlive their calls, as what it points to must. With credentials tasks
// of the server's own cluster are called where its spec has them, and not where a client says that
// they are: clients may reach them through proxies, which show the client's credentials.
std::unique_ptr<EagerTransport> NewGrpcEagerTransport(
    ThreadPool* pool, ThreadPool* control, RendezvousManager* rendezvous,
    WorkerInterface* own_worker, std::shared_ptr<const LoadedCredentials> credentials,
    const Reach* reach, ObserveWorkers observe = nullptr);

}  // namespace millrace

#endif  // DISTRIBUTED_RUNTIME_STUB_EAGER_TRANSPORT_H_
