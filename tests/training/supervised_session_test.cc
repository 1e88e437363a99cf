// SPDX-License-Identifier: Apache-2.0
// Sessions of a job: who initialises, who waits and is told why, and what a lost task costs.
#include "millrace/supervised_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/errors.h"
#include "base/mutex.h"
#include "base/notification.h"
#include "base/strings.h"
#include "millrace/core.h"
#include "tests/cluster/in_process_cluster.h"

namespace millrace::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

// Far more than anything here takes; what must end earlier is told a deadline of its own.
constexpr seconds kPatience{30};

std::string Text(const Status& status) { return std::string(Message(status)); }

// The reasons a task was given for waiting. Thread-safe.
class Reasons {
 public:
  void Add(const std::string& reason) {
    MutexLock lock(&mu_);
    reasons_.push_back(reason);
    added_.SignalAll();
  }
  // False if no reason that contains `phrase` comes in time.
  bool WaitFor(const std::string& phrase) {
    const Deadline deadline = DeadlineAfter(kPatience);
    MutexLock lock(&mu_);
    while (true) {
      for (const std::string& reason : reasons_) {
        if (reason.find(phrase) != std::string::npos) return true;
      }
      if (!added_.WaitUntil(&mu_, deadline)) return false;
    }
  }
  std::vector<std::string> all() {
    MutexLock lock(&mu_);
    return reasons_;
  }

 private:
  Mutex mu_;
  CondVar added_;
  std::vector<std::string> reasons_ ABSL_GUARDED_BY(mu_);
};

// w on ps 0 and v on ps 1 (if there is one), both 1 at first; add: w += 1.
struct Program {
  Program(const InProcessCluster& cluster, int worker) {
    ReplicaDeviceSetterOptions setter;
    setter.ps_tasks = cluster.spec().num_tasks("ps");
    setter.worker_device = StrCat("/job:worker/task:", worker);
    const Scope root = graph.root().WithDevice(ReplicaDeviceSetter(setter));
    const Tensor one = Tensor::Scalar(1.0f);
    w = MakeVariable(root, "w", Constant(root, one));
    v = MakeVariable(root, "v", Constant(root, one));
    add = AssignAdd(root, w, one);
    init = InitializeVariables(root);
    not_ready = ReportUninitializedVariables(root);
    options.session.target = cluster.Target("worker", worker);
    options.is_chief = worker == 0;
    options.init_op = init;
    options.not_ready = not_ready;
    options.ready_timeout = kPatience;
    options.on_wait = [this](const std::string& reason) { reasons.Add(reason); };
  }
  StatusOr<std::unique_ptr<SupervisedSession>> Open() {
    return SupervisedSession::Create(graph, options);
  }

  Graph graph;
  Variable w, v;
  Operation add, init;
  Output not_ready;
  Reasons reasons;
  SupervisedSessionOptions options;
};

float ReadW(SupervisedSession& session, const Program& program) {
  const auto value = session.Run({}, std::span(&program.w.read, 1));
  EXPECT_TRUE(value.ok()) << value.status();
  return value.ok() ? (*value)[0].scalar<float>() : -1;
}

Status Add(SupervisedSession& session, const Program& program) {
  return session.Run({}, {}, std::span(&program.add, 1)).status();
}

TEST(SupervisedSession, OfTheChiefInitialisesTheVariables) {
  InProcessCluster cluster(2, 1);
  Program chief(cluster, 0);
  const auto session = chief.Open();
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ(ReadW(**session, chief), 1);
  EXPECT_THAT(chief.reasons.all(), ::testing::IsEmpty());
}

TEST(SupervisedSession, OfAnotherWorkerWaitsForTheChiefAndIsToldForWhat) {
  InProcessCluster cluster(2, 2);
  Program chief(cluster, 0), other(cluster, 1);
  Notification opened;
  std::thread waiter([&] {
    const auto session = other.Open();
    opened.Notify();
    ASSERT_TRUE(session.ok()) << session.status();
    EXPECT_EQ(ReadW(**session, other), 1);
  });
  EXPECT_TRUE(other.reasons.WaitFor("2 variable(s)"));
  EXPECT_FALSE(opened.HasBeenNotified());
  const auto session = chief.Open();
  waiter.join();
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_THAT(other.reasons.all(),
              Contains(AllOf(HasSubstr("chief"), HasSubstr("w @ /job:ps/task:0"),
                             HasSubstr("v @ /job:ps/task:1"))));
}

