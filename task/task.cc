// SPDX-License-Identifier: Apache-2.0
#include "task/task.h"

#include <utility>

#include "base/status_macros.h"
#include "session/device_set.h"
#include "worker/task_collectives.h"

namespace millrace {

StatusOr<std::unique_ptr<Task>> Task::Open(TaskOptions options) {
  std::unique_ptr<Task> task(new Task);
  MR_ASSIGN_OR_RETURN(task->machines_,
                      TaskDevices::Open(options.factories, options.name, options.device_count));
  MR_ASSIGN_OR_RETURN(task->devices_, MakeDeviceSet(*task->machines_, options.intra_op_pool));
  WorkerEnv& env = task->env_;
  env.task = std::move(options.name);
  for (const auto& device : task->devices_->devices) env.devices.push_back(device.get());
  env.ops = options.ops;
  env.kernels = options.kernels;
  env.inter_op_pool = options.inter_op_pool;
  env.inter_op_pools = std::move(options.inter_op_pools);
  env.engine = options.engine;
  env.make_session_devices = [machines = task->machines_, pool = options.intra_op_pool] {
    return MakeDeviceSet(*machines, pool);
  };
  return task;
}

Task::~Task() = default;

void Task::Connect(WorkerCache* workers, std::unique_ptr<RendezvousManager> rendezvous,
                   std::string collective_leader) {
  rendezvous_ = std::move(rendezvous);
  env_.rendezvous = rendezvous_.get();
  env_.workers = workers;
  collectives_ = NewTaskCollectives(env_, std::move(collective_leader));
  env_.collectives = collectives_.get();
  worker_ = std::make_unique<LocalWorker>(env_);
}

void Task::Lead(MasterEnv master) {
  master.task = &env_;
  master.session_idle_limit = env_.engine.session_idle_limit;
  master_ = std::make_unique<Master>(std::move(master));
  env_.list_direct_waits = [this](pb::TaskWaits* waits) { master_->ListDirectWaits(waits); };
}

void Task::Stop(const Status& why) {
  master_ = nullptr;
  if (rendezvous_ != nullptr) rendezvous_->CleanupAll(why);
  if (collectives_ != nullptr) collectives_->CleanupAll(why);
  worker_ = nullptr;
}

}  // namespace millrace
