// SPDX-License-Identifier: Apache-2.0
// Synchronous jobs under `millrace run` that lose all or one of their processes, or are told to end
// and started again, end with the checkpoint of a job that lost none, byte for byte.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/strings.h"
#include "examples/mnist/same_checkpoints.h"
#include "millrace/evaluator.h"
#include "millrace/saver.h"
#include "tests/cluster/process.h"

namespace millrace::mnist {
namespace {

using ::millrace::testing::ChildrenOf;
using ::millrace::testing::Process;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

constexpr seconds kLimit{200};
constexpr int64_t kSaveSteps = 50, kSteps = 900;
// A job that has ended, or all but, before a loaded machine let the test kill it for the last time
// proves nothing: then a longer one does, of at most so many steps.
constexpr int64_t kMostSteps = 64 * kSteps;

std::string EmptyFolder(const std::string& name) {
  const std::string folder = StrCat(::testing::TempDir(), "/sync_", name, "_", getpid());
  std::filesystem::remove_all(folder);
  return folder;
}

std::vector<std::string> Command(const std::string& folder, int num_ps, int64_t steps) {
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
          StrCat("--train_steps=", steps)};
}

// What a job that loses nothing ends with.
const std::string& Undisturbed(int64_t steps) {
  static auto* const folders = new std::map<int64_t, std::string>;
  std::string& folder = (*folders)[steps];
  if (folder.empty()) {
    folder = EmptyFolder(StrCat("undisturbed_", steps));
    Process job("tools/millrace", Command(folder, 2, steps));
    EXPECT_EQ(job.WaitForEnd(kLimit), 0) << job.output();
  }
  return folder;
}

// A process of a job, or -1 if the job ends without having it again; its command line has the two
// flags after each other.
pid_t TaskOf(Process& job, const std::string& name, int index) {
  std::string flags = "--job_name=" + name;
  flags.push_back('\0');
  StrAppend(&flags, "--task_index=", index);
  for (const auto limit = Clock::now() + kLimit; Clock::now() < limit;) {
    const std::vector<pid_t> tasks = ChildrenOf(job.pid(), flags);
    if (!tasks.empty()) return tasks.front();
    if (job.WaitForEnd(seconds(0)) != Process::kStillRunning) return -1;
    std::this_thread::sleep_for(milliseconds(2));
  }
  ADD_FAILURE() << "neither an end nor " << name << "/" << index << ": " << job.output();
  return -1;
}

int64_t Saved(const std::string& folder) {
  return CheckpointNumber(LatestCheckpoint(folder)).value_or(0);
}

// Until the checkpoint of that step, or a later one.
void AwaitSaved(const std::string& folder, int64_t step) {
  std::string newest;
  while (CheckpointNumber(newest).value_or(0) < step) {
    newest = WaitForNewCheckpoint(folder, newest, kLimit, milliseconds(2));
    ASSERT_NE(newest, "") << "nothing is saved any more";
  }
}

// Whether a job of so many steps that is killed by now had some of them before it.
bool IsAmidst(const std::string& folder, int64_t steps) {
  return Saved(folder) <= steps - 2 * kSaveSteps;
}

struct Kill {
  int64_t step;  // once it is saved
  milliseconds later;
  std::string job;
  int index;
};

// False if the job was too fast for one of the kills.
bool KillAmidst(Process& job, const std::string& folder, const Kill& k, int64_t steps) {
  AwaitSaved(folder, k.step);
  if (::testing::Test::HasFailure()) return true;
  std::this_thread::sleep_for(k.later);
  const pid_t task = TaskOf(job, k.job, k.index);
  if (task < 0) return false;
  kill(task, SIGKILL);
  return IsAmidst(folder, steps);
}

void KillAndCompare(const std::string& name, const std::vector<Kill>& kills) {
  for (int64_t steps = kSteps; steps <= kMostSteps; steps *= 4) {
    const std::string folder = EmptyFolder(name);
    Process job("tools/millrace", Command(folder, 2, steps));
    bool amidst = true;
    for (std::size_t i = 0; i < kills.size() && amidst; ++i) {
      SCOPED_TRACE(StrCat(kills[i].job, " ", kills[i].index, " after step ", kills[i].step));
      amidst = KillAmidst(job, folder, kills[i], steps);
      ASSERT_FALSE(::testing::Test::HasFailure()) << job.output();
    }
    ASSERT_EQ(job.WaitForEnd(kLimit), 0) << job.output();
    ExpectSameBytes(folder, Undisturbed(steps), steps);
    if (!amidst) continue;
    EXPECT_NE(job.output().find(": restored "), std::string::npos) << job.output();
    return;
  }
  FAIL() << "no job was long enough to be killed in";
}

TEST(SyncResume, AJobThatLosesNothingIsTheSameTwice) {
  const std::string folder = EmptyFolder("again");
  Process job("tools/millrace", Command(folder, 2, kSteps));
  ASSERT_EQ(job.WaitForEnd(kLimit), 0) << job.output();
  ExpectSameBytes(folder, Undisturbed(kSteps), kSteps);
}

// Ends a job as a whole, by kill -9 of all its processes or by SIGTERM, which leaves it time.
// The exit code.
int EndAll(Process& job, int signal) {
  const std::vector<pid_t> tasks = ChildrenOf(job.pid());
  job.Signal(signal);
  if (signal == SIGKILL) {
    for (const pid_t task : tasks) kill(task, SIGKILL);
  }
  return job.WaitForEnd(kLimit);
}

// Jobs of so many steps, each ended as a whole. False if one of them was too fast for that.
bool EndAllThrice(const std::string& folder, int64_t steps, int signal) {
  int num_ps = 1;
  for (const int64_t step : {kSaveSteps, 5 * kSaveSteps, 9 * kSaveSteps}) {
    Process job("tools/millrace", Command(folder, num_ps, steps));
    num_ps = 3 - num_ps;
    AwaitSaved(folder, step);
    if (::testing::Test::HasFailure()) std::puts(job.output().c_str());
    std::this_thread::sleep_for(milliseconds(step / 25));
    const int end = EndAll(job, signal);
    if (!IsAmidst(folder, steps)) return false;
    EXPECT_EQ(end, signal == SIGKILL ? -signal : 128 + signal) << job.output();
  }
  return true;
}

void EndAndCompare(const std::string& name, int signal) {
  for (int64_t steps = kSteps; steps <= kMostSteps; steps *= 4) {
    const std::string folder = EmptyFolder(name);
    const bool amidst = EndAllThrice(folder, steps, signal);
    ASSERT_FALSE(::testing::Test::HasFailure());
    if (!amidst) continue;
    Process job("tools/millrace", Command(folder, 2, steps));
    ASSERT_EQ(job.WaitForEnd(kLimit), 0) << job.output();
    EXPECT_NE(job.output().find(": restored "), std::string::npos) << job.output();
    return ExpectSameBytes(folder, Undisturbed(steps), steps);
  }
  FAIL() << "no job was long enough to be killed in";
}

TEST(SyncResume, AJobThatIsKilledAsAWholeGoesOnAsIfItHadNotBeen) {
  EndAndCompare("whole", SIGKILL);
}

// It saves whatever step it has come to.
TEST(SyncResume, AJobThatIsToldToEndGoesOnAsIfItHadNotBeen) { EndAndCompare("told", SIGTERM); }

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
