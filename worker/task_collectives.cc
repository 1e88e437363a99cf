// SPDX-License-Identifier: Apache-2.0
#include "worker/task_collectives.h"

#include <utility>

#include "base/deadline_timer.h"

namespace millrace {

std::shared_ptr<CollectiveManager> NewTaskCollectives(const WorkerEnv& env, std::string leader) {
  CollectiveOptions options;
  options.task = env.task;
  for (const Device* device : env.devices) options.devices.push_back(device->attributes());
  options.leader = std::move(leader);
  options.peer = [workers = env.workers](std::string_view task) -> CollectivePeer* {
    WorkerInterface* const worker = workers == nullptr ? nullptr : workers->GetWorker(task);
    return worker == nullptr ? nullptr : worker->collectives();
  };
  options.pool = env.inter_op_pool;
  options.at = [](Deadline deadline, std::function<void()> what) -> std::function<void()> {
    const DeadlineTimer::Token token = DeadlineTimer::Global().Schedule(deadline, std::move(what));
    return [token] { (void)DeadlineTimer::Global().Cancel(token); };
  };
  return NewCollectiveManager(std::move(options));
}

}  // namespace millrace
