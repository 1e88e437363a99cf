// SPDX-License-Identifier: Apache-2.0
// The public Server: a task server with everything the engine has.
#include "millrace/server.h"

#include <utility>

#include "base/errors.h"
#include "base/options/engine_options.h"
#include "base/preemption/on_preemption.h"
#include "base/status_macros.h"
#include "distributed_runtime/service/control_service.h"
#include "distributed_runtime/task_server.h"
#include "millrace/preemption.h"
#include "runtime/gpu.h"
#include "runtime/graph_pages.h"
#include "runtime/registries.h"

namespace millrace {

namespace {

// Fields of `server`, and where they say nothing the environment.
StatusOr<EngineOptions> EngineOptionsFor(const ServerOptions& server) {
  if (server.step_memory_limit < -1) {
    return errors::InvalidArgument("ServerOptions.step_memory_limit (bytes) is ",
                                   server.step_memory_limit,
                                   ": set a number of bytes, 0 (no limit) or -1 (the environment)");
  }
  if (server.session_idle_limit.count() < -1) {
    return errors::InvalidArgument("ServerOptions.session_idle_limit (milliseconds) is ",
                                   server.session_idle_limit.count(),
                                   ": set a time, 0 (never) or -1 (the environment)");
  }
  MR_ASSIGN_OR_RETURN(EngineOptions engine, EngineOptions::FromEnvironment());
  if (server.step_memory_limit >= 0) engine.step_memory_limit = server.step_memory_limit;
  if (server.session_idle_limit.count() >= 0) engine.session_idle_limit = server.session_idle_limit;
  return engine;
}

}  // namespace

struct Server::Impl {
  std::unique_ptr<TaskServer> server;
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;

StatusOr<std::unique_ptr<Server>> Server::Create(const ServerOptions& options) {
  TaskServerOptions task;
  task.server = options;
  MR_ASSIGN_OR_RETURN(task.engine, EngineOptionsFor(options));
  task.ops = &AllOps();
  task.kernels = &AllKernels();
  task.devices = AllDeviceFactories();
  task.add_pages = &AddGraphPages;
  pb::ConfigProto config;
  MR_RETURN_IF_ERROR(ToConfig(GpuFieldsOf(options), &config));
  task.device_count.insert(config.device_count().begin(), config.device_count().end());
  MR_RETURN_IF_ERROR(AddGpus(config, &task.devices, &task.device_count));
  auto impl = std::make_unique<Impl>();
  MR_ASSIGN_OR_RETURN(impl->server, TaskServer::Create(task));
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Status Server::Start() { return impl_->server->Start(); }
Status Server::Stop(std::chrono::milliseconds grace) {
  return impl_->server->Stop(DeadlineAfter(grace));
}
// After a notice those whose values lie here have a moment to save them, and to say so.
void Server::WaitForShutdown() {
  constexpr std::chrono::seconds kSaveGrace{2};
  TaskServer& server = *impl_->server;
  if (PreemptionSignal() == 0) server.LimitWaits(kNoDeadline);
  const OnPreemption limit([&] { server.LimitWaits(DeadlineAfter(kSaveGrace)); });
  (void)server.WaitForShutdown(kNoDeadline);
}
bool Server::WaitForShutdown(std::chrono::milliseconds limit) {
  return impl_->server->WaitForShutdown(DeadlineAfter(limit));
}
std::string Server::target() const { return impl_->server->target(); }
std::string Server::address() const { return impl_->server->address(); }

Status ShutdownTask(const std::string& address, std::chrono::milliseconds limit) {
  std::string host;
  int port = 0;
  MR_RETURN_IF_ERROR(SplitAddress(address, &host, &port));
  return RequestShutdown(address, "the job is done", DeadlineAfter(limit));
}

}  // namespace millrace
