// SPDX-License-Identifier: Apache-2.0
// Whose the tokens are: synchronous trainings that follow one another on the same ps, workers that
// are stopped or restarted, and chiefs that are lost with the tokens they were to hand out. The
// gradient of w is what a worker feeds, so that w tells which gradients went into it.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "base/strings.h"
#include "millrace/session_manager.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/monitored_sessions/golden.h"

namespace millrace::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Far more than anything here takes.
constexpr seconds kPatience{60};
// For a step that cannot end.
constexpr milliseconds kInVain{500};

// Worker 0, the chief, feeds 1, worker 1 feeds 3, and so on. Nobody begins a step ahead.
class Worker {
 public:
  Worker(const InProcessCluster& cluster, int index, int num_workers = 2)
      : gradient_(static_cast<float>(2 * index + 1)) {
    ReplicaDeviceSetterOptions setter;
    setter.ps_tasks = 1;
    setter.worker_device = StrCat("/job:worker/task:", index);
    const Scope root = graph_.root().WithDevice(ReplicaDeviceSetter(setter));
    step_ = GlobalStep(root);
    w_ = MakeVariable(root, "w", Zeros(root, {}));
    x_ = Placeholder(root, kFloat, PartialShape({}));
    SyncReplicas sync(GradientDescent({.learning_rate = 1.0f}),
                      {.replicas_to_aggregate = 2, .total_num_replicas = num_workers});
    const auto train = sync.Minimize(root, ops::Mul(root, w_.read, x_), &step_);
    EXPECT_TRUE(train.ok()) << train.status();
    train_ = *train;
    for (const Operation& op : graph_.operations()) {
      if (op.type() == "ResourceAccumulatorApplyGradient") push_ = op;
    }
    const Operation queue = graph_.FindOperation("sync_replicas/sync_token_q");
    const Scope beside = root.ColocateWith(queue);
    tokens_ = ops::QueueSizeV2(beside, queue.output(0));
    lose_ = ops::QueueDequeueManyV2(beside, queue.output(0), 2, {kInt64})[0];
    MonitoredTrainingOptions options;
    options.session.target = cluster.Target("worker", index);
    options.session.step_timeout = kPatience;
    options.is_chief = index == 0;
    options.max_wait = kPatience;
    options.hooks = {SyncReplicasHook(sync, options.is_chief, /*num_tokens=*/0)};
    auto session = MonitoredTrainingSession(graph_, options);
    EXPECT_TRUE(session.ok()) << session.status();
    session_ = *std::move(session);
  }

  Status Train(milliseconds timeout = kPatience) {
    const Feed feed[] = {{x_, Tensor::Scalar(gradient_)}};
    return session_->Run(feed, {}, std::span(&train_, 1), RunOptions{.timeout = timeout}).status();
  }
  // Until the global step; counts the steps of this worker.
  void TrainTo(int64_t step) {
    while (Step() < step) {
      const Status trained = Train();
      ASSERT_TRUE(trained.ok()) << trained;
      ++runs_;
    }
  }
  // What a worker does that is stopped, or killed, before it comes for its token.
  void Push() {
    const Status pushed =
        session_->session().Run({{x_, Tensor::Scalar(gradient_)}}, {}, {push_}).status();
    EXPECT_TRUE(pushed.ok()) << pushed;
  }
  void LoseTwoTokens() {
    const Status lost = session_->session().Eval(lose_).status();
    EXPECT_TRUE(lost.ok()) << lost;
  }
  void AwaitTokens(int number) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (Tokens() != number && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(milliseconds(2));
    }
    ASSERT_EQ(Tokens(), number);
  }
  float w() { return Read<float>(w_.read); }
  int64_t Step() { return Read<int64_t>(step_.read); }
  int32_t Tokens() { return Read<int32_t>(tokens_); }
  int runs() const { return runs_; }
  Status Close() { return session_->Close(); }

 private:
  template <typename T>
  T Read(const Output& output) {
    const auto value = session_->session().Eval(output);
    EXPECT_TRUE(value.ok()) << value.status();
    return value.ok() ? value->scalar<T>() : T();
  }

  const float gradient_;
  Graph graph_;
  Variable step_, w_;
  Output x_, tokens_, lose_;
  Operation train_, push_;
  std::unique_ptr<MonitoredSession> session_;
  int runs_ = 0;
};

using Workers = std::vector<std::unique_ptr<Worker>>;

