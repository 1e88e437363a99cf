// SPDX-License-Identifier: Apache-2.0
// Jobs under `millrace run` whose processes are killed again and again, whichever they are: they
// train on from the newest checkpoint, lose no more steps than lie between two, are told to end,
// and are ended by a later run.
// MILLRACE_KILLS says how often (tools/ci_long: 50).
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/strings.h"
#include "millrace/evaluator.h"
#include "millrace/saver.h"
#include "tests/cluster/process.h"

namespace millrace::mnist {
namespace {

using ::millrace::testing::ChildrenOf;
using ::millrace::testing::Process;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kLimit{200};
constexpr int64_t kSaveSteps = 20;
constexpr const char* kRoles[] = {"job_name=ps", "job_name=worker", "job_name=evaluator"};

int Kills() {
  const char* const kills = std::getenv("MILLRACE_KILLS");
  return kills == nullptr ? 4 : std::max(1, std::atoi(kills));
}

// So long an asynchronous job stays within --save_steps of what is saved, however slowly its chief
// comes back; a synchronous one is held up as long by a step that waits for what was lost.
std::vector<std::string> Command(const std::string& folder, bool sync, int64_t train_steps) {
  std::vector<std::string> command = {
      "run", "--ps=2", "--workers=2", "--evaluator=1", "--max_restarts=1000", "--backoff_ms=50"};
  command.insert(
      command.end(),
      {"examples/mnist_replica", "--job_name={job}", "--task_index={task}", "--ps_hosts={ps_hosts}",
       "--worker_hosts={worker_hosts}", "--batch_size=10", "--hidden_units=8", "--peer_timeout=3",
       StrCat("--ready_timeout=", sync ? 20 : 60), StrCat("--save_steps=", kSaveSteps),
       StrCat("--checkpoint_dir=", folder), StrCat("--train_steps=", train_steps)});
  if (sync) command.emplace_back("--sync_replicas");
  return command;
}

// What a job has printed about steps: the greatest that was taken, and what was saved and restored.
struct Story {
  int64_t restores = 0;
  int64_t most_lost = 0;
  std::string error;
};

int64_t NumberAfter(std::string_view line, std::string_view mark) {
  const std::size_t at = line.find(mark);
  if (at == std::string_view::npos) return -1;
  std::string_view digits = line.substr(at + mark.size());
  digits = digits.substr(0, digits.find_first_not_of("0123456789"));
  int64_t number = -1;
  return ParseInt64(digits, &number) ? number : -1;
}

Story Read(const std::string& output) {
  Story story;
  int64_t saved = 0, reached = 0, restored = 0;
  for (const std::string_view line : StrSplit(output, '\n')) {
    const int64_t step = NumberAfter(line, "(global step: ");
    if (line.find("Evaluator: ") != std::string_view::npos) continue;
    if (line.find(": saved ") != std::string_view::npos) {
      saved = NumberAfter(line, "model.ckpt-");
    } else if (line.find(": restored ") != std::string_view::npos) {
      ++story.restores;
      restored = step;
      if (restored < saved) {
        story.error = StrCat("step ", saved, " was saved, but: ", line);
      }
      story.most_lost = std::max(story.most_lost, reached - restored);
      reached = restored;
    } else if (step >= 0) {
      // A line of a worker that had been on its way may come late.
      reached = std::max(reached, step);
    }
  }
  return story;
}

// `millrace run`, which writes into a file: nobody reads while the test waits for something else.
class LoggedJob {
 public:
  LoggedJob(const std::string& file, const std::vector<std::string>& arguments)
      : file_(file), process_("/bin/sh", Shell(file, arguments)) {}
  Process& process() { return process_; }
  std::string output() const {
    std::ifstream file(file_);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

 private:
  static std::vector<std::string> Shell(const std::string& file,
                                        const std::vector<std::string>& arguments) {
    std::vector<std::string> shell = {"-c", StrCat("exec \"$@\" > '", file, "' 2>&1"), "sh",
                                      "tools/millrace"};
    shell.insert(shell.end(), arguments.begin(), arguments.end());
    return shell;
  }

  const std::string file_;
  Process process_;
};

// The processes of a role; waits until there is one, which may be about to be started again.
std::vector<pid_t> TasksOf(const Process& job, const std::string& role) {
  std::vector<pid_t> tasks;
  const auto limit = std::chrono::steady_clock::now() + kLimit;
  while (tasks.empty() && std::chrono::steady_clock::now() < limit) {
    tasks = ChildrenOf(job.pid(), role);
  }
  return tasks;
}

class KilledJobs : public ::testing::TestWithParam<bool> {};

INSTANTIATE_TEST_SUITE_P(All, KilledJobs, ::testing::Bool(), [](const auto& info) {
  return std::string(info.param ? "Sync" : "Async");
});

TEST_P(KilledJobs, TrainOnFromTheNewestCheckpointWhicheverProcessIsKilled) {
  const bool sync = GetParam();
  const std::string folder =
      StrCat(::testing::TempDir(), "/killed_", sync ? "sync" : "async", "_", getpid());
  std::filesystem::remove_all(folder);
  std::mt19937 random(11);
  {
    LoggedJob job(folder + ".log", Command(folder, sync, 100'000'000));
    std::string newest;
    for (int kill = 0; kill < Kills(); ++kill) {
      // The chief is up, and has saved since the last kill.
      newest = WaitForNewCheckpoint(folder, newest, kLimit, milliseconds(20));
      ASSERT_NE(newest, "") << "nothing new is saved after kill " << kill << "\n" << job.output();
      std::this_thread::sleep_for(milliseconds(std::uniform_int_distribution<int>(0, 300)(random)));
      // One of each role first.
      const std::string role = kill < static_cast<int>(std::size(kRoles)) ? kRoles[kill] : "";
      const std::vector<pid_t> tasks = TasksOf(job.process(), role);
      ASSERT_FALSE(tasks.empty()) << job.output();
      const pid_t victim = tasks[random() % tasks.size()];
      ::kill(victim, SIGKILL);
      // What was saved while this process did not run is from before.
      newest = LatestCheckpoint(folder);
    }
    newest = WaitForNewCheckpoint(folder, newest, kLimit, milliseconds(20));
    ASSERT_NE(newest, "") << job.output();
    job.process().Signal(SIGTERM);
    EXPECT_EQ(job.process().WaitForEnd(kLimit), 128 + SIGTERM) << job.output();
    const Story story = Read(job.output());
    EXPECT_EQ(story.error, "") << job.output();
    EXPECT_LE(story.most_lost, kSaveSteps) << job.output();
    EXPECT_GE(story.restores, 1) << "a ps was killed: " << job.output();
    RecordProperty("restores", static_cast<int>(story.restores));
    RecordProperty("most_lost", static_cast<int>(story.most_lost));
  }
  const int64_t saved = CheckpointNumber(LatestCheckpoint(folder)).value_or(-1);
  ASSERT_GE(saved, kSaveSteps);
  const int64_t end = saved + 3 * kSaveSteps;
  Process again("tools/millrace", Command(folder, sync, end));
  EXPECT_EQ(again.WaitForEnd(kLimit), 0) << again.output();
  EXPECT_GE(CheckpointNumber(LatestCheckpoint(folder)).value_or(-1), end);
  EXPECT_NE(again.output().find(StrCat("Evaluator: ", LatestCheckpoint(folder))), std::string::npos)
      << "the evaluator takes the last one: " << again.output();
}

}  // namespace
}  // namespace millrace::mnist
