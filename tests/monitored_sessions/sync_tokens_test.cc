// SPDX-License-Identifier: Apache-2.0
// Whose the tokens are: synchronous trainings that follow one another on the same ps, workers that
// are stopped or restarted, and chiefs that are lost with the tokens they were to hand out; with
// hooks and without. The gradient of w is what a worker feeds, so that w tells which gradients went
// into it.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "base/strings.h"
#include "millrace/ledger.h"
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

// What brings a worker's session up and drives its tokens.
enum class Kind { kHook, kSupervised };

struct JobOptions {
  Kind kind = Kind::kHook;
  int num_workers = 2;
  int num_tokens = 0;  // 0: nobody begins a step ahead
  int task = -1;       // that all are placed on; -1: each on its own
};

// Worker 0, the chief, feeds 1, worker 1 feeds 3, and so on.
class Worker {
 public:
  Worker(const InProcessCluster& cluster, int index, const JobOptions& job)
      : gradient_(static_cast<float>(2 * index + 1)) {
    ReplicaDeviceSetterOptions setter;
    setter.ps_tasks = 1;
    setter.worker_device = StrCat("/job:worker/task:", job.task < 0 ? index : job.task);
    const Scope root = graph_.root().WithDevice(ReplicaDeviceSetter(setter));
    step_ = GlobalStep(root);
    w_ = MakeVariable(root, "w", Zeros(root, {}));
    x_ = Placeholder(root, kFloat, PartialShape({}));
    SyncReplicas sync(GradientDescent({.learning_rate = 1.0f}),
                      {.replicas_to_aggregate = 2, .total_num_replicas = job.num_workers});
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
    SessionOptions session;
    session.target = cluster.Target("worker", index);
    session.step_timeout = kPatience;
    if (job.kind == Kind::kHook) {
      OpenMonitored(session, index == 0, sync, job.num_tokens);
    } else {
      OpenSupervised(root, session, index == 0, sync, job.num_tokens);
    }
  }

