// SPDX-License-Identifier: Apache-2.0
// One task of a cluster: its devices, its worker and its master, put together in one place for
// servers, which others reach, and for sessions of this process, which have a task to themselves.
#ifndef TASK_TASK_H_
#define TASK_TASK_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/options/engine_options.h"
#include "collective/collective_manager.h"
#include "device/device_factory.h"
#include "kernels/kernel_registry.h"
#include "master/master.h"
#include "millrace/status.h"
#include "ops/op_registry.h"
#include "session/master_env.h"
#include "session/worker_env.h"
#include "worker/local_worker.h"

namespace millrace {

class ThreadPool;  // base/thread_pool.h

// What is pointed to outlives the task.
struct TaskOptions {
  std::string name;  // "/job:J/replica:R/task:T"
  const OpRegistry* ops = nullptr;
  const KernelRegistry* kernels = nullptr;
  DeviceFactories factories;                // of what is not a CPU
  std::map<std::string, int> device_count;  // by type
  ThreadPool* intra_op_pool = nullptr;
  ThreadPool* inter_op_pool = nullptr;
  std::vector<ThreadPool*> inter_op_pools;  // see WorkerEnv
  EngineOptions engine;
};

// Made in the order Open, Connect, Lead; used by several threads after that, until Stop.
class Task {
 public:
  // Opens the devices. The status of the first that cannot be opened.
  static StatusOr<std::unique_ptr<Task>> Open(TaskOptions options);
  ~Task();

  // Makes the worker, which meets others through `workers` (not owned; may be made to know the
  // worker afterwards) and `rendezvous`. `collective_leader`: see NewTaskCollectives.
  void Connect(WorkerCache* workers, std::unique_ptr<RendezvousManager> rendezvous,
               std::string collective_leader);
  // Makes the master; `master.task` and `master.session_idle_limit` are set here.
  void Lead(MasterEnv master);
  // Closes the master's sessions, ends all steps with `why` and waits for them. No call may begin
  // meanwhile. Whatever was not made is left out.
  void Stop(const Status& why);

  // Of the task's first device, by which others tell that the task was restarted.
  uint64_t incarnation() const { return devices_->devices.front()->incarnation(); }
  // For what is asked of others; to be completed before the task runs its first step.
  WorkerEnv& env() { return env_; }
  RendezvousManager* rendezvous() { return rendezvous_.get(); }
  LocalWorker* worker() { return worker_.get(); }  // null before Connect and after Stop
  Master* master() { return master_.get(); }       // null before Lead and after Stop

 private:
  Task() = default;

  // Destroyed from the last to the first.
  std::shared_ptr<const TaskDevices> machines_;
  std::unique_ptr<DeviceSet> devices_;
  std::unique_ptr<RendezvousManager> rendezvous_;
  std::shared_ptr<CollectiveManager> collectives_;
  WorkerEnv env_;
  std::unique_ptr<LocalWorker> worker_;
  std::unique_ptr<Master> master_;
};

}  // namespace millrace

#endif  // TASK_TASK_H_
