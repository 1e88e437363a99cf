// SPDX-License-Identifier: Apache-2.0
#include "millrace/local_cluster.h"

#include <vector>

#include "base/errors.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace millrace {
namespace {

constexpr int kMostTasks = 256;
// Ports are chosen before all servers hold theirs, and somebody else may take one in between.
constexpr int kTries = 5;

StatusOr<std::unique_ptr<Server>> StartServer(const ClusterSpec& spec, const std::string& job,
                                              int task, ServerOptions options) {
  options.cluster = spec;
  options.job_name = job;
  options.task_index = task;
  MR_ASSIGN_OR_RETURN(std::unique_ptr<Server> server, Server::Create(options));
  MR_RETURN_IF_ERROR(server->Start());
  return server;
}

// Addresses with ports that were free when each was asked for, all at once.
StatusOr<ClusterSpec> ChooseAddresses(const std::map<std::string, int>& jobs,
                                      const ServerOptions& options) {
  ClusterSpec probe;
  MR_RETURN_IF_ERROR(probe.AddTask("probe", 0, "127.0.0.1:0"));
  std::vector<std::unique_ptr<Server>> holders;
  ClusterSpec spec;
  for (const auto& [job, count] : jobs) {
    for (int task = 0; task < count; ++task) {
      MR_ASSIGN_OR_RETURN(std::unique_ptr<Server> holder, StartServer(probe, "probe", 0, options));
      MR_RETURN_IF_ERROR(spec.AddTask(job, task, holder->address()));
      holders.push_back(std::move(holder));
    }
  }
  for (const std::unique_ptr<Server>& holder : holders) {
    MR_RETURN_IF_ERROR(holder->Stop(std::chrono::milliseconds(0)));
  }
  return spec;
}

}  // namespace

struct LocalCluster::Servers {
  Mutex mu;
  std::map<std::pair<std::string, int>, std::unique_ptr<Server>> by_task ABSL_GUARDED_BY(mu);
};

LocalCluster::LocalCluster(ClusterSpec spec, ServerOptions options)
    : spec_(std::move(spec)), options_(std::move(options)), servers_(std::make_unique<Servers>()) {}

LocalCluster::~LocalCluster() {
  MutexLock lock(&servers_->mu);
  servers_->by_task.clear();
}

StatusOr<std::unique_ptr<LocalCluster>> LocalCluster::Start(const LocalClusterOptions& options) {
  if (options.workers < 0 || options.ps < 0 || options.workers > kMostTasks ||
      options.ps > kMostTasks) {
    return errors::InvalidArgument("a local cluster of ", options.workers, " workers and ",
                                   options.ps, " ps: at most ", kMostTasks, " of each");
  }
  const std::map<std::string, int> jobs = {
      {"chief", options.chief ? 1 : 0}, {"ps", options.ps}, {"worker", options.workers}};
  if (!options.chief && options.workers + options.ps == 0) {
    return errors::InvalidArgument("a local cluster without any task");
  }
  Status status;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    MR_ASSIGN_OR_RETURN(ClusterSpec spec, ChooseAddresses(jobs, options.server));
    std::unique_ptr<LocalCluster> cluster(new LocalCluster(std::move(spec), options.server));
    status = OkStatus();
    for (const auto& [job, count] : jobs) {
      for (int task = 0; task < count && status.ok(); ++task) {
        status = cluster->Restart(job, task);
      }
    }
    if (status.ok()) return cluster;
    if (!errors::IsUnavailable(status)) return status;
  }
  return status;
}

std::string LocalCluster::target(std::string_view job, int task) const {
  const StatusOr<std::string> address = spec_.Address(job, task);
  return address.ok() ? StrCat("grpc://", *address) : std::string();
}

Status LocalCluster::Stop(std::string_view job, int task, std::chrono::milliseconds grace) {
  std::unique_ptr<Server> server;
  {
    MutexLock lock(&servers_->mu);
    const auto found = servers_->by_task.find({std::string(job), task});
    if (found != servers_->by_task.end()) {
      server = std::move(found->second);
      servers_->by_task.erase(found);
    }
  }
  if (server != nullptr) return server->Stop(grace);
  const StatusOr<std::string> address = spec_.Address(job, task);
  if (!address.ok()) return errors::NotFound(Message(address.status()));
  return errors::FailedPrecondition("/job:", job, "/task:", task, " is stopped already");
}

Status LocalCluster::Restart(std::string_view job, int task) {
  const StatusOr<std::string> address = spec_.Address(job, task);
  if (!address.ok()) return errors::NotFound(Message(address.status()));
  MutexLock lock(&servers_->mu);
  std::unique_ptr<Server>& server = servers_->by_task[{std::string(job), task}];
  if (server != nullptr) {
    return errors::FailedPrecondition("/job:", job, "/task:", task, " runs already");
  }
  StatusOr<std::unique_ptr<Server>> started = StartServer(spec_, std::string(job), task, options_);
  if (!started.ok()) {
    servers_->by_task.erase({std::string(job), task});
    return started.status();
  }
  server = std::move(*started);
  return OkStatus();
}

}  // namespace millrace
