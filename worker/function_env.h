// SPDX-License-Identifier: Apache-2.0
// What kernels of a step that has functions, and of the functions, run with.
#ifndef WORKER_FUNCTION_ENV_H_
#define WORKER_FUNCTION_ENV_H_

#include "kernels/kernel_context.h"

namespace millrace {

class StepStatsCollector;  // executor/stats/step_stats.h

// Every environment that has `functions` is one of these: what a call inherits.
struct FunctionEnv : StepEnv {
  int depth = 0;                        // of calls; 0: the step itself
  StepStatsCollector* stats = nullptr;  // null: nothing is recorded
};

}  // namespace millrace

#endif  // WORKER_FUNCTION_ENV_H_
