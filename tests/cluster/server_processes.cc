// SPDX-License-Identifier: Apache-2.0
#include "tests/cluster/server_processes.h"

#include <chrono>
#include <utility>

#include "base/notification.h"
#include "base/strings.h"
#include "distributed_runtime/task_server.h"
#include "gtest/gtest.h"
#include "session/async_join.h"
#include "tests/cluster/in_process_cluster.h"

namespace millrace::testing {
namespace {

using std::chrono::seconds;

CallOptions Soon() { return {.deadline = DeadlineAfter(seconds(60))}; }

}  // namespace

ServerProcesses::ServerProcesses(const std::vector<std::string>& flags) {
  // Somebody else may take a port in between: then others are tried.
  for (int attempt = 0; attempt < 5; ++attempt) {
    if (TryStart(flags)) return;
  }
  ADD_FAILURE() << "the servers do not come up: " << ps_->output() << worker_->output();
}

bool ServerProcesses::TryStart(const std::vector<std::string>& flags) {
  const std::vector<int> ports = FreePorts(2);
  const auto start = [&](const char* job) {
    std::vector<std::string> arguments = {
        "server", StrCat("--cluster_spec=ps|127.0.0.1:", ports[0], ",worker|127.0.0.1:", ports[1]),
        StrCat("--job_name=", job), "--task_id=0"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return std::make_unique<Process>("tools/millrace", arguments);
  };
  ps_ = start("ps");
  worker_ = start("worker");
  target_ = StrCat("grpc://127.0.0.1:", ports[1]);
  return ps_->WaitForOutput("listening on", seconds(30)) &&
         worker_->WaitForOutput("listening on", seconds(30));
}

std::shared_ptr<MasterInterface> ServerProcesses::Connect() const {
  StatusOr<std::shared_ptr<MasterInterface>> master = ConnectToMaster(target_);
  EXPECT_TRUE(master.ok()) << master.status();
  return master.ok() ? *std::move(master) : nullptr;
}

StatusOr<std::string> OpenSession(MasterInterface& master, const pb::GraphDef& graph,
                                  const pb::ConfigProto& config) {
  CreateSessionArgs args;
  args.graph = graph;
  args.config = config;
  CreateSessionResult result;
  const Status status =
      Await([&](auto done) { master.CreateSessionAsync(Soon(), std::move(args), &result, done); });
  if (!status.ok()) return status;
  return result.session_handle;
}

StatusOr<std::vector<Tensor>> RunStep(MasterInterface& master, RunStepArgs args) {
  RunStepResult result;
  const Status status =
      Await([&](auto done) { master.RunStepAsync(Soon(), &args, &result, done); });
  if (!status.ok()) return status;
  return std::move(result.fetches);
}

}  // namespace millrace::testing
