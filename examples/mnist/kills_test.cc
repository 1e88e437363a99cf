// SPDX-License-Identifier: Apache-2.0
// Jobs under `millrace run` whose processes are killed again and again, whichever they are: they
// train on from the newest checkpoint, lose no more steps than lie between two, are told to end,
// and are ended by a later run; synchronous ones with the bits of a job that nobody disturbed.
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
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "examples/mnist/same_checkpoints.h"
#include "millrace/core.h"
#include "millrace/evaluator.h"
#include "millrace/saver.h"
#include "tests/cluster/process.h"

namespace millrace::mnist {
namespace {

using ::millrace::testing::ChildrenOf;
using ::millrace::testing::FreezeProcess;
using ::millrace::testing::Process;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kLimit{200};
constexpr int64_t kSaveSteps = 20;
constexpr int kLooks = 20;  // at a job that may be coming up again
constexpr const char* kRoles[] = {"job_name=ps", "job_name=worker", "job_name=evaluator"};

int Kills() {
  const char* const kills = std::getenv("MILLRACE_KILLS");
  return kills == nullptr ? 4 : std::max(1, std::atoi(kills));
}

// So long an asynchronous job stays within --save_steps of what is saved, however slowly its chief
// comes back; a synchronous one is held up as long by a step that waits for what was lost.
std::vector<std::string> Command(const std::string& folder, bool sync, int64_t train_steps) {
  // A task is killed again and again; that is no reason to wait for it longer each time.
  std::vector<std::string> command = {"run",
                                      "--ps=2",
                                      "--workers=2",
                                      "--evaluator=1",
                                      "--max_restarts=1000",
                                      "--backoff_ms=50",
                                      "--steady_ms=500"};
  command.insert(
      command.end(),
      {"examples/mnist_replica", "--job_name={job}", "--task_index={task}", "--ps_hosts={ps_hosts}",
       "--worker_hosts={worker_hosts}", "--batch_size=10", "--hidden_units=8", "--peer_timeout=3",
       StrCat("--ready_timeout=", sync ? 20 : 60), StrCat("--save_steps=", kSaveSteps),
       StrCat("--checkpoint_dir=", folder), StrCat("--train_steps=", train_steps)});
  if (sync) command.insert(command.end(), {"--sync_replicas", "--seed=7"});
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

// Processes that stand still until this goes.
class Standstill {
 public:
  explicit Standstill(std::vector<pid_t> processes) : processes_(std::move(processes)) {
    for (const pid_t process : processes_) FreezeProcess(process);
  }
  ~Standstill() {
    for (const pid_t process : processes_) ::kill(process, SIGCONT);
  }
  Standstill(const Standstill&) = delete;
  Standstill& operator=(const Standstill&) = delete;

 private:
  const std::vector<pid_t> processes_;
};

// The address of the job's first parameter server, which has the global step.
StatusOr<std::string> FirstServer(const Process& job) {
  for (const pid_t task : ChildrenOf(job.pid(), "job_name=ps")) {
    std::ifstream file(StrCat("/proc/", task, "/cmdline"));
    const std::string line{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    const std::string mark = "--ps_hosts=";
    const std::size_t at = line.find(mark);
    if (at == std::string::npos) continue;
    const std::string hosts = line.substr(at + mark.size());
    return hosts.substr(0, hosts.find_first_of(std::string(",\0", 2)));
  }
  return errors::Unavailable("no parameter server is up");
}

// The global step of a job whose workers stand still, once what they had begun has ended.
StatusOr<int64_t> StepOf(const Process& job) {
  MR_ASSIGN_OR_RETURN(const std::string address, FirstServer(job));
  Graph graph;
  const Output step = GlobalStep(graph.root().WithDevice("/job:ps/task:0")).read;
  SessionOptions options;
  options.target = "grpc://" + address;
  options.device_filters = {"/job:ps/task:0"};
  options.start_timeout = options.step_timeout = seconds(2);
  MR_ASSIGN_OR_RETURN(Session session, Session::Create(graph, options));
  int64_t last = -1;
  for (int same = 0; same < 3;) {
    MR_ASSIGN_OR_RETURN(const Tensor now, session.Eval(step));
    const int64_t value = now.scalar<int64_t>();
    same = value == last ? same + 1 : 0;
    last = value;
    std::this_thread::sleep_for(milliseconds(2));
  }
  return last;
}

// The workers of a job stand still, and what would be lost if its variables were lost now is what
// may be. Empty, with a failure of the test, if the global step cannot be read.
void ExpectLittleToLose(const Process& job, const std::string& folder,
                        std::optional<Standstill>* still, int64_t* most) {
  Status status;
  for (int look = 0; look < kLooks; ++look) {
    still->emplace(ChildrenOf(job.pid(), "job_name=worker"));
    const StatusOr<int64_t> step = StepOf(job);
    if (step.ok()) {
      const int64_t saved = CheckpointNumber(LatestCheckpoint(folder)).value_or(0);
      EXPECT_GE(*step, saved);
      EXPECT_LE(*step, saved + kSaveSteps);
      *most = std::max(*most, *step - saved);
      return;
    }
    status = step.status();
    still->reset();
    // A save that was under way at the last kill may have ended since; the next one cannot.
    const std::string newest = LatestCheckpoint(folder);
    ASSERT_NE(WaitForNewCheckpoint(folder, newest, kLimit, milliseconds(20)), "") << status;
  }
  FAIL() << status;
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
  int64_t most_ahead = 0;
  {
    LoggedJob job(folder + ".log", Command(folder, sync, 100'000'000));
    std::string newest;
    for (int kill = 0; kill < Kills(); ++kill) {
      // The chief is up, and has saved since the last kill.
      newest = WaitForNewCheckpoint(folder, newest, kLimit, milliseconds(20));
      ASSERT_NE(newest, "") << "nothing new is saved after kill " << kill << "\n" << job.output();
      std::this_thread::sleep_for(milliseconds(std::uniform_int_distribution<int>(0, 300)(random)));
      std::optional<Standstill> still;
      if (kill % 2 == 0) {
        ExpectLittleToLose(job.process(), folder, &still, &most_ahead);
        ASSERT_FALSE(HasFailure()) << "before kill " << kill << "\n" << job.output();
      }
      // One of each role first.
      const std::string role = kill < static_cast<int>(std::size(kRoles)) ? kRoles[kill] : "";
      const std::vector<pid_t> tasks = TasksOf(job.process(), role);
      ASSERT_FALSE(tasks.empty()) << job.output();
      const pid_t victim = tasks[random() % tasks.size()];
      ::kill(victim, SIGKILL);
      still.reset();
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
    RecordProperty("most_ahead", static_cast<int>(most_ahead));
  }
  const int64_t saved = CheckpointNumber(LatestCheckpoint(folder)).value_or(-1);
  ASSERT_GE(saved, kSaveSteps);
  const int64_t end = saved + 3 * kSaveSteps;
  Process again("tools/millrace", Command(folder, sync, end));
  EXPECT_EQ(again.WaitForEnd(kLimit), 0) << again.output();
  EXPECT_GE(CheckpointNumber(LatestCheckpoint(folder)).value_or(-1), end);
  EXPECT_NE(again.output().find(StrCat("Evaluator: ", LatestCheckpoint(folder))), std::string::npos)
      << "the evaluator takes the last one: " << again.output();
  if (!sync) return;
  const std::string undisturbed = folder + "_undisturbed";
  std::filesystem::remove_all(undisturbed);
  std::vector<std::string> command = Command(undisturbed, sync, end);
  command.emplace_back("--quiet");
  Process whole("tools/millrace", command);
  ASSERT_EQ(whole.WaitForEnd(kLimit), 0) << whole.output();
  ExpectSameBytes(folder, undisturbed, end);
}

}  // namespace
}  // namespace millrace::mnist
