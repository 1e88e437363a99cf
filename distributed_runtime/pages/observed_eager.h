// SPDX-License-Identifier: Apache-2.0
// The eager contexts of a task, watched: their runs are steps as those of the task's sessions are.
#ifndef DISTRIBUTED_RUNTIME_PAGES_OBSERVED_EAGER_H_
#define DISTRIBUTED_RUNTIME_PAGES_OBSERVED_EAGER_H_

#include <memory>

#include "distributed_runtime/pages/step_tracer.h"
#include "eager/observer.h"
#include "observe/step_log.h"

namespace millrace {

// Both must outlive the observer and the runs of which it is told.
std::unique_ptr<EagerObserver> NewObservedEager(StepLog* log, StepTracer* tracer);

}  // namespace millrace

#endif  // DISTRIBUTED_RUNTIME_PAGES_OBSERVED_EAGER_H_
