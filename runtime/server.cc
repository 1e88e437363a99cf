// The public Server: a task server with everything the engine has.
#include "millrace/server.h"

#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "distributed_runtime/service/control_service.h"
#include "distributed_runtime/task_server.h"
#include "runtime/gpu.h"
#include "runtime/graph_pages.h"
#include "runtime/registries.h"

namespace millrace {

struct Server::Impl {
  std::unique_ptr<TaskServer> server;
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;

StatusOr<std::unique_ptr<Server>> Server::Create(const ServerOptions& options) {
  TaskServerOptions task;
  task.server = options;
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
void Server::WaitForShutdown() { (void)impl_->server->WaitForShutdown(kNoDeadline); }
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
