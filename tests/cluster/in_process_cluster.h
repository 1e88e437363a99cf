// SPDX-License-Identifier: Apache-2.0
// A cluster of real servers on loopback ports, all in this process: what a test needs that
// is about several tasks but not about processes.
#ifndef TESTS_CLUSTER_IN_PROCESS_CLUSTER_H_
#define TESTS_CLUSTER_IN_PROCESS_CLUSTER_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "millrace/cluster.h"
#include "millrace/server.h"
#include "tests/cluster/free_ports.h"

namespace millrace::testing {

// Not thread-safe.
class InProcessCluster {
 public:
  // Changes the options of each server before it is made.
  using Configure = std::function<void(ServerOptions*)>;
  // Tasks /job:ps/task:0.. and /job:worker/task:0.., all started.
  InProcessCluster(int num_ps, int num_workers, Configure configure = nullptr);

  const ClusterSpec& spec() const { return spec_; }
  // "grpc://..." of a task's server.
  std::string Target(const std::string& job, int task) const;
  void Stop(const std::string& job, int task);
  // The task comes up again at its old address, with new incarnations and without state.
  void Start(const std::string& job, int task);

 private:
  bool TryStart(const std::string& job, int task);

  const Configure configure_;
  ClusterSpec spec_;
  std::map<std::pair<std::string, int>, std::unique_ptr<Server>> servers_;
};

}  // namespace millrace::testing

#endif  // TESTS_CLUSTER_IN_PROCESS_CLUSTER_H_
