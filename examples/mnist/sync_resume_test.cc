// SPDX-License-Identifier: Apache-2.0
// Synchronous jobs under `millrace run` that lose all or one of their processes end with the
// checkpoint of a job that lost none, byte for byte.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/strings.h"
#include "millrace/checkpoint.h"
#include "millrace/evaluator.h"
#include "millrace/saver.h"
#include "tests/cluster/process.h"

namespace millrace::mnist {
namespace {

using ::millrace::testing::ChildrenOf;
using ::millrace::testing::Process;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kLimit{60};
constexpr int64_t kSaveSteps = 50, kSteps = 900;

std::string EmptyFolder(const std::string& name) {
  const std::string folder = StrCat(::testing::TempDir(), "/sync_", name, "_", getpid());
  std::filesystem::remove_all(folder);
  return folder;
}

std::vector<std::string> Command(const std::string& folder, int num_ps) {
  return {"run",
          StrCat("--ps=", num_ps),
          "--workers=2",
          "--max_restarts=1000",
          "--backoff_ms=50",
          "examples/mnist_replica",
          "--job_name={job}",
          "--task_index={task}",
          "--ps_hosts={ps_hosts}",
          "--worker_hosts={worker_hosts}",
          "--sync_replicas",
          "--quiet",
          "--seed=7",
          "--batch_size=10",
          "--hidden_units=8",
          "--peer_timeout=3",
          "--ready_timeout=20",
          StrCat("--save_steps=", kSaveSteps),
          StrCat("--checkpoint_dir=", folder),
          StrCat("--train_steps=", kSteps)};
}

std::unique_ptr<CheckpointReader> LastOf(const std::string& folder) {
  const std::string newest = LatestCheckpoint(folder);
  EXPECT_EQ(CheckpointNumber(newest).value_or(-1), kSteps) << newest;
  auto reader = CheckpointReader::Open(newest);
  EXPECT_TRUE(reader.ok()) << reader.status();
  return reader.ok() ? *std::move(reader) : nullptr;
}

void ExpectSameBytes(const std::string& folder, const std::string& wanted_folder) {
  const auto got = LastOf(folder), wanted = LastOf(wanted_folder);
  ASSERT_TRUE(got != nullptr && wanted != nullptr);
  ASSERT_EQ(got->entries().size(), wanted->entries().size());
  // Weights and biases of two layers, two slots of each, two powers and the global step.
  ASSERT_GE(wanted->entries().size(), 15u);
  for (const CheckpointReader::Entry& entry : wanted->entries()) {
    const auto ours = got->Read(entry.name), theirs = wanted->Read(entry.name);
    ASSERT_TRUE(ours.ok() && theirs.ok()) << entry.name << ours.status() << theirs.status();
    ASSERT_EQ(ours->dtype(), theirs->dtype()) << entry.name;
    ASSERT_EQ(ours->num_bytes(), theirs->num_bytes()) << entry.name;
    EXPECT_EQ(std::memcmp(ours->raw_data(), theirs->raw_data(), ours->num_bytes()), 0)
        << entry.name << ": " << ours->DebugString() << ", not " << theirs->DebugString();
  }
}

// What a job that loses nothing ends with.
const std::string& Undisturbed() {
  static const std::string folder = [] {
    std::string name = EmptyFolder("undisturbed");
    Process job("tools/millrace", Command(name, 2));
    EXPECT_EQ(job.WaitForEnd(kLimit), 0) << job.output();
    return name;
  }();
  return folder;
}

// A process of a job; its command line has the two flags after each other.
pid_t TaskOf(const Process& job, const std::string& name, int index) {
  std::string flags = "--job_name=" + name;
  flags.push_back('\0');
  StrAppend(&flags, "--task_index=", index);
  const std::vector<pid_t> tasks = ChildrenOf(job.pid(), flags);
  return tasks.empty() ? -1 : tasks.front();
}

// Until the checkpoint of that step, or a later one.
void AwaitSaved(const std::string& folder, int64_t step) {
  std::string newest;
  while (CheckpointNumber(newest).value_or(0) < step) {
    newest = WaitForNewCheckpoint(folder, newest, kLimit, milliseconds(2));
    ASSERT_NE(newest, "") << "nothing is saved any more";
  }
}

struct Kill {
  int64_t step;  // once it is saved
  milliseconds later;
  std::string job;
  int index;
};

void KillAndCompare(const std::string& name, const std::vector<Kill>& kills) {
  const std::string folder = EmptyFolder(name);
  Process job("tools/millrace", Command(folder, 2));
  for (const Kill& k : kills) {
    SCOPED_TRACE(StrCat(k.job, " ", k.index, " after step ", k.step));
    AwaitSaved(folder, k.step);
    ASSERT_FALSE(::testing::Test::HasFailure()) << job.output();
    std::this_thread::sleep_for(k.later);
    const pid_t task = TaskOf(job, k.job, k.index);
    ASSERT_GT(task, 0) << "the job has ended too soon: " << job.output();
    kill(task, SIGKILL);
  }
  ASSERT_EQ(job.WaitForEnd(kLimit), 0) << job.output();
  EXPECT_NE(job.output().find(": restored "), std::string::npos) << job.output();
  ExpectSameBytes(folder, Undisturbed());
}

TEST(SyncResume, AJobThatLosesNothingIsTheSameTwice) {
  const std::string folder = EmptyFolder("again");
  Process job("tools/millrace", Command(folder, 2));
  ASSERT_EQ(job.WaitForEnd(kLimit), 0) << job.output();
  ExpectSameBytes(folder, Undisturbed());
}

TEST(SyncResume, AJobThatIsKilledAsAWholeGoesOnAsIfItHadNotBeen) {
  const std::string folder = EmptyFolder("whole");
  for (const int64_t step : {kSaveSteps, 5 * kSaveSteps, 9 * kSaveSteps}) {
    Process job("tools/millrace", Command(folder, 2));
    AwaitSaved(folder, step);
    ASSERT_FALSE(HasFailure()) << job.output();
    std::this_thread::sleep_for(milliseconds(step / 25));
    const std::vector<pid_t> tasks = ChildrenOf(job.pid());
    ASSERT_FALSE(tasks.empty()) << job.output();
    job.Signal(SIGKILL);
    for (const pid_t task : tasks) kill(task, SIGKILL);
    job.WaitForEnd(kLimit);
    ASSERT_LT(CheckpointNumber(LatestCheckpoint(folder)).value_or(kSteps), kSteps);
  }
  Process job("tools/millrace", Command(folder, 2));
  ASSERT_EQ(job.WaitForEnd(kLimit), 0) << job.output();
  EXPECT_NE(job.output().find(": restored "), std::string::npos) << job.output();
  ExpectSameBytes(folder, Undisturbed());
}

TEST(SyncResume, AJobThatLosesAWorkerGoesOnAsIfItHadNot) {
  KillAndCompare("worker", {{kSaveSteps, milliseconds(0), "worker", 1},
                            {4 * kSaveSteps, milliseconds(7), "worker", 1},
                            {8 * kSaveSteps, milliseconds(17), "worker", 1}});
}

TEST(SyncResume, AJobThatLosesItsChiefGoesOnAsIfItHadNot) {
  KillAndCompare("chief", {{kSaveSteps, milliseconds(0), "worker", 0},
                           {4 * kSaveSteps, milliseconds(7), "worker", 0},
                           {8 * kSaveSteps, milliseconds(17), "worker", 0}});
}

TEST(SyncResume, AJobThatLosesOneServerGoesOnAsIfItHadNot) {
  KillAndCompare("ps", {{kSaveSteps, milliseconds(0), "ps", 0},
                        {4 * kSaveSteps, milliseconds(7), "ps", 1},
                        {8 * kSaveSteps, milliseconds(17), "ps", 0}});
}

}  // namespace
}  // namespace millrace::mnist