  Status Train(milliseconds timeout = kPatience) {
    const Feed feed[] = {{x_, Tensor::Scalar(gradient_)}};
    const RunOptions run{.timeout = timeout};
    const std::span<const Operation> train(&train_, 1);
    return monitored_ ? monitored_->Run(feed, {}, train, run).status()
                      : supervised_->Run(feed, {}, train, run).status();
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
    const Status pushed = session().Run({{x_, Tensor::Scalar(gradient_)}}, {}, {push_}).status();
    EXPECT_TRUE(pushed.ok()) << pushed;
  }
  void LoseTwoTokens() {
    const Status lost = session().Eval(lose_).status();
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
  Status Close() { return monitored_ ? monitored_->Close() : supervised_->Stop(); }

  SupervisedSession& supervised() { return *supervised_; }
  const Operation& train() const { return train_; }
  Feed feed() const { return {x_, Tensor::Scalar(gradient_)}; }

 private:
  void OpenMonitored(const SessionOptions& session, bool is_chief, const SyncReplicas& sync,
                     int num_tokens) {
    MonitoredTrainingOptions options;
    options.session = session;
    options.is_chief = is_chief;
    options.max_wait = kPatience;
    options.hooks = {SyncReplicasHook(sync, is_chief, num_tokens)};
    auto opened = MonitoredTrainingSession(graph_, options);
    EXPECT_TRUE(opened.ok()) << opened.status();
    monitored_ = *std::move(opened);
  }

  void OpenSupervised(const Scope& root, const SessionOptions& session, bool is_chief,
                      const SyncReplicas& sync, int num_tokens) {
    SupervisedSessionOptions options;
    options.session = session;
    options.is_chief = is_chief;
    options.init_op = InitializeVariables(root);
    options.not_ready = ReportUninitializedVariables(root);
    options.ready_timeout = kPatience;
    options.local_init_op = is_chief ? *sync.chief_init_op() : *sync.local_step_init_op();
    if (is_chief) {
      options.init_tokens_op = *sync.InitTokensOp(root, num_tokens);
      options.queue_ops = {*sync.chief_queue_op()};
    }
    auto opened = SupervisedSession::Create(graph_, options);
    EXPECT_TRUE(opened.ok()) << opened.status();
    supervised_ = *std::move(opened);
  }

  Session& session() { return monitored_ ? monitored_->session() : supervised_->session(); }

  template <typename T>
  T Read(const Output& output) {
    const auto value = session().Eval(output);
    EXPECT_TRUE(value.ok()) << value.status();
    return value.ok() ? value->scalar<T>() : T();
  }

  const float gradient_;
  Graph graph_;
  Variable step_, w_;
  Output x_, tokens_, lose_;
  Operation train_, push_;
  std::unique_ptr<MonitoredSession> monitored_;  // or else
  std::unique_ptr<SupervisedSession> supervised_;
  int runs_ = 0;
};

using Workers = std::vector<std::unique_ptr<Worker>>;

Workers Begin(const InProcessCluster& cluster, const JobOptions& job) {
  const int num_workers = job.num_workers;
  Workers workers(static_cast<std::size_t>(num_workers));
  std::vector<std::thread> threads;
  for (int i = 0; i < num_workers; ++i) {
    threads.emplace_back([&cluster, &workers, &job, i] {
      workers[static_cast<std::size_t>(i)] = std::make_unique<Worker>(cluster, i, job);
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

// What became of the gradients of a worker, in all its processes.
UpdateAccount GradientsOf(const InProcessCluster& cluster, int worker) {
  UpdateAccount sum;
  const auto ledger = ReadLedger(cluster.Target("worker", 0), {.timeout = seconds(30)});
  EXPECT_TRUE(ledger.ok()) << ledger.status();
  if (!ledger.ok()) return sum;
  EXPECT_TRUE(ledger->Balances()) << LedgerToText(*ledger);
  for (const LedgerEntry& entry : ledger->entries) {
    if (entry.kind != LedgerKind::kAccumulator) continue;
    for (const UpdateAccount& account : entry.accounts) {
      if (account.task == StrCat("/job:worker/replica:0/task:", worker)) sum.Add(account);
    }
  }
  return sum;
}

class Jobs : public ::testing::TestWithParam<Kind> {
 protected:
  static JobOptions Job(int num_workers = 2, int num_tokens = 0) {
    return {GetParam(), num_workers, num_tokens};
  }
};
class ASecondTraining : public Jobs {};
class AWorkerThatIsStopped : public Jobs {};
class AWorkerThatIsRestarted : public Jobs {};
class AWorkerThatIsLeftAlone : public Jobs {};
class AWorkerThatIsAStepAhead : public Jobs {};
class MoreWorkersThanGradients : public Jobs {};
class AChiefThatIsRestarted : public Jobs {};
class TwoWorkersOnOneTask : public Jobs {};

const auto kKinds = ::testing::Values(Kind::kHook, Kind::kSupervised);
std::string NameOf(const ::testing::TestParamInfo<Kind>& info) {
  return info.param == Kind::kHook ? "WithAHook" : "WithoutHooks";
}
INSTANTIATE_TEST_SUITE_P(Jobs, ASecondTraining, kKinds, NameOf);
INSTANTIATE_TEST_SUITE_P(Jobs, AWorkerThatIsStopped, kKinds, NameOf);
INSTANTIATE_TEST_SUITE_P(Jobs, AWorkerThatIsRestarted, kKinds, NameOf);
INSTANTIATE_TEST_SUITE_P(Jobs, AWorkerThatIsLeftAlone, kKinds, NameOf);
INSTANTIATE_TEST_SUITE_P(Jobs, AWorkerThatIsAStepAhead, kKinds, NameOf);
INSTANTIATE_TEST_SUITE_P(Jobs, MoreWorkersThanGradients, kKinds, NameOf);
INSTANTIATE_TEST_SUITE_P(Jobs, AChiefThatIsRestarted, kKinds, NameOf);
INSTANTIATE_TEST_SUITE_P(Jobs, TwoWorkersOnOneTask, kKinds, NameOf);

TEST_P(ASecondTraining, FindsNoTokensOfTheFirst) {
  const InProcessCluster cluster(1, 2);
  {
    const Workers first = Begin(cluster, Job());
    TrainTogether(first, 3);
    End(first);
  }
  const Workers second = Begin(cluster, Job());
  const Status alone = second[0]->Train(kInVain);
  EXPECT_TRUE(errors::IsDeadlineExceeded(alone)) << alone;
  EXPECT_EQ(second[0]->Step(), 3);
}

TEST_P(ASecondTraining, TakesOneGradientOfEachWorkerInEveryStep) {
  const InProcessCluster cluster(1, 2);
  constexpr int kSteps = 20;
  for (int training = 1; training <= 3; ++training) {
    const Workers workers = Begin(cluster, Job());
    TrainTogether(workers, training * kSteps);
    for (const auto& worker : workers) EXPECT_EQ(worker->runs(), kSteps) << training;
    EXPECT_EQ(workers[0]->Step(), training * kSteps);
    EXPECT_EQ(workers[0]->w(), static_cast<float>(-2 * training * kSteps));
    End(workers);
  }
}

// As after SIGSTOP.
TEST_P(AWorkerThatIsStopped, FindsItsTokenLater) {
  const InProcessCluster cluster(1, 2);
  const Workers workers = Begin(cluster, Job());
  workers[1]->Push();
  ASSERT_TRUE(workers[0]->Train().ok());
  workers[0]->AwaitTokens(1);
  const Status ahead = workers[0]->Train(kInVain);
  EXPECT_TRUE(errors::IsDeadlineExceeded(ahead)) << ahead;
  EXPECT_EQ(workers[0]->Step(), 1);
  EXPECT_EQ(workers[0]->Tokens(), 1);
}

TEST_P(AWorkerThatIsRestarted, DoesNotTakeTheTokenOfTheProcessBeforeIt) {
  const InProcessCluster cluster(1, 2);
  Workers workers = Begin(cluster, Job());
  workers[1]->Push();
  ASSERT_TRUE(workers[0]->Train().ok());
  workers[0]->AwaitTokens(1);
  workers[1].reset();  // not closed: as if it had been killed
  workers[1] = std::make_unique<Worker>(cluster, 1, Job());
  const Status alone = workers[1]->Train(kInVain);
  EXPECT_TRUE(errors::IsDeadlineExceeded(alone)) << alone;
  EXPECT_EQ(workers[1]->Step(), 1);
}

// After its token, before its gradient.
TEST_P(AWorkerThatIsRestarted, GoesOnAsIfItHadNotBeen) {
  const InProcessCluster cluster(1, 2);
  Workers workers = Begin(cluster, Job());
  for (int64_t step = 5; step <= 15; step += 5) {
    TrainTogether(workers, step);
    workers[1].reset();
    workers[1] = std::make_unique<Worker>(cluster, 1, Job());
  }
  TrainTogether(workers, 20);
  EXPECT_EQ(workers[0]->runs(), 20);
  EXPECT_EQ(workers[0]->Step(), 20);
  EXPECT_EQ(workers[0]->w(), -2.0f * 20);
}

// Between its gradient and the update: the process after it computes another gradient of the step.
TEST_P(AWorkerThatIsRestarted, BringsOneGradientOfAStep) {
  const InProcessCluster cluster(1, 2);
  Workers workers = Begin(cluster, Job());
  constexpr int kKills = 5;
  for (int step = 1; step <= kKills; ++step) {
    workers[1]->Push();
    workers[1].reset();  // not closed: as if it had been killed
    workers[1] = std::make_unique<Worker>(cluster, 1, Job());
    workers[1]->Push();
    EXPECT_EQ(workers[0]->Step(), step - 1) << "two gradients of one worker make no step";
    std::thread other([&] { EXPECT_TRUE(workers[1]->Train().ok()); });
    EXPECT_TRUE(workers[0]->Train().ok());
    other.join();
    EXPECT_EQ(workers[0]->Step(), step);
    EXPECT_EQ(workers[0]->w(), -2.0f * static_cast<float>(step));
  }
  const UpdateAccount chief = GradientsOf(cluster, 0), other = GradientsOf(cluster, 1);
  EXPECT_EQ(chief.pushed, kKills);
  EXPECT_EQ(chief.applied, kKills);
  // Of each step that of the process that was killed, and two of the one after it, the last of
  // which may come when the step has been made.
  EXPECT_EQ(other.pushed, 3 * kKills);
  EXPECT_EQ(other.applied, kKills);
  EXPECT_GE(other.duplicate, kKills);
  EXPECT_EQ(other.duplicate + other.stale, 2 * kKills);
}

// Its own and those that the other one does not bring any more.
TEST_P(AWorkerThatIsLeftAlone, BringsTwoGradientsOfAStep) {
  const InProcessCluster cluster(1, 2);
  const Workers workers = Begin(cluster, Job());
  TrainTogether(workers, 3);
  ASSERT_TRUE(workers[1]->Close().ok());
  workers[0]->TrainTo(6);
  EXPECT_EQ(workers[0]->Step(), 6);
  EXPECT_EQ(workers[0]->w(), -2.0f * 3 - 1.0f * 3);
}

// Before it was restarted itself: the process before it knew that nobody else was there.
TEST_P(AWorkerThatIsLeftAlone, GoesOnWhenItIsRestarted) {
  const InProcessCluster cluster(1, 2);
  Workers workers = Begin(cluster, Job());
  TrainTogether(workers, 3);
  ASSERT_TRUE(workers[1]->Close().ok());
  workers[0]->TrainTo(5);
  for (int64_t step = 7; step <= 9; step += 2) {
    workers[0].reset();  // not closed: as if it had been killed
    workers[0] = std::make_unique<Worker>(cluster, 0, Job());
    workers[0]->TrainTo(step);
    ASSERT_FALSE(::testing::Test::HasFailure());
    EXPECT_EQ(workers[0]->w(), -2.0f * 3 - 1.0f * static_cast<float>(step - 3));
  }
}

TEST_P(AWorkerThatIsLeftAlone, GoesOnWithoutTheChiefsGradientsWhenItIsRestarted) {
  const InProcessCluster cluster(1, 3);
  Workers workers = Begin(cluster, Job(3));
  TrainTogether(workers, 3);
  ASSERT_TRUE(workers[2]->Close().ok());
  workers[1].reset();  // not closed: as if it had been killed
  workers[1] = std::make_unique<Worker>(cluster, 1, Job(3));
  workers[1]->TrainTo(6);
  ASSERT_FALSE(::testing::Test::HasFailure());
  EXPECT_EQ(workers[1]->w(), -2.0f * 3 - 3.0f * 3);
}

// Whoever has left is missed again once it is there again.
TEST_P(AWorkerThatIsLeftAlone, IsNotWhenTheOtherOneComesAgain) {
  const InProcessCluster cluster(1, 2);
  Workers workers = Begin(cluster, Job());
  TrainTogether(workers, 3);
  ASSERT_TRUE(workers[1]->Close().ok());
  workers[0].reset();
  workers[1] = std::make_unique<Worker>(cluster, 1, Job());
  workers[0] = std::make_unique<Worker>(cluster, 0, Job());
  const Status alone = workers[0]->Train(kInVain);
  EXPECT_TRUE(errors::IsDeadlineExceeded(alone)) << alone;
  EXPECT_EQ(workers[0]->Step(), 3);
}

TEST(SupervisedSessions, SayWhoHasLeftWhereAStepEndsInVain) {
  const InProcessCluster cluster(1, 2);
  Workers workers = Begin(cluster, {.kind = Kind::kSupervised});
  TrainTogether(workers, 2);
  ASSERT_TRUE(workers[0]->Close().ok());  // the chief: nobody applies gradients any more
  Status late;
  for (int i = 0; i < 5 && late.ok(); ++i) late = workers[1]->Train(kInVain);
  EXPECT_TRUE(errors::IsDeadlineExceeded(late)) << late;
  const std::string text(Message(late));
  EXPECT_NE(text.find("have left the synchronous training"), std::string::npos) << late;
  EXPECT_NE(text.find("/job:worker/task:0"), std::string::npos) << late;
}

// The tokens of the beginning: its second gradient of the first step is not that of another worker.
TEST_P(AWorkerThatIsAStepAhead, BringsOneGradientOfTheStep) {
  const InProcessCluster cluster(1, 2);
  const Workers workers = Begin(cluster, Job(2, /*num_tokens=*/2));
  ASSERT_TRUE(workers[0]->Train().ok());
  const Status ahead = workers[0]->Train(kInVain);
  EXPECT_TRUE(errors::IsDeadlineExceeded(ahead)) << ahead;
  EXPECT_EQ(workers[0]->Step(), 0);
  TrainTogether(workers, 1);
  EXPECT_EQ(workers[0]->w(), -2.0f);
  EXPECT_EQ(GradientsOf(cluster, 0).applied, 1);
}

// The value that the program fetched is that of the token which it got in the end.
TEST(SupervisedSessions, YieldTheStepToComputeFromNext) {
  const InProcessCluster cluster(1, 2);
  const Workers workers = Begin(cluster, {.kind = Kind::kSupervised});
  workers[1]->Push();
  ASSERT_TRUE(workers[0]->Train().ok());
  workers[0]->AwaitTokens(1);  // of step 1, which is that of the other one
  StatusOr<std::vector<Tensor>> ran = errors::Unknown("not yet");
  std::thread ahead([&] {
    const Feed feed[] = {workers[0]->feed()};
    const Output step = workers[0]->train().output(0);
    RunMetadata metadata;
    ran = workers[0]->supervised().Run(feed, std::span(&step, 1), {}, {.trace = true}, &metadata);
    EXPECT_FALSE(metadata.step_stats.empty());
  });
  workers[1]->TrainTo(2);
  ahead.join();
  ASSERT_TRUE(ran.ok()) << ran.status();
  ASSERT_EQ(ran->size(), 1u);
  EXPECT_EQ((*ran)[0].scalar<int64_t>(), 2);
}

// The others need not wait for one that says so, and whose session goes on.
TEST(SupervisedSessions, FreeTheOthersWhenTheyLeave) {
  const InProcessCluster cluster(1, 2);
  const Workers workers = Begin(cluster, {.kind = Kind::kSupervised});
  TrainTogether(workers, 2);
  Status waited;
  std::thread waits([&] { waited = workers[1]->Train(); });
  ASSERT_TRUE(workers[0]->supervised().Leave().ok());
  waits.join();
  EXPECT_TRUE(waited.ok()) << waited;
  EXPECT_EQ(workers[0]->Step(), 2);
  workers[1]->TrainTo(4);  // the chief's loop goes on
  EXPECT_EQ(workers[0]->w(), -2.0f * 2 - 3.0f * 2);
}

TEST_P(MoreWorkersThanGradients, LeaveTheTokensOfOneThatIsStopped) {
  const InProcessCluster cluster(1, 3);
  const Workers workers = Begin(cluster, Job(3));
  TrainTogether(workers, 20);  // without the third
  for (int i : {0, 1}) EXPECT_EQ(workers[static_cast<std::size_t>(i)]->runs(), 20);
  EXPECT_EQ(workers[0]->Step(), 20);
  EXPECT_EQ(workers[0]->w(), -2.0f * 20);
  EXPECT_LT(workers[0]->Tokens(), 10) << "those of no use to anybody are not kept";
  const Status late = workers[2]->Train();
  EXPECT_TRUE(late.ok()) << late;
  EXPECT_EQ(workers[2]->w(), -2.0f * 20) << "its gradient was too old";
}

TEST_P(AChiefThatIsRestarted, HandsOutTheTokensThatWereLost) {
  const InProcessCluster cluster(1, 2);
  Workers workers = Begin(cluster, Job());
  workers[1]->Push();
  workers[0]->Push();
  workers[0]->AwaitTokens(2);
  workers[0]->LoseTwoTokens();
  workers[0].reset();
  Status waited;
  std::thread waits([&] { waited = workers[1]->Train(seconds(20)); });
  workers[0] = std::make_unique<Worker>(cluster, 0, Job());
  waits.join();
  EXPECT_TRUE(waited.ok()) << waited;
  TrainTogether(workers, 10);
  EXPECT_EQ(workers[0]->Step(), 10);
  EXPECT_EQ(workers[0]->w(), -2.0f * 10);
}

// Both would be the same worker, of whose gradients one counts in each step.
TEST_P(TwoWorkersOnOneTask, AreRefusedAndNamed) {
  const InProcessCluster cluster(1, 2);
  JobOptions job = Job();
  job.task = 0;
  const auto first = std::make_unique<Worker>(cluster, 0, job);
  const auto second = std::make_unique<Worker>(cluster, 1, job);
  second->Push();
  const Status refused = first->Train();
  EXPECT_TRUE(errors::IsFailedPrecondition(refused)) << refused;
  const std::string text(Message(refused));
  for (const char* phrase : {"two sessions bring gradients", "as the worker /job:worker/task:0",
                             "of /job:worker/replica:0/task:0, which this is",
                             "of /job:worker/replica:0/task:1. Of each step one of them counts"}) {
    EXPECT_NE(text.find(phrase), std::string::npos) << refused;
  }
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
