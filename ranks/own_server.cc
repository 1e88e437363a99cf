// SPDX-License-Identifier: Apache-2.0
#include "ranks/own_server.h"

#include <utility>

#include "base/errors.h"
#include "base/options/engine_options.h"
#include "base/status_macros.h"

namespace millrace {

void StopsGently::operator()(Server* server) const {
  server->Stop().IgnoreError();
  delete server;
}

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
  MR_ASSIGN_OR_RETURN(std::unique_ptr<Server> own, Server::Create(server));
  made.server.reset(own.release());
  MR_RETURN_IF_ERROR(made.server->Start());
  made.target = made.server->target();
  return made;
}

}  // namespace millrace
