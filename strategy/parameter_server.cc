// SPDX-License-Identifier: Apache-2.0
// parameter_server: one graph with a replica on each worker and the variables on parameter servers.
// All replicas end a step together.
#include <algorithm>

#include "base/errors.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "ranks/own_server.h"
#include "strategy/devices.h"

namespace millrace {
namespace {

class ParameterServer : public Strategy {
 public:
  using Strategy::Layout;
  ParameterServer(Layout layout, Layout led, SessionTarget target)
      : Strategy(std::move(layout), std::move(led)), target_(std::move(target)) {}

 private:
  const SessionTarget target_;
};

Status CheckTasks(const ResolvedTask& task) {
  if (task.cluster.jobs().empty()) {
    return errors::InvalidArgument(
        "parameter_server needs a cluster with workers and parameter servers: give ",
        "StrategyOptions.task, or TF_CONFIG");
  }
  for (const auto& [job, tasks] : task.cluster.jobs()) {
    if (job == "worker" || job == "ps" || job == "chief" || job == "evaluator") continue;
    return errors::InvalidArgument("job '", job, "' of the cluster ", task.cluster.ToString(),
                                   " is none of parameter_server's: chief, worker and ps are");
  }
  for (const char* job : {"ps", "worker"}) {
    if (task.cluster.num_tasks(job) > 0) continue;
    return errors::InvalidArgument("There must be at least one ", job, ". (The cluster is ",
                                   task.cluster.ToString(), ")");
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::shared_ptr<Strategy>> ParameterServerStrategy(const StrategyOptions& options) {
  ResolvedTask task = options.task;
  if (task.cluster.jobs().empty()) {
    MR_ASSIGN_OR_RETURN(task, ResolveFromEnvironment());
  }
  MR_RETURN_IF_ERROR(CheckTasks(task));
  if (options.target.empty() && (!task.job_name || !task.task_index)) {
    return errors::InvalidArgument(
        "parameter_server opens its sessions at the server of a task: say which one this process ",
        "is, or give StrategyOptions.target");
  }
  if (!options.devices.empty()) {
    return errors::InvalidArgument(
        "parameter_server has a replica on each worker: leave StrategyOptions.devices out");
  }
  const int workers = task.cluster.num_tasks("worker");
  if (options.replicas != 0 && options.replicas != workers) {
    return errors::InvalidArgument("StrategyOptions.replicas is ", options.replicas,
                                   ", and the cluster has ", workers, " workers: leave it out");
  }
  std::vector<std::string> devices;
  for (const auto& [index, address] : task.cluster.jobs().at("worker")) {
    devices.push_back(StrCat("/job:worker/replica:0/task:", index, "/device:CPU:0"));
  }
  MR_ASSIGN_OR_RETURN(SessionTarget target, TargetFor(options.target, task, 1, options.server));
  const auto on_ps = [&](const std::string& worker) {
    return ReplicaDeviceSetter({.ps_tasks = task.cluster.num_tasks("ps"),
                                .ps_device = "/job:ps/replica:0",
                                .worker_device = worker,
                                .strategy = options.placement});
  };
  ParameterServer::Layout layout{.name = "parameter_server",
                                 .devices = devices,
                                 .replicas_in_sync = workers,
                                 .root_device = devices[0],
                                 .variable_device = on_ps(devices[0]),
                                 .variable_partitioner = options.variable_partitioner,
                                 .target = target.target,
                                 .cluster = task.cluster};
  // A coordinator's functions run on any worker: nothing may lie on one of them.
  ParameterServer::Layout led = layout;
  led.devices = {"/job:worker"};
  led.replicas_in_sync = 1;
  led.root_device = "/job:worker";
  led.variable_device = on_ps("/job:worker");
  led.is_led = true;
  auto made =
      std::make_shared<ParameterServer>(std::move(layout), std::move(led), std::move(target));
  MR_LOG(kInfo, "using ", made->Description(), " of the cluster ", task.cluster.ToString());
  return std::shared_ptr<Strategy>(made);
}

}  // namespace millrace
