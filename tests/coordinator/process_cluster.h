// SPDX-License-Identifier: Apache-2.0
// A cluster of server processes that a test kills, stops and starts again.
#ifndef TESTS_COORDINATOR_PROCESS_CLUSTER_H_
#define TESTS_COORDINATOR_PROCESS_CLUSTER_H_

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "millrace/cluster.h"
#include "tests/cluster/process.h"

namespace millrace::testing {

// Not thread-safe. The processes are killed by the destructor. The test needs //tools:millrace as
// data.
class ProcessCluster {
 public:
  // Tasks /job:ps/task:0.. and /job:worker/task:0.., all started. A failure of the test that runs
  // if they do not come up.
  ProcessCluster(int num_ps, int num_workers);
  ~ProcessCluster();

  const ClusterSpec& spec() const { return spec_; }
  // kill -9; returns when the process is gone.
  void Kill(const std::string& job, int task);
  // The task comes up again at its address, without state.
  void Start(const std::string& job, int task);
  // SIGSTOP; returns once the process stands still. SIGCONT.
  void Stop(const std::string& job, int task);
  void Continue(const std::string& job, int task);

 private:
  bool TryStart(const std::string& job, int task);

  ClusterSpec spec_;
  std::map<std::pair<std::string, int>, std::unique_ptr<Process>> processes_;
};

}  // namespace millrace::testing

#endif  // TESTS_COORDINATOR_PROCESS_CLUSTER_H_