// Waiting costs the cluster nothing: the chief's signal ends it.
TEST(SupervisedSession, OfAnotherWorkerDoesNotAskAgainAndAgain) {
  InProcessCluster cluster(2, 2);
  Program chief(cluster, 0), other(cluster, 1);
  const Scope root = other.graph.root().WithDevice("/job:worker/task:1");
  const Output asked = ops::FIFOQueueV2(root, {kBool});
  const Operation count = ops::QueueEnqueueV2(root, asked, {Input(true)});
  const Output times = ops::QueueSizeV2(root, asked);
  other.options.not_ready = ops::Identity(root.WithControlDependencies({count}), other.not_ready);
  int32_t asked_times = 0;
  const int64_t begin = SteadyNanos();
  std::thread waiter([&] {
    const auto session = other.Open();
    ASSERT_TRUE(session.ok()) << session.status();
    const auto value = (*session)->Run({}, std::span(&times, 1));
    ASSERT_TRUE(value.ok()) << value.status();
    asked_times = (*value)[0].scalar<int32_t>();
  });
  EXPECT_TRUE(other.reasons.WaitFor("2 variable(s)"));
  std::this_thread::sleep_for(milliseconds(1500));  // what is counted may only grow by waiting
  const auto session = chief.Open();
  waiter.join();
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_GE(asked_times, 2);
  // Every 20 ms would be five times as many. A loaded machine makes all of it take longer.
  EXPECT_LE(asked_times, 5 + (SteadyNanos() - begin) / 100'000'000);
}

// A chief of another kind (a stock TensorFlow client, say) gives no signal.
TEST(SupervisedSession, OfAnotherWorkerComesUpWithVariablesThatNobodyAnnounced) {
  InProcessCluster cluster(2, 2);
  Program silent(cluster, 0), other(cluster, 1);
  std::thread waiter([&] {
    const auto session = other.Open();
    EXPECT_TRUE(session.ok()) << session.status();
  });
  EXPECT_TRUE(other.reasons.WaitFor("2 variable(s)"));
  auto session = Session::Create(silent.graph, {.target = cluster.Target("worker", 0)});
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_TRUE(session->RunTargets({silent.init}).ok());
  waiter.join();
}

