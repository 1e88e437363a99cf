// SPDX-License-Identifier: Apache-2.0
// What one step of this task waits for, in a form that says who and where.
#ifndef WORKER_STEP_WAITS_H_
#define WORKER_STEP_WAITS_H_

#include <cstdint>
#include <vector>

#include "base/cancellation.h"
#include "base/wait.h"
#include "proto/waits.pb.h"
#include "worker/worker_graph.h"

namespace millrace {

// Adds to the task's answer what is known of a step: what its nodes wait for, as they described it
// to what cancels them, the kernels and loops that its threads run, and `others`; or that nothing
// is known. `graph` and `cancellation` are the step's, which must not go meanwhile. `begun_nanos`
// by SteadyNanos(), 0: not known.
void AddStepWaits(int64_t step_id, int64_t begun_nanos, const WorkerGraph& graph,
                  const CancellationManager& cancellation, std::vector<Wait> others,
                  pb::TaskWaits* waits);

}  // namespace millrace

#endif  // WORKER_STEP_WAITS_H_
