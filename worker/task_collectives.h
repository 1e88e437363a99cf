// SPDX-License-Identifier: Apache-2.0
// The collectives of a task, put together from what its worker is given.
#ifndef WORKER_TASK_COLLECTIVES_H_
#define WORKER_TASK_COLLECTIVES_H_

#include <memory>
#include <string>

#include "collective/collective_manager.h"
#include "session/worker_env.h"

namespace millrace {

// For a task with its devices, pool and peers set; `leader` is what its own configuration says
// (may be ""). What `env` points to must outlive the last step.
std::shared_ptr<CollectiveManager> NewTaskCollectives(const WorkerEnv& env, std::string leader);

}  // namespace millrace

#endif  // WORKER_TASK_COLLECTIVES_H_
