// SPDX-License-Identifier: Apache-2.0
// What sessions that train and evaluators do when the process is to end.
#include "millrace/preemption.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

#include "base/errors.h"
#include "millrace/evaluator.h"
#include "millrace/monitored_session.h"
#include "millrace/saver.h"
#include "millrace/supervisor.h"
#include "tests/monitored_sessions/golden.h"

namespace millrace::testing {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// Far more than what a test waits for, and far less than what is waited for without a notice.
constexpr std::chrono::seconds kSoon{30};
constexpr milliseconds kForever{600'000};

class PreemptionTest : public ::testing::Test {
 protected:
  ~PreemptionTest() override { ForgetPreemption(); }

  // What `wait` returns if the notice comes while it waits; it has to return soon after.
  template <typename Wait>
  static auto Interrupted(Wait wait) {
    std::thread notice([] {
      std::this_thread::sleep_for(milliseconds(300));
      NoticePreemption();
    });
    const auto start = Clock::now();
    auto result = wait();
    EXPECT_LT(Clock::now() - start, kSoon);
    notice.join();
    return result;
  }
};

TEST_F(PreemptionTest, AMonitoredSessionStopsAndIsSavedAtItsLastStep) {
  const TestDirectory directory("monitored");
  TrainingGraph g;
  MonitoredTrainingOptions options;
  options.checkpoint_dir = directory.path();
  options.save_checkpoint_steps = 1000;
  auto session = MonitoredTrainingSession(g.graph, options);
  ASSERT_TRUE(session.ok()) << session.status();
  int steps = 0;
  const Status ended = (*session)->RunUntilStop([&] {
    // Between two steps, and not while a hook looks.
    if (++steps == 4) NoticePreemption();
    return (*session)->RunTargets({g.train.op()});
  });
  EXPECT_TRUE(ended.ok()) << ended;
  EXPECT_EQ(steps, 4);
  EXPECT_TRUE(LatestCheckpoint(directory.path()).ends_with("model.ckpt-4"))
      << LatestCheckpoint(directory.path());
}

TEST_F(PreemptionTest, AMonitoredSessionThatSavesNothingStopsAsWell) {
  TrainingGraph g;
  MonitoredTrainingOptions options;
  options.is_chief = true;
  auto session = MonitoredTrainingSession(g.graph, options);
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_FALSE((*session)->ShouldStop());
  NoticePreemption(SIGUSR1);
  EXPECT_TRUE((*session)->ShouldStop());
  // A step of a loop that does not ask in its middle still runs.
  EXPECT_TRUE((*session)->RunTargets({g.train.op()}).ok());
  EXPECT_TRUE((*session)->Close().ok());
  EXPECT_EQ(PreemptionExitCode(), 128 + SIGUSR1);
  EXPECT_TRUE(errors::IsCancelled(CheckPreemption()));
}

TEST_F(PreemptionTest, WhoWaitsForTheChiefEnds) {
  TrainingGraph g;
  MonitoredTrainingOptions options;
  options.is_chief = false;  // and nobody initialises
  options.max_wait = options.recovery_wait = kForever;
  const Status status =
      Interrupted([&] { return MonitoredTrainingSession(g.graph, options).status(); });
  EXPECT_TRUE(errors::IsCancelled(status)) << status;
}

TEST_F(PreemptionTest, ASupervisorStopsAndSaves) {
  const TestDirectory directory("supervisor");
  TrainingGraph g;
  SupervisorOptions options;
  options.logdir = directory.path();
  options.save_model_time = options.save_summaries_time = kForever;
  const auto supervisor = Supervisor::Create(g.graph, options);
  ASSERT_TRUE(supervisor.ok()) << supervisor.status();
  int steps = 0;
  const Status ended = (*supervisor)->RunUntilStop([&](Session& session) {
    if (++steps == 5) NoticePreemption();
    return session.Run({}, {g.train}).status();
  });
  EXPECT_TRUE(ended.ok()) << ended;
  EXPECT_EQ(steps, 5);
  EXPECT_TRUE(LatestCheckpoint(directory.path()).ends_with("model.ckpt-5"))
      << LatestCheckpoint(directory.path());
}

TEST_F(PreemptionTest, AnEvaluatorThatWaitsEnds) {
  const TestDirectory directory("evaluator");
  SidecarOptions options;
  options.directory = directory.path();
  options.poll = kForever;
  options.last_number = 100;
  const auto counts = Interrupted(
      [&] { return RunSidecarEvaluator(options, [](const std::string&) { return OkStatus(); }); });
  ASSERT_TRUE(counts.ok()) << counts.status();
  EXPECT_EQ(counts->evaluated, 0);
  EXPECT_EQ(WaitForNewCheckpoint(directory.path(), "", std::nullopt, kForever), "");
}

// A process of its own: the signals are real ones.
TEST_F(PreemptionTest, TheFirstSignalIsANoticeAndTheSecondEndsTheProcess) {
  for (const bool again : {false, true}) {
    const pid_t child = fork();
    if (child == 0) {
      if (!WatchForPreemption({SIGTERM}).ok()) _exit(1);
      raise(SIGTERM);
      if (again) raise(SIGTERM);
      _exit(PreemptionExitCode());
    }
    int end = 0;
    ASSERT_EQ(waitpid(child, &end, 0), child);
    if (again) {
      EXPECT_TRUE(WIFSIGNALED(end) && WTERMSIG(end) == SIGTERM) << end;
    } else {
      EXPECT_TRUE(WIFEXITED(end) && WEXITSTATUS(end) == 143) << end;
    }
  }
}

}  // namespace
}  // namespace millrace::testing