Workers Begin(const InProcessCluster& cluster, int num_workers = 2) {
  Workers workers(static_cast<std::size_t>(num_workers));
  std::vector<std::thread> threads;
  for (int i = 0; i < num_workers; ++i) {
    threads.emplace_back([&cluster, &workers, i, num_workers] {
      workers[static_cast<std::size_t>(i)] = std::make_unique<Worker>(cluster, i, num_workers);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return workers;
}

// The first two of the workers.
void TrainTogether(const Workers& workers, int64_t step) {
  std::thread other([&] { workers[1]->TrainTo(step); });
  workers[0]->TrainTo(step);
  other.join();
}

void End(const Workers& workers) {
  for (const auto& worker : workers) {
    const Status closed = worker->Close();
    EXPECT_TRUE(closed.ok()) << closed;
  }
}

TEST(ASecondTraining, FindsNoTokensOfTheFirst) {
  const InProcessCluster cluster(1, 2);
  {
    const Workers first = Begin(cluster);
    TrainTogether(first, 3);
    End(first);
  }
  const Workers second = Begin(cluster);
  const Status alone = second[0]->Train(kInVain);
  EXPECT_TRUE(errors::IsDeadlineExceeded(alone)) << alone;
  EXPECT_EQ(second[0]->Step(), 3);
}

TEST(ASecondTraining, TakesOneGradientOfEachWorkerInEveryStep) {
  const InProcessCluster cluster(1, 2);
  constexpr int kSteps = 20;
  for (int training = 1; training <= 3; ++training) {
    const Workers workers = Begin(cluster);
    TrainTogether(workers, training * kSteps);
    for (const auto& worker : workers) EXPECT_EQ(worker->runs(), kSteps) << training;
    EXPECT_EQ(workers[0]->Step(), training * kSteps);
    EXPECT_EQ(workers[0]->w(), static_cast<float>(-2 * training * kSteps));
    End(workers);
  }
}

// As after SIGSTOP.
TEST(AWorkerThatIsStopped, FindsItsTokenLater) {
  const InProcessCluster cluster(1, 2);
  const Workers workers = Begin(cluster);
  workers[1]->Push();
  ASSERT_TRUE(workers[0]->Train().ok());
  workers[0]->AwaitTokens(1);
  const Status ahead = workers[0]->Train(kInVain);
  EXPECT_TRUE(errors::IsDeadlineExceeded(ahead)) << ahead;
  EXPECT_EQ(workers[0]->Step(), 1);
  EXPECT_EQ(workers[0]->Tokens(), 1);
}

TEST(AWorkerThatIsRestarted, DoesNotTakeTheTokenOfTheProcessBeforeIt) {
  const InProcessCluster cluster(1, 2);
  Workers workers = Begin(cluster);
  workers[1]->Push();
  ASSERT_TRUE(workers[0]->Train().ok());
  workers[0]->AwaitTokens(1);
  workers[1].reset();  // not closed: as if it had been killed
  workers[1] = std::make_unique<Worker>(cluster, 1);
  const Status alone = workers[1]->Train(kInVain);
  EXPECT_TRUE(errors::IsDeadlineExceeded(alone)) << alone;
  EXPECT_EQ(workers[1]->Step(), 1);
}

// After its token, before its gradient.
TEST(AWorkerThatIsRestarted, GoesOnAsIfItHadNotBeen) {
  const InProcessCluster cluster(1, 2);
  Workers workers = Begin(cluster);
  for (int64_t step = 5; step <= 15; step += 5) {
    TrainTogether(workers, step);
    workers[1].reset();
    workers[1] = std::make_unique<Worker>(cluster, 1);
  }
  TrainTogether(workers, 20);
  EXPECT_EQ(workers[0]->runs(), 20);
  EXPECT_EQ(workers[0]->Step(), 20);
  EXPECT_EQ(workers[0]->w(), -2.0f * 20);
}

TEST(MoreWorkersThanGradients, LeaveTheTokensOfOneThatIsStopped) {
  const InProcessCluster cluster(1, 3);
  const Workers workers = Begin(cluster, 3);
  TrainTogether(workers, 20);  // without the third
  for (int i : {0, 1}) EXPECT_EQ(workers[static_cast<std::size_t>(i)]->runs(), 20);
  EXPECT_EQ(workers[0]->Step(), 20);
  EXPECT_EQ(workers[0]->w(), -2.0f * 20);
  EXPECT_LT(workers[0]->Tokens(), 10) << "those of no use to anybody are not kept";
  const Status late = workers[2]->Train();
  EXPECT_TRUE(late.ok()) << late;
  EXPECT_EQ(workers[2]->w(), -2.0f * 20) << "its gradient was too old";
}

TEST(AChiefThatIsRestarted, HandsOutTheTokensThatWereLost) {
  const InProcessCluster cluster(1, 2);
  Workers workers = Begin(cluster);
  workers[1]->Push();
  workers[0]->Push();
  workers[0]->AwaitTokens(2);
  workers[0]->LoseTwoTokens();
  workers[0].reset();
  Status waited;
  std::thread waits([&] { waited = workers[1]->Train(seconds(20)); });
  workers[0] = std::make_unique<Worker>(cluster, 0);
  waits.join();
  EXPECT_TRUE(waited.ok()) << waited;
  TrainTogether(workers, 10);
  EXPECT_EQ(workers[0]->Step(), 10);
  EXPECT_EQ(workers[0]->w(), -2.0f * 10);
}

// A session that has no limit of its own for a step.
TEST(SessionManagers, GiveUpOnAReadyOpThatDoesNotEnd) {
  Graph graph;
  const Scope root = graph.root();
  const Output reports =
      ops::FIFOQueueV2(root, {DataType::kString}, {.shapes = {PartialShape({0})}});
  SessionManagerOptions options;
  options.session.step_timeout = milliseconds(0);
  options.ready_op = ops::QueueDequeueV2(root, reports, {DataType::kString})[0];
  options.max_wait = milliseconds(300);
  const auto manager = SessionManager::Create(graph, options);
  ASSERT_TRUE(manager.ok()) << manager.status();
  const Status waited = (*manager)->WaitForSession().status();
  EXPECT_TRUE(errors::IsDeadlineExceeded(waited)) << waited;
  EXPECT_NE(std::string(Message(waited)).find("Session was not ready after waiting 300 ms"),
            std::string::npos)
      << waited;
}

}  // namespace
}  // namespace millrace::testing
