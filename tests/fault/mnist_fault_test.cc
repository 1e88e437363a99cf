// SPDX-License-Identifier: Apache-2.0
// mnist_replica with one of its processes killed: everybody else ends, in bounded time and
// saying whom it was about; or, in a cluster started by hand, goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/strings.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/cluster/process.h"

namespace millrace::testing {
namespace {

using std::chrono::seconds;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr char kProgram[] = "examples/mnist_replica";
// Nothing here takes a tenth of these on an idle machine.
constexpr seconds kStart{120}, kEnd{90};

// So many steps that only a failure ends the job.
std::vector<std::string> Endless(bool sync) {
  std::vector<std::string> flags = {"--train_steps=1000000000", "--batch_size=5",
                                    "--hidden_units=4"};
  if (sync) flags.push_back("--sync_replicas");
  return flags;
}

// The latest step that a worker's output tells of.
int LastStep(const std::string& output) {
  constexpr std::string_view kStep = "training step ";
  const std::size_t at = output.rfind(kStep);
  if (at == std::string::npos) return 0;
  // What was read last may end within the number: the line before has all of it.
  const std::size_t before = output.rfind(kStep, at == 0 ? 0 : at - 1);
  const std::size_t whole = before == std::string::npos ? at : before;
  return std::atoi(output.c_str() + whole + kStep.size());
}
// More lines than a pipe holds: a worker that printed so many more has gone on.
constexpr int kStepsInThePipe = 2'000;

// The process of a task among the launcher's; waits until it is there.
pid_t TaskOf(const Process& launcher, const std::string& job, int index) {
  const std::string phrase = "--job_name=" + job;
  const std::string task = "--task_index=" + std::to_string(index);
  const auto deadline = std::chrono::steady_clock::now() + kStart;
  while (std::chrono::steady_clock::now() < deadline) {
    for (const pid_t pid : ChildrenOf(launcher.pid(), phrase)) {
      for (const pid_t same : ChildrenOf(launcher.pid(), task)) {
        if (pid == same) return pid;
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ADD_FAILURE() << "there is no " << job << "/" << index;
  return -1;
}

enum class Moment { kAtOnce, kWhileTraining };

class LocalClusterOfProcesses : public ::testing::TestWithParam<std::tuple<bool, Moment>> {
 protected:
  void SetUp() override {
    AdoptOrphans();
    launcher_ = std::make_unique<Process>(kProgram, Endless(std::get<0>(GetParam())));
    // Every task is there, or trains.
    for (const auto& [job, index] : {std::pair{"ps", 0}, {"worker", 0}, {"worker", 1}}) {
      TaskOf(*launcher_, job, index);
    }
    if (std::get<1>(GetParam()) == Moment::kAtOnce) return;
    for (const char* worker : {"Worker 0: training step 3 ", "Worker 1: training step 3 "}) {
      ASSERT_TRUE(launcher_->WaitForOutput(worker, kStart)) << launcher_->output();
    }
  }
  void TearDown() override { EXPECT_TRUE(NoProcessIsLeft(kEnd)); }

  void ExpectFailureNaming(const std::string& task) {
    EXPECT_EQ(launcher_->WaitForEnd(kEnd), 1) << launcher_->output();
    EXPECT_THAT(launcher_->output(), HasSubstr("mnist_replica: " + task + " ended with signal 9"));
  }
  std::unique_ptr<Process> launcher_;
};

TEST_P(LocalClusterOfProcesses, EndsNamingAWorkerThatWasKilled) {
  kill(TaskOf(*launcher_, "worker", 1), SIGKILL);
  ExpectFailureNaming("worker/1");
}

TEST_P(LocalClusterOfProcesses, EndsNamingAChiefThatWasKilled) {
  kill(TaskOf(*launcher_, "worker", 0), SIGKILL);
  ExpectFailureNaming("worker/0");
}

TEST_P(LocalClusterOfProcesses, EndsNamingAPsThatWasKilled) {
  kill(TaskOf(*launcher_, "ps", 0), SIGKILL);
  ExpectFailureNaming("ps/0");
}

TEST_P(LocalClusterOfProcesses, DiesWithItsLauncher) {
  launcher_->Signal(SIGKILL);
  EXPECT_EQ(launcher_->WaitForEnd(kEnd), -SIGKILL);
}

TEST_P(LocalClusterOfProcesses, EndsOnCtrlC) {
  launcher_->Signal(SIGINT);
  EXPECT_EQ(launcher_->WaitForEnd(kEnd), 128 + SIGINT) << launcher_->output();
  EXPECT_THAT(launcher_->output(), HasSubstr("interrupted"));
}

INSTANTIATE_TEST_SUITE_P(Modes, LocalClusterOfProcesses,
                         ::testing::Combine(::testing::Bool(),
                                            ::testing::Values(Moment::kAtOnce,
                                                              Moment::kWhileTraining)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param) ? "sync" : "async") +
                                  (std::get<1>(info.param) == Moment::kAtOnce ? "AtOnce"
                                                                              : "WhileTraining");
                         });

// --- Tasks that were started by hand --------------------------------------------------------
class TasksStartedByHand : public ::testing::Test {
 protected:
  void SetUp() override {
    AdoptOrphans();
    const std::vector<int> ports = FreePorts(3);
    ps_ = StrCat("127.0.0.1:", ports[0]);
    workers_ = StrCat("127.0.0.1:", ports[1], ",127.0.0.1:", ports[2]);
  }
  void TearDown() override { EXPECT_TRUE(NoProcessIsLeft(kEnd)); }

  std::unique_ptr<Process> Start(const std::string& job, int index,
                                 std::vector<std::string> more = Endless(false)) {
    std::vector<std::string> flags = {"--job_name=" + job, "--task_index=" + std::to_string(index),
                                      "--ps_hosts=" + ps_, "--worker_hosts=" + workers_};
    flags.insert(flags.end(), more.begin(), more.end());
    return std::make_unique<Process>(kProgram, flags);
  }
  static void ExpectTraining(Process& worker, int step) {
    EXPECT_TRUE(worker.WaitForOutput(StrCat("training step ", step, " "), kStart))
        << worker.output();
  }
  // Who is told alone to end has not done its work, a ps neither: whatever starts tasks again
  // (millrace run, a container's restart policy) is to see that.
  static void Interrupt(Process& worker) {
    worker.Signal(SIGINT);
    EXPECT_EQ(worker.WaitForEnd(kEnd), 128 + SIGINT) << worker.output();
  }
  static void EndPs(Process& ps) {
    ps.Signal(SIGINT);
    EXPECT_EQ(ps.WaitForEnd(kEnd), 128 + SIGINT) << ps.output();
  }
  std::string ps_, workers_;
};

TEST_F(TasksStartedByHand, GoOnWithoutAWorkerThatWasKilled) {
  auto ps = Start("ps", 0), chief = Start("worker", 0), other = Start("worker", 1);
  ExpectTraining(*other, 2);
  ExpectTraining(*chief, 2);
  other->Signal(SIGKILL);
  EXPECT_EQ(other->WaitForEnd(kEnd), -SIGKILL);
  ExpectTraining(*chief, LastStep(chief->output()) + kStepsInThePipe);
  Interrupt(*chief);
  EndPs(*ps);
}

TEST_F(TasksStartedByHand, GoOnWhenAPsThatWasKilledComesBack) {
  auto ps = Start("ps", 0), chief = Start("worker", 0), other = Start("worker", 1);
  ExpectTraining(*other, 2);
  ExpectTraining(*chief, 2);
  ps->Signal(SIGKILL);
  EXPECT_EQ(ps->WaitForEnd(kEnd), -SIGKILL);
  // Both say for whom they wait.
  for (Process* worker : {chief.get(), other.get()}) {
    EXPECT_TRUE(worker->WaitForOutput("waiting for the cluster", kStart)) << worker->output();
    EXPECT_TRUE(worker->WaitForOutput("/job:ps/replica:0/task:0", kStart)) << worker->output();
  }
  ps = Start("ps", 0);
  // The new ps has no variables: steps are counted from its start.
  for (Process* worker : {chief.get(), other.get()}) {
    EXPECT_TRUE(worker->WaitForOutput("recovery 1 of", kStart)) << worker->output();
    EXPECT_TRUE(worker->WaitForOutput("(global step: 1", kStart));
  }
  Interrupt(*chief);
  Interrupt(*other);
  EndPs(*ps);
}

TEST_F(TasksStartedByHand, GiveUpOnAPsThatNeverComesAndNameIt) {
  auto chief = Start("worker", 0, {"--ready_timeout=2"});
  EXPECT_EQ(chief->WaitForEnd(kEnd), 1) << chief->output();
  EXPECT_THAT(chief->output(), HasSubstr("/job:ps/replica:0/task:0"));
}

TEST_F(TasksStartedByHand, GiveUpOnAChiefThatNeverComes) {
  auto ps = Start("ps", 0);
  // Until it has come as far as to ask for the variables before it gives up.
  std::unique_ptr<Process> other;
  for (int limit = 3; limit < 60; limit *= 2) {
    other = Start("worker", 1, {StrCat("--ready_timeout=", limit)});
    EXPECT_EQ(other->WaitForEnd(kEnd), 1) << other->output();
    if (other->output().find("gave up waiting for the chief") != std::string::npos) break;
  }
  EXPECT_THAT(other->output(), HasSubstr("gave up waiting for the chief"));
  EXPECT_THAT(other->output(), HasSubstr("hid_w @ /job:ps/task:0"));
  EndPs(*ps);
}

TEST_F(TasksStartedByHand, EndWithCodeZeroWhenTheJobIsDone) {
  const std::vector<std::string> few = {"--train_steps=20", "--batch_size=5", "--hidden_units=4"};
  auto ps = Start("ps", 0, few), chief = Start("worker", 0, few), other = Start("worker", 1, few);
  EXPECT_EQ(chief->WaitForEnd(kStart), 0) << chief->output();
  EXPECT_EQ(other->WaitForEnd(kStart), 0) << other->output();
  EXPECT_EQ(ps->WaitForEnd(kEnd), 0) << ps->output();
}

TEST_F(TasksStartedByHand, EndAtTheExactStepAlthoughAWorkerWasKilled) {
  // So long the chief waits for the others, at the start and, in vain, at the end.
  const std::vector<std::string> flags = {"--train_steps=10000", "--batch_size=5",
                                          "--hidden_units=4",    "--exact_steps",
                                          "--staleness_bound=3", "--ready_timeout=20"};
  auto ps = Start("ps", 0, flags), chief = Start("worker", 0, flags),
       other = Start("worker", 1, flags);
  ExpectTraining(*other, 2);
  other->Signal(SIGKILL);
  EXPECT_EQ(other->WaitForEnd(kEnd), -SIGKILL);
  EXPECT_EQ(chief->WaitForEnd(2 * kStart), 0) << chief->output();
  EXPECT_THAT(chief->output(), HasSubstr("the global step is 10000\n"));
  EXPECT_EQ(ps->WaitForEnd(kEnd), 0) << ps->output();
}

}  // namespace
}  // namespace millrace::testing
