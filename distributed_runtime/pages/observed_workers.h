// SPDX-License-Identifier: Apache-2.0
// The workers of a cluster, as a task calls them: what it asks of each is counted.
#ifndef DISTRIBUTED_RUNTIME_PAGES_OBSERVED_WORKERS_H_
#define DISTRIBUTED_RUNTIME_PAGES_OBSERVED_WORKERS_H_

#include <memory>

#include "distributed_runtime/pages/step_tracer.h"
#include "observe/peer_traffic.h"
#include "observe/step_log.h"
#include "session/worker_cache.h"

namespace millrace {

// Over `workers`. All that is given must outlive it and its workers' calls.
std::unique_ptr<WorkerCache> NewObservedWorkers(WorkerCache* workers, PeerTraffic* traffic,
                                                StepLog* log, StepTracer* tracer);

}  // namespace millrace

#endif  // DISTRIBUTED_RUNTIME_PAGES_OBSERVED_WORKERS_H_
