// SPDX-License-Identifier: Apache-2.0
// A step of a graph without loops: every node runs at most once, so one preallocated block
// holds all that changes.
#ifndef EXECUTOR_ENGINE_FLAT_STEP_H_
#define EXECUTOR_ENGINE_FLAT_STEP_H_

#include "executor/executor.h"

namespace millrace {

// `graph` must have no frames.
void RunFlatStep(const CompiledGraph& graph, const ExecutorArgs& args, DoneCallback done);

}  // namespace millrace

#endif  // EXECUTOR_ENGINE_FLAT_STEP_H_
