// SPDX-License-Identifier: Apache-2.0
#include "ranks/own_server.h"

#include <utility>

#include "base/errors.h"
#include "base/options/engine_options.h"
#include "base/status_macros.h"

namespace millrace {

StatusOr<SessionTarget> TargetFor(const std::string& target, const ResolvedTask& task,
                                  int cpu_devices, ServerOptions server) {
  SessionTarget made;
  made.target = target;
  if (!made.target.empty()) return made;
  server.cluster = task.cluster;
  server.job_name = *task.job_name;
  server.task_index = *task.task_index;
  server.num_cpu_devices = cpu_devices;
  server.visible_gpus = task.visible_gpus;
  if (server.cluster_id.empty()) {
    server.cluster_id = ProcessOptions::FromEnvironment().cluster_id;
  }
  MR_ASSIGN_OR_RETURN(made.server, Server::Create(server));
  MR_RETURN_IF_ERROR(made.server->Start());
  made.target = made.server->target();
  return made;
}

}  // namespace millrace
