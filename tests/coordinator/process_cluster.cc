// SPDX-License-Identifier: Apache-2.0
#include "tests/coordinator/process_cluster.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <chrono>
#include <thread>
#include <vector>

#include "base/strings.h"
#include "tests/cluster/free_ports.h"

namespace millrace::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kPatience{60};

}  // namespace

ProcessCluster::ProcessCluster(int num_ps, int num_workers) {
  // Somebody else may take a port before its server has it: then others are tried.
  for (int attempt = 0; attempt < 5; ++attempt) {
    processes_.clear();
    spec_ = ClusterSpec();
    const std::vector<int> ports = FreePorts(num_ps + num_workers);
    for (int i = 0; i < num_ps + num_workers; ++i) {
      const bool is_ps = i < num_ps;
      const Status added = spec_.AddTask(is_ps ? "ps" : "worker", is_ps ? i : i - num_ps,
                                         StrCat("127.0.0.1:", ports[i]));
      EXPECT_TRUE(added.ok()) << added;
    }
    bool started = true;
    for (const auto& [job, tasks] : spec_.jobs()) {
      for (const auto& [task, address] : tasks) started = started && TryStart(job, task);
    }
    if (started) return;
  }
  ADD_FAILURE() << "the servers do not come up";
}

ProcessCluster::~ProcessCluster() {
  for (const auto& [task, process] : processes_) process->Signal(SIGCONT);
}

bool ProcessCluster::TryStart(const std::string& job, int task) {
  auto process = std::make_unique<Process>(
      "tools/millrace",
      std::vector<std::string>{"server", StrCat("--cluster_spec=", spec_.ToString()),
                               StrCat("--job_name=", job), StrCat("--task_id=", task),
                               "--peer_timeout=2"});
  const bool started = process->WaitForOutput("listening on", kPatience);
  processes_[{job, task}] = std::move(process);
  return started;
}

void ProcessCluster::Kill(const std::string& job, int task) {
  Process& process = *processes_.at({job, task});
  process.Signal(SIGKILL);
  EXPECT_EQ(process.WaitForEnd(kPatience), -SIGKILL);
}

void ProcessCluster::Start(const std::string& job, int task) {
  for (int attempt = 0; attempt < 5; ++attempt) {
    if (TryStart(job, task)) return;
    std::this_thread::sleep_for(milliseconds(200));
  }
  ADD_FAILURE() << job << "/" << task << " does not come up again";
}

void ProcessCluster::Stop(const std::string& job, int task) {
  processes_.at({job, task})->Freeze();
}

void ProcessCluster::Continue(const std::string& job, int task) {
  processes_.at({job, task})->Signal(SIGCONT);
}

}  // namespace millrace::testing
