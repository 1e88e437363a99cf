// SPDX-License-Identifier: Apache-2.0
// Loops and waits that end when the process is to end: those of one process, and waits for tasks
// that do not come. The notice is for all threads of this test.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "millrace/cluster_coordinator.h"
#include "millrace/data_parallel.h"
#include "millrace/millrace.h"
#include "millrace/preemption.h"
#include "tests/cluster/free_ports.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/coordinator/coordinated_program.h"
#include "tests/ranks/ranks_in_process.h"

namespace millrace::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

// Far more than what a test waits for, and far less than what is waited for without a notice.
constexpr seconds kSoon{30};
constexpr milliseconds kForever{600'000};

class NoticedLoops : public ::testing::Test {
 protected:
  ~NoticedLoops() override { ForgetPreemption(); }

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
    EXPECT_NE(PreemptionSignal(), 0) << "it has not waited";
    notice.join();
    return result;
  }
  static void ExpectNoticed(const Status& status) {
    EXPECT_TRUE(errors::IsCancelled(status)) << status;
    EXPECT_TRUE(Message(status).starts_with("this process is to end (signal 15)")) << status;
  }
};

// A worker whose ps does not come.
class LonelyWorker {
 public:
  LonelyWorker() {
    const std::vector<int> ports = FreePorts(2);
    cluster =
        *ClusterSpec::Parse(StrCat("worker|127.0.0.1:", ports[0], ",ps|127.0.0.1:", ports[1]));
    server = Server::Create({.cluster = cluster, .job_name = "worker"}).value();
    EXPECT_TRUE(server->Start().ok());
  }

  ClusterSpec cluster;
  std::unique_ptr<Server> server;
};

// Gives a notice at a batch.
class NoticeAt : public Callback {
 public:
  explicit NoticeAt(int64_t batch) : batch_(batch) {}
  std::string kind() const override { return "NoticeAt"; }
  Status OnTestBatchEnd(int64_t batch, const Logs&) override { return Count(batch); }
  Status OnPredictBatchEnd(int64_t batch, const Tensor&) override { return Count(batch); }
  int64_t batches() const { return batches_; }

 private:
  Status Count(int64_t batch) {
    ++batches_;
    if (batch == batch_) NoticePreemption();
    return OkStatus();
  }
  const int64_t batch_;
  int64_t batches_ = 0;
};

class NoticedModel : public NoticedLoops {
 protected:
  NoticedModel() : model_(layers::Sequential({layers::Dense(1)}), {}) {
    EXPECT_TRUE(model_.Compile({.optimizer = "sgd", .loss = "mse"}).ok());
  }

  static constexpr int64_t kBatches = 8;
  Tensor x_{kFloat, Shape({kBatches, 2})}, y_{kFloat, Shape({kBatches, 1})};
  Model model_;
};

TEST_F(NoticedModel, EndsAnEvaluationAfterTheBatch) {
  NoticeAt notice(2);
  const auto logs = model_.Evaluate(
      x_, y_, {.batch_size = 1, .callbacks = {&notice}, .verbose = Verbose::kSilent});
  ExpectNoticed(logs.status());
  EXPECT_EQ(notice.batches(), 3);
}

TEST_F(NoticedModel, KeepsAnEvaluationThatHasComeToItsEnd) {
  NoticeAt notice(kBatches - 1);
  const auto logs = model_.Evaluate(
      x_, y_, {.batch_size = 1, .callbacks = {&notice}, .verbose = Verbose::kSilent});
  EXPECT_TRUE(logs.ok()) << logs.status();
}

TEST_F(NoticedModel, EndsAPredictionAfterTheBatch) {
  NoticeAt notice(2);
  const auto predicted = model_.Predict(x_, {.batch_size = 1, .callbacks = {&notice}});
  ExpectNoticed(predicted.status());
  EXPECT_EQ(notice.batches(), 3);
}

