// SPDX-License-Identifier: Apache-2.0
// A step on one thread: the sequential program of the graph from its first instruction to its
// last.
#ifndef EXECUTOR_ENGINE_SEQUENTIAL_STEP_H_
#define EXECUTOR_ENGINE_SEQUENTIAL_STEP_H_

#include "executor/executor.h"

namespace millrace {

// `graph` must have a sequential program; statistics are not kept.
void RunSequentialStep(const CompiledGraph& graph, const ExecutorArgs& args, DoneCallback done);

}  // namespace millrace

#endif  // EXECUTOR_ENGINE_SEQUENTIAL_STEP_H_
