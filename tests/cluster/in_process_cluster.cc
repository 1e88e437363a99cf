// SPDX-License-Identifier: Apache-2.0
#include "tests/cluster/in_process_cluster.h"

#include <gtest/gtest.h>

#include "base/strings.h"

namespace millrace::testing {

InProcessCluster::InProcessCluster(int num_ps, int num_workers, Configure configure)
    : configure_(std::move(configure)) {
  // Somebody else may take a port before its server has it: then others are tried.
  for (int attempt = 0; attempt < 10; ++attempt) {
    servers_.clear();
    spec_ = ClusterSpec();
    bool started = true;
    const std::vector<int> ports = FreePorts(num_ps + num_workers);
    for (int i = 0; i < num_ps + num_workers; ++i) {
      const bool is_ps = i < num_ps;
      const Status added = spec_.AddTask(is_ps ? "ps" : "worker", is_ps ? i : i - num_ps,
                                         StrCat("127.0.0.1:", ports[i]));
      EXPECT_TRUE(added.ok()) << added;
    }
    for (const auto& [job, tasks] : spec_.jobs()) {
      for (const auto& [task, address] : tasks) started = started && TryStart(job, task);
    }
    if (started) return;
  }
  ADD_FAILURE() << "no free ports were found";
}

bool InProcessCluster::TryStart(const std::string& job, int task) {
  ServerOptions options;
  options.cluster = spec_;
  options.job_name = job;
  options.task_index = task;
  options.inter_op_threads = 2;
  options.intra_op_threads = 1;
  if (configure_ != nullptr) configure_(&options);
  StatusOr<std::unique_ptr<Server>> server = Server::Create(options);
  EXPECT_TRUE(server.ok()) << server.status();
  if (!server.ok() || !(*server)->Start().ok()) return false;
  servers_[{job, task}] = *std::move(server);
  return true;
}

std::string InProcessCluster::Target(const std::string& job, int task) const {
  return servers_.at({job, task})->target();
}

void InProcessCluster::Stop(const std::string& job, int task) {
  const auto it = servers_.find({job, task});
  ASSERT_NE(it, servers_.end());
  const Status stopped = it->second->Stop(std::chrono::milliseconds(0));
  EXPECT_TRUE(stopped.ok()) << stopped;
  servers_.erase(it);
}

void InProcessCluster::Start(const std::string& job, int task) {
  EXPECT_TRUE(TryStart(job, task)) << "the old port of " << job << "/" << task << " is taken";
}

}  // namespace millrace::testing