TEST_F(NoticedLoops, AServerWaitsAMomentForTheSaveOfOthers) {
  LonelyWorker worker;
  const auto start = Clock::now();
  Interrupted([&] {
    worker.server->WaitForShutdown();
    return OkStatus();
  }).IgnoreError();
  EXPECT_GE(Clock::now() - start, seconds(2));
  // Who says how long waits as long.
  const auto again = Clock::now();
  EXPECT_FALSE(worker.server->WaitForShutdown(milliseconds(50)));
  EXPECT_GE(Clock::now() - again, milliseconds(50));
}

TEST_F(NoticedLoops, ASessionWaitsForNoTaskAnyMore) {
  LonelyWorker worker;
  Graph graph;
  Constant(graph.root(), Tensor::Scalar(1.0f));
  const SessionOptions options{.target = worker.server->target(), .start_timeout = kForever};
  ExpectNoticed(Interrupted([&] { return Session::Create(graph, options).status(); }));
  // There is a moment left for one that is made afterwards.
  const auto start = Clock::now();
  ExpectNoticed(Session::Create(graph, options).status());
  EXPECT_LT(Clock::now() - start, kSoon);
  SessionOptions alone = options;
  alone.device_filters = {"/job:worker"};
  EXPECT_TRUE(Session::Create(graph, alone).ok());
}

TEST_F(NoticedLoops, ASupervisedSessionWaitsForNoTaskAndNoChief) {
  LonelyWorker worker;
  Graph graph;
  const Scope root = graph.root();
  MakeVariable(root, "v", Constant(root, Tensor::Scalar(1.0f)));
  SupervisedSessionOptions options;
  options.ready_timeout = kForever;
  options.is_chief = false;  // and nobody initialises
  options.not_ready = ReportUninitializedVariables(root);
  options.session.start_timeout = kForever;
  for (const char* filter : {"", "/job:worker"}) {
    ForgetPreemption();
    options.session.target = worker.server->target();
    if (*filter != '\0') options.session.device_filters = {filter};
    ExpectNoticed(Interrupted([&] { return SupervisedSession::Create(graph, options).status(); }));
  }
}

TEST_F(NoticedLoops, ASupervisedSessionThatIsLostIsNotMadeAnew) {
  InProcessCluster cluster(1, 1);
  Graph graph;
  const Scope ps = graph.root().WithDevice("/job:ps/task:0");
  const Variable v = MakeVariable(ps, "v", Constant(ps, Tensor::Scalar(1.0f)));
  SupervisedSessionOptions options;
  options.ready_timeout = kForever;
  options.session.target = cluster.Target("worker", 0);
  options.init_op = InitializeVariables(graph.root());
  options.not_ready = ReportUninitializedVariables(graph.root());
  auto session = SupervisedSession::Create(graph, options);
  ASSERT_TRUE(session.ok()) << session.status();
  NoticePreemption();
  EXPECT_TRUE((*session)->Run({}, {{v.read}}).ok()) << "a step may be made, to save";
  cluster.Stop("ps", 0);
  ExpectNoticed((*session)->Run({}, {{v.read}}).status());
  EXPECT_EQ((*session)->recoveries(), 0);
}

TEST_F(NoticedLoops, ThreadsThatSomebodyJoinsAreAskedToStop) {
  millrace::Coordinator threads;
  ASSERT_TRUE(threads
                  .StartThread("asks",
                               [&] {
                                 while (!threads.ShouldStop()) {
                                   std::this_thread::sleep_for(milliseconds(5));
                                 }
                                 return OkStatus();
                               })
                  .ok());
  EXPECT_TRUE(Interrupted([&] { return threads.Join(); }).ok());
  ForgetPreemption();
  millrace::Coordinator others;
  EXPECT_TRUE(Interrupted([&] { return others.WaitForStop(kForever); }));
  EXPECT_TRUE(others.ShouldStop());
}

