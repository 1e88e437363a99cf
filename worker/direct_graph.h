// SPDX-License-Identifier: Apache-2.0
// What the worker of a task gives its master to run by itself.
#ifndef WORKER_DIRECT_GRAPH_H_
#define WORKER_DIRECT_GRAPH_H_

#include <memory>

#include "session/direct_run.h"
#include "session/worker_env.h"
#include "worker/worker_graph.h"

namespace millrace {

// `graph` was registered as a direct one; `env` outlives what this gives.
std::shared_ptr<DirectGraph> MakeDirectGraph(std::shared_ptr<WorkerGraph> graph,
                                             const WorkerEnv* env);

}  // namespace millrace

#endif  // WORKER_DIRECT_GRAPH_H_
