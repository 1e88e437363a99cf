// SPDX-License-Identifier: Apache-2.0
// A task that alone is told to end is started again by `millrace run`, whatever its role, and the
// job goes on; a job that is told to end as a whole starts nothing again.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/strings.h"
#include "millrace/saver.h"
#include "tests/cluster/process.h"

namespace millrace::mnist {
namespace {

using ::millrace::testing::ChildrenOf;
using ::millrace::testing::Process;
using std::chrono::seconds;
constexpr seconds kLimit{100};

std::string EmptyFolder(const std::string& name) {
  const std::string folder = StrCat(::testing::TempDir(), "/", name, "_", getpid());
  std::filesystem::remove_all(folder);
  return folder;
}

std::vector<std::string> Command(const std::string& folder) {
  return {"run",
          "--ps=1",
          "--workers=1",
          "--evaluator=1",
          "--max_restarts=3",
          "--backoff_ms=20",
          "examples/mnist_replica",
          "--job_name={job}",
          "--task_index={task}",
          "--ps_hosts={ps_hosts}",
          "--worker_hosts={worker_hosts}",
          "--batch_size=10",
          "--hidden_units=8",
          "--save_steps=20",
          "--peer_timeout=3",
          "--ready_timeout=40",
          "--quiet",
          "--train_steps=100000000",
          StrCat("--checkpoint_dir=", folder)};
}

// Ends the one task of a role; the launcher says so, in these words, and starts it again.
void ExpectStartedAgain(Process& job, const std::string& role) {
  const std::vector<pid_t> tasks = ChildrenOf(job.pid(), "job_name=" + role);
  ASSERT_EQ(tasks.size(), 1u) << job.output();
  kill(tasks[0], SIGTERM);
  const std::string line = StrCat(role, "/0 ended with exit code 143; restart 1");
  EXPECT_TRUE(job.WaitForOutput(line, kLimit)) << job.output();
}

TEST(ATaskThatAloneIsToldToEnd, IsStartedAgainAndTheJobGoesOn) {
  const std::string folder = EmptyFolder("mnist_one_told");
  Process job("tools/millrace", Command(folder));
  ASSERT_TRUE(job.WaitForOutput("Evaluator: " + folder, kLimit)) << job.output();
  ExpectStartedAgain(job, "ps");
  ASSERT_TRUE(job.WaitForOutput(": restored " + folder, kLimit)) << job.output();
  ExpectStartedAgain(job, "evaluator");
  const std::string newest = LatestCheckpoint(folder);
  EXPECT_NE(newest, "");
  ExpectStartedAgain(job, "worker");
  // All three are up once the chief has saved again and the evaluator has seen it.
  const std::size_t before = job.output().size();
  std::size_t seen = std::string::npos;
  for (const auto limit = std::chrono::steady_clock::now() + kLimit;
       seen == std::string::npos && std::chrono::steady_clock::now() < limit;) {
    job.WaitForOutput("a line that never comes", seconds(1));
    seen = job.output().find(": saved " + folder, before);
    if (seen != std::string::npos) seen = job.output().find("Evaluator: " + folder, seen);
  }
  EXPECT_NE(seen, std::string::npos) << job.output();
  // All are told by the launcher: none is started again.
  job.Signal(SIGTERM);
  EXPECT_EQ(job.WaitForEnd(kLimit), 128 + SIGTERM) << job.output();
  EXPECT_EQ(job.output().find("restart 2"), std::string::npos) << job.output();
}

}  // namespace
}  // namespace millrace::mnist