class NoticedCoordinator : public NoticedLoops {
 protected:
  NoticedCoordinator() : cluster_(1, 1), program_(cluster_.spec()) {
    program_.options.join_timeout = program_.options.schedule_timeout =
        program_.options.fetch_timeout = kForever;
  }
  InProcessCluster cluster_;
  CoordinatedProgram program_;
};

TEST_F(NoticedCoordinator, CancelsWhatItWaitsForAndSaysWhy) {
  program_.Open();
  const auto running = program_.coordinator->Schedule(program_.wait);
  const auto queued = program_.coordinator->Schedule(program_.wait);
  ASSERT_TRUE(running.ok() && queued.ok());
  ExpectNoticed(Interrupted([&] { return program_.coordinator->Join(); }));
  EXPECT_EQ(running->state(), RemoteValue::State::kFailed);
  EXPECT_TRUE(errors::IsCancelled(queued->Fetch().status())) << queued->Fetch().status();
  ExpectNoticed(program_.coordinator->Schedule(program_.wait).status());
  EXPECT_EQ(program_.Sum(), 0) << "what is to be saved can still be read";
}

TEST_F(NoticedCoordinator, WaitsForNoRoomAndNoResult) {
  program_.options.queue_capacity = 1;
  program_.Open();
  const auto running = program_.coordinator->Schedule(program_.wait);
  ASSERT_TRUE(running.ok());
  while (program_.coordinator->stats().scheduled < 2) {
    ASSERT_TRUE(program_.coordinator->Schedule(program_.wait).ok());
  }
  ExpectNoticed(Interrupted([&] {
    Status status;
    while (status.ok()) status = program_.coordinator->Schedule(program_.wait).status();
    return status;
  }));
  EXPECT_TRUE(errors::IsCancelled(running->Fetch().status())) << running->Fetch().status();
}

TEST_F(NoticedCoordinator, EndsAFetch) {
  program_.Open();
  const auto value = program_.coordinator->Schedule(program_.wait);
  ASSERT_TRUE(value.ok());
  const Status status = Interrupted([&] { return value->Fetch().status(); });
  EXPECT_TRUE(errors::IsCancelled(status)) << status;
}

TEST_F(NoticedLoops, ACoordinatorDoesNotWaitForItsParameterServers) {
  LonelyWorker worker;
  Graph graph;
  CoordinatorOptions options{.cluster = worker.cluster, .connect_timeout = kForever};
  ExpectNoticed(Interrupted([&] { return ClusterCoordinator::Create(graph, options).status(); }));
}

TEST_F(NoticedLoops, ARankWaitsForNoOtherOne) {
  const std::vector<int> ports = FreePorts(2);
  const ResolvedTask task{.cluster = *ClusterSpec::Parse(
                              StrCat("worker|127.0.0.1:", ports[0], ";127.0.0.1:", ports[1])),
                          .job_name = "worker",
                          .task_index = 0};
  ExpectNoticed(Interrupted(
      [&] { return ProcessGroup::Create({.task = task, .start_timeout = kForever}).status(); }));
  ForgetPreemption();
  ExpectNoticed(Interrupted([&] {
    return MakeStrategy("multi_worker_mirrored", {.task = task, .start_timeout = kForever})
        .status();
  }));
}

TEST_F(NoticedLoops, AllRanksAreToldToStopInTheSameCall) {
  const RanksInProcess ranks(2);
  const auto ask = [&](bool expected) {
    return ranks.All([&](int rank) -> Status {
      const auto stop = dp::ShouldStop(ranks.group(rank));
      MR_RETURN_IF_ERROR(stop.status());
      EXPECT_EQ(*stop, expected);
      return OkStatus();
    });
  };
  for (const Status& status : ask(false)) EXPECT_TRUE(status.ok()) << status;
  NoticePreemption();
  for (const Status& status : ask(true)) EXPECT_TRUE(status.ok()) << status;
  EXPECT_FALSE(dp::IsInitialized());
  EXPECT_EQ(dp::ShouldStop().status().code(), StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace millrace::testing
