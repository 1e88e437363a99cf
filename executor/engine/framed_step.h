// SPDX-License-Identifier: Apache-2.0
// A step of a graph with while loops: nodes run once per iteration of their frame.
#ifndef EXECUTOR_ENGINE_FRAMED_STEP_H_
#define EXECUTOR_ENGINE_FRAMED_STEP_H_

#include "executor/executor.h"

namespace millrace {

void RunFramedStep(const CompiledGraph& graph, const ExecutorArgs& args, DoneCallback done);

}  // namespace millrace

#endif  // EXECUTOR_ENGINE_FRAMED_STEP_H_