TEST(SupervisedSession, WithoutAChiefEndsAtItsDeadlineNamingWhatIsMissing) {
  InProcessCluster cluster(2, 2);
  // Until it has come as far as to ask for the variables before its deadline.
  Status status;
  for (milliseconds wait(300); wait < kPatience; wait *= 2) {
    Program other(cluster, 1);
    other.options.ready_timeout = wait;
    const int64_t begin = SteadyNanos();
    status = other.Open().status();
    const int64_t took = SteadyNanos() - begin;
    EXPECT_TRUE(errors::IsDeadlineExceeded(status)) << status;
    EXPECT_GE(took, wait.count() * 1'000'000);
    EXPECT_LT(took, wait.count() * 1'000'000 + 15'000'000'000);
    if (!other.reasons.all().empty()) break;
  }
  EXPECT_THAT(Text(status),
              AllOf(HasSubstr("w @ /job:ps/task:0"), HasSubstr("v @ /job:ps/task:1")));
}

TEST(SupervisedSession, NeverInitialisesAVariableAgain) {
  InProcessCluster cluster(1, 1);
  {
    Program chief(cluster, 0);
    const auto session = chief.Open();
    ASSERT_TRUE(session.ok()) << session.status();
    ASSERT_TRUE(Add(**session, chief).ok());
    ASSERT_TRUE((*session)->Stop().ok());
  }
  Program again(cluster, 0);
  const auto session = again.Open();
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ(ReadW(**session, again), 2);
}

TEST(SupervisedSession, SaysWhichVariablesTheInitOpForgot) {
  InProcessCluster cluster(1, 1);
  Program chief(cluster, 0);
  chief.options.init_op = chief.w.initializer;
  const Status status = chief.Open().status();
  EXPECT_TRUE(errors::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(Text(status), AllOf(HasSubstr("v @ /job:ps"), ::testing::Not(HasSubstr("w @"))));
}

TEST(SupervisedSession, ComesUpWithAPsThatStartsLater) {
  InProcessCluster cluster(1, 1);
  cluster.Stop("ps", 0);
  Program chief(cluster, 0);
  std::thread opener([&] {
    const auto session = chief.Open();
    ASSERT_TRUE(session.ok()) << session.status();
    EXPECT_EQ(ReadW(**session, chief), 1);
  });
  EXPECT_TRUE(chief.reasons.WaitFor("/job:ps/replica:0/task:0"));
  cluster.Start("ps", 0);
  opener.join();
}

TEST(SupervisedSession, GoesOnWithTheVariablesWhenItsOwnServerWasRestarted) {
  InProcessCluster cluster(1, 1);
  Program chief(cluster, 0);
  const auto session = chief.Open();
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE(Add(**session, chief).ok());
  cluster.Stop("worker", 0);
  cluster.Start("worker", 0);
  const Status status = Add(**session, chief);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ((*session)->recoveries(), 1);
  EXPECT_EQ(ReadW(**session, chief), 3);
}

TEST(SupervisedSession, InitialisesAnewWhatARestartedPsHasLost) {
  InProcessCluster cluster(1, 2);
  Program chief(cluster, 0), other(cluster, 1);
  auto first = chief.Open();
  ASSERT_TRUE(first.ok()) << first.status();
  auto second = other.Open();
  ASSERT_TRUE(second.ok()) << second.status();
  ASSERT_TRUE(Add(**first, chief).ok());
  cluster.Stop("ps", 0);
  cluster.Start("ps", 0);
  // The other worker notices first, but the variables are the chief's to initialise.
  std::thread waiter([&] {
    const Status status = Add(**second, other);
    EXPECT_TRUE(status.ok()) << status;
  });
  EXPECT_TRUE(other.reasons.WaitFor("waiting for the chief to initialise"));
  const Status status = Add(**first, chief);
  waiter.join();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ((*first)->recoveries(), 1);
  EXPECT_EQ((*second)->recoveries(), 1);
  EXPECT_EQ(ReadW(**first, chief), 3);  // 1, and one step of each
}

float ReadV(SupervisedSession& session, const Program& program) {
  const auto value = session.Run({}, std::span(&program.v.read, 1));
  EXPECT_TRUE(value.ok()) << value.status();
  return value.ok() ? (*value)[0].scalar<float>() : -1;
}

TEST(SupervisedSession, InitialisesOnlyWhatOneOfSeveralPsHasLostAndTellsOfIt) {
  InProcessCluster cluster(2, 1);
  Program chief(cluster, 0);
  std::vector<std::string> lost;
  chief.options.on_variables_lost = [&lost](const std::vector<std::string>& variables) {
    lost.insert(lost.end(), variables.begin(), variables.end());
    return OkStatus();
  };
  const auto session = chief.Open();
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_TRUE(lost.empty());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Add(**session, chief).ok());
  cluster.Stop("ps", 1);
  cluster.Start("ps", 1);
  EXPECT_EQ(ReadV(**session, chief), 1);
  EXPECT_EQ(ReadW(**session, chief), 4) << "of the ps that lived";
  EXPECT_EQ(lost, (std::vector<std::string>{"v @ /job:ps/task:1"}));
  // All that there is may be lost as well.
  cluster.Stop("ps", 0);
  cluster.Start("ps", 0);
  EXPECT_EQ(ReadW(**session, chief), 1);
  EXPECT_EQ(lost.size(), 2u);
}

TEST(SupervisedSession, EndsWhenVariablesAreLostIfItIsTold) {
  InProcessCluster cluster(1, 1);
  Program chief(cluster, 0);
  chief.options.on_variables_lost = [](const std::vector<std::string>&) {
    return errors::DataLoss("restore the last checkpoint");
  };
  const auto session = chief.Open();
  ASSERT_TRUE(session.ok()) << session.status();
  cluster.Stop("ps", 0);
  cluster.Start("ps", 0);
  EXPECT_TRUE(errors::IsDataLoss(Add(**session, chief)));
}

TEST(SupervisedSession, GivesUpOnAPeerThatStaysAwayAndNamesIt) {
  InProcessCluster cluster(1, 1);
  // It is what opening may take as well.
  std::unique_ptr<Program> chief;
  StatusOr<std::unique_ptr<SupervisedSession>> session = errors::Internal("not opened");
  milliseconds wait(500);
  for (; wait < kPatience; wait *= 2) {
    chief = std::make_unique<Program>(cluster, 0);
    chief->options.ready_timeout = wait;
    session = chief->Open();
    if (!errors::IsDeadlineExceeded(session.status())) break;
  }
  ASSERT_TRUE(session.ok()) << session.status();
  cluster.Stop("ps", 0);
  const int64_t begin = SteadyNanos();
  const Status status = Add(**session, *chief);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(Text(status), HasSubstr("/job:ps/replica:0/task:0"));
  EXPECT_LT(SteadyNanos() - begin, wait.count() * 1'000'000 + 15'000'000'000);
}

// A job of weeks sees many restarts.
TEST(SupervisedSession, RecoversAsOftenAsStepsEndInBetween) {
  InProcessCluster cluster(1, 1);
  Program chief(cluster, 0);
  chief.options.max_recoveries = 1;
  const auto session = chief.Open();
  ASSERT_TRUE(session.ok()) << session.status();
  for (int i = 0; i < 3; ++i) {
    cluster.Stop("worker", 0);
    cluster.Start("worker", 0);
    EXPECT_TRUE(Add(**session, chief).ok());
  }
  EXPECT_EQ((*session)->recoveries(), 3);
}

TEST(SupervisedSession, DoesNotRecoverIfItMayNot) {
  InProcessCluster cluster(1, 1);
  Program chief(cluster, 0);
  chief.options.max_recoveries = 0;
  const auto session = chief.Open();
  ASSERT_TRUE(session.ok()) << session.status();
  cluster.Stop("worker", 0);
  cluster.Start("worker", 0);
  EXPECT_FALSE(Add(**session, chief).ok());
  EXPECT_EQ((*session)->recoveries(), 0);
}

TEST(SupervisedSession, ReturnsErrorsOfTheGraphWithoutRecovering) {
  InProcessCluster cluster(1, 1);
  Program chief(cluster, 0);
  const Scope root = chief.graph.root();
  const Output bad = ops::Reshape(root, chief.w.read, Placeholder(root, kInt32, {-1}));
  const auto session = chief.Open();
  ASSERT_TRUE(session.ok()) << session.status();
  const std::vector<Feed> feeds = {{bad.op().input(1), Tensor::FromValues<int32_t>({7})}};
  const Status status = (*session)->Run(feeds, std::span(&bad, 1)).status();
  EXPECT_TRUE(errors::IsInvalidArgument(status)) << status;
  EXPECT_EQ((*session)->recoveries(), 0);
}

// --- Queue threads --------------------------------------------------------------------------
TEST(SupervisedSession, StopsAQueueThreadThatBlocks) {
  InProcessCluster cluster(1, 1);
  Program chief(cluster, 0);
  const Scope root = chief.graph.root().WithDevice("/job:ps/task:0");
  const Output queue = ops::FIFOQueueV2(root, {kFloat});
  chief.options.queue_ops = {ops::QueueDequeueV2(root, queue, {kFloat})[0].op()};
  const auto session = chief.Open();
  ASSERT_TRUE(session.ok()) << session.status();
  const Status stopped = (*session)->Stop();
  EXPECT_TRUE(stopped.ok()) << stopped;
  EXPECT_TRUE((*session)->Stop().ok()) << "a second time";
  EXPECT_TRUE(errors::IsFailedPrecondition(Add(**session, chief)));
}

TEST(SupervisedSession, ReportsTheErrorThatEndedAQueueThread) {
  InProcessCluster cluster(1, 1);
  Program chief(cluster, 0);
  const Scope root = chief.graph.root().WithDevice("/job:ps/task:0");
  const Output queue = ops::FIFOQueueV2(root, {kFloat});
  const Operation close = ops::QueueCloseV2(root, queue);
  // A queue that is closed and empty has nothing to give: OutOfRange.
  chief.options.local_init_op = close;
  chief.options.queue_ops = {ops::QueueDequeueV2(root, queue, {kFloat})[0].op()};
  // A step that fails for another reason is answered with what broke the job first. The graph must
  // not grow once the queue's thread runs it.
  const Output bad = Placeholder(root, kFloat, {});
  const auto session = chief.Open();
  ASSERT_TRUE(session.ok()) << session.status();
  // The thread ends by itself; only Stop joins it.
  Status status;
  const Deadline deadline = DeadlineAfter(kPatience);
  do {
    status = (*session)->Run({}, std::span(&bad, 1)).status();
  } while (!errors::IsOutOfRange(status) && SteadyClock::now() < deadline);
  EXPECT_TRUE(errors::IsOutOfRange(status)) << status;
  EXPECT_TRUE(errors::IsOutOfRange((*session)->Stop()));
}

// Otherwise the step would end by its deadline, and blame the task that has the queue.
TEST(SupervisedSession, EndsStepsThatWaitWhenAQueueThreadFails) {
  InProcessCluster cluster(1, 1);
  Program chief(cluster, 0);
  const Scope root = chief.graph.root().WithDevice("/job:ps/task:0");
  const Output closed = ops::FIFOQueueV2(root, {kFloat}), open = ops::FIFOQueueV2(root, {kFloat});
  chief.options.local_init_op = ops::QueueCloseV2(root, closed);
  chief.options.queue_ops = {ops::QueueDequeueV2(root, closed, {kFloat})[0].op()};
  const Output never = ops::QueueDequeueV2(root, open, {kFloat})[0];
  const auto session = chief.Open();
  ASSERT_TRUE(session.ok()) << session.status();
  const Status status = (*session)->Run({}, std::span(&never, 1)).status();
  EXPECT_TRUE(errors::IsOutOfRange(status)) << status;
}

TEST(SupervisedSession, RunsQueueOpsAgainAfterARecovery) {
  InProcessCluster cluster(1, 1);
  Program chief(cluster, 0);
  const Scope root = chief.graph.root().WithDevice("/job:ps/task:0");
  const Output in = ops::FIFOQueueV2(root.WithOpName("in"), {kFloat});
  const Output out = ops::FIFOQueueV2(root.WithOpName("out"), {kFloat});
  const Output moved = ops::QueueDequeueV2(root, in, {kFloat})[0];
  chief.options.queue_ops = {ops::QueueEnqueueV2(root, out, {moved})};
  const Operation put = ops::QueueEnqueueV2(root, in, {Input(5.0f)});
  const Output get = ops::QueueDequeueV2(root, out, {kFloat})[0];
  const auto session = chief.Open();
  ASSERT_TRUE(session.ok()) << session.status();
  for (int i = 0; i < 2; ++i) {
    const Status fed = (*session)->Run({}, {}, std::span(&put, 1)).status();
    ASSERT_TRUE(fed.ok()) << fed;
    const auto value = (*session)->Run({}, std::span(&get, 1));
    ASSERT_TRUE(value.ok()) << value.status();
    EXPECT_EQ((*value)[0].scalar<float>(), 5);
    cluster.Stop("worker", 0);
    cluster.Start("worker", 0);
  }
  EXPECT_EQ((*session)->recoveries(), 1);
}

}  // namespace
}  // namespace millrace::testing
