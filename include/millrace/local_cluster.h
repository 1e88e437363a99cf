// SPDX-License-Identifier: Apache-2.0
// A cluster within this process, for tests and for trying things out: servers on free ports of the
// loopback.
//
//   auto cluster = millrace::LocalCluster::Start({.workers = 2, .ps = 1});
//   auto session = millrace::Session::Create(graph, {.target = (*cluster)->target("worker", 0)});
#ifndef MILLRACE_LOCAL_CLUSTER_H_
#define MILLRACE_LOCAL_CLUSTER_H_

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "millrace/cluster.h"
#include "millrace/server.h"
#include "millrace/status.h"

namespace millrace {

// Which tasks there are. Numbers of tasks begin with 0.
struct LocalClusterOptions {
  int workers = 1;     // tasks of the job "worker"
  int ps = 0;          // tasks of the job "ps"
  bool chief = false;  // whether there is a task 0 of the job "chief"
  // What every server has besides its cluster and its task.
  ServerOptions server{};
};

// Thread-safe.
class LocalCluster {
 public:
  // InvalidArgument for negative numbers, or none of any; what Server::Create and Start say.
  static StatusOr<std::unique_ptr<LocalCluster>> Start(const LocalClusterOptions& options = {});
  ~LocalCluster();  // stops all servers
  LocalCluster(const LocalCluster&) = delete;
  LocalCluster& operator=(const LocalCluster&) = delete;

  // The tasks with the addresses that were chosen; they stay the same. Valid as long as this.
  const ClusterSpec& spec() const { return spec_; }
  // "grpc://127.0.0.1:port"; "" if there is no such task.
  std::string target(std::string_view job, int task) const;

  // Stops the server of a task, or starts one at its address that knows nothing of the one before.
  // NotFound if there is no such task; FailedPrecondition if it is stopped, or runs, already.
  Status Stop(std::string_view job, int task,
              std::chrono::milliseconds grace = std::chrono::milliseconds(0));
  // Starts one anew: see Stop. Else what Server::Create and Start say.
  Status Restart(std::string_view job, int task);

 private:
  struct Servers;
  LocalCluster(ClusterSpec spec, ServerOptions options);

  const ClusterSpec spec_;
  const ServerOptions options_;
  const std::unique_ptr<Servers> servers_;
};

}  // namespace millrace

#endif  // MILLRACE_LOCAL_CLUSTER_H_
