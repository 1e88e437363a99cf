// SPDX-License-Identifier: Apache-2.0
// A master whose steps are counted, logged and, on demand, traced.
#ifndef DISTRIBUTED_RUNTIME_PAGES_OBSERVED_MASTER_H_
#define DISTRIBUTED_RUNTIME_PAGES_OBSERVED_MASTER_H_

#include <memory>
#include <string>

#include "distributed_runtime/pages/step_tracer.h"
#include "observe/step_log.h"
#include "session/master_interface.h"

namespace millrace {

// For the master of the task `task`. All that is given must outlive it and its calls.
std::unique_ptr<MasterInterface> NewObservedMaster(MasterInterface* master, std::string task,
                                                   StepLog* log, StepTracer* tracer);

}  // namespace millrace

#endif  // DISTRIBUTED_RUNTIME_PAGES_OBSERVED_MASTER_H_
