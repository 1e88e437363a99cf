// SPDX-License-Identifier: Apache-2.0
// What a session's options let the graph of one device be rewritten to before it is compiled.
#ifndef WORKER_REWRITE_PART_H_
#define WORKER_REWRITE_PART_H_

#include "device/device.h"
#include "graph/dataflow_graph.h"
#include "millrace/status.h"
#include "proto/config.pb.h"
#include "session/worker_env.h"

namespace millrace {

// Opt level L0 switches all rewrites off; RewriterConfig's constant_folding,
// common_subgraph_elimination, arithmetic_optimization and dependency_optimization one kind
// each (the last: identities, and values that nobody reads), disable_meta_optimizer the last two.
// `remapping` is for fusion, of which EngineOptions::fusion is the default. Constants are
// computed by the device's own kernels.
Status RewritePart(const WorkerEnv& env, const pb::GraphOptions& options, Device* device,
                   DataflowGraph* graph);

}  // namespace millrace

#endif  // WORKER_REWRITE_PART_H_
