// SPDX-License-Identifier: Apache-2.0
// A ps and a worker, each a process of `millrace server`, as users start them.
#ifndef TESTS_CLUSTER_SERVER_PROCESSES_H_
#define TESTS_CLUSTER_SERVER_PROCESSES_H_

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "proto/graph.pb.h"
#include "session/master_interface.h"
#include "tests/cluster/process.h"

namespace millrace::testing {

// Not thread-safe. The processes are killed by the destructor. The test needs //tools:millrace as
// data.
class ServerProcesses {
 public:
  // Both with `flags` behind those that make the cluster. A failure of the test that runs if they
  // do not come up.
  explicit ServerProcesses(const std::vector<std::string>& flags = {});

  // The master of the worker, over a connection of its own.
  std::shared_ptr<MasterInterface> Connect() const;
  std::vector<pid_t> pids() const { return {ps_->pid(), worker_->pid()}; }
  // Of the process with that index in pids(): as those of Process.
  void Freeze(int index) { (index == 0 ? ps_ : worker_)->Freeze(); }
  int WaitForEnd(int index, std::chrono::seconds limit) {
    return (index == 0 ? ps_ : worker_)->WaitForEnd(limit);
  }

 private:
  bool TryStart(const std::vector<std::string>& flags);

  std::unique_ptr<Process> ps_, worker_;
  std::string target_;
};

// Calls that wait for the answer, a minute at most. Sessions are not closed by anybody.
StatusOr<std::string> OpenSession(MasterInterface& master, const pb::GraphDef& graph,
                                  const pb::ConfigProto& config = {});
StatusOr<std::vector<Tensor>> RunStep(MasterInterface& master, RunStepArgs args);

}  // namespace millrace::testing

#endif  // TESTS_CLUSTER_SERVER_PROCESSES_H_
