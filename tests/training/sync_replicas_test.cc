// SPDX-License-Identifier: Apache-2.0
// Synchronous replicas, step by step. The gradient of the model is what a worker feeds, so
// that the variable tells which gradients went into it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "base/strings.h"
#include "millrace/core.h"
#include "tests/cluster/in_process_cluster.h"

namespace millrace::testing {
namespace {

using std::chrono::seconds;

ReplicaDeviceSetterOptions SetterOptions(int num_ps, int worker) {
  ReplicaDeviceSetterOptions options;
  options.ps_tasks = num_ps;
  options.worker_device = StrCat("/job:worker/task:", worker);
  return options;
}

// The graph and session of one worker that trains w (zero at first) by w -= mean(fed).
class Replica {
 public:
  Replica(const InProcessCluster& cluster, int index, const SyncReplicasOptions& options,
          int init_tokens) {
    const Scope root = graph_.root().WithDevice(
        ReplicaDeviceSetter(SetterOptions(cluster.spec().num_tasks("ps"), index)));
    step_ = GlobalStep(root);
    w_ = MakeVariable(root, "w", Zeros(root, {}));
    x_ = Placeholder(root, kFloat, PartialShape({}));
    SyncReplicas sync(GradientDescent({.learning_rate = 1.0f}), options);
    const auto train = sync.Minimize(root, ops::Mul(root, w_.read, x_), &step_);
    EXPECT_TRUE(train.ok()) << train.status();
    train_ = *train;
    init_ = InitializeVariables(root);
    local_init_ = index == 0 ? *sync.chief_init_op() : *sync.local_step_init_op();
    const auto tokens = sync.InitTokensOp(root, init_tokens);
    EXPECT_TRUE(tokens.ok()) << tokens.status();
    tokens_ = *tokens;
    sync_ = *sync.chief_queue_op();
    const Operation queue = graph_.FindOperation("sync_replicas/sync_token_q");
    EXPECT_TRUE(queue.valid());
    num_tokens_ = ops::QueueSizeV2(root.ColocateWith(queue), queue.output(0));
    SessionOptions session;
    session.target = cluster.Target("worker", index);
    session.step_timeout = seconds(20);
    auto created = Session::Create(graph_, session);
    EXPECT_TRUE(created.ok()) << created.status();
    session_ = *std::move(created);
  }

  void Initialise(bool is_chief) {
    if (is_chief) Expect(session_->RunTargets({init_}));
    Expect(session_->RunTargets({local_init_}));
    if (is_chief) Expect(session_->RunTargets({tokens_}));
  }
  // Pushes a gradient and takes a token. Blocks until there is one.
  void Train(float gradient) {
    Expect(session_->Run({{x_, Tensor::Scalar(gradient)}}, {}, {train_}).status());
  }
  std::thread TrainInThread(float gradient) {
    return std::thread([this, gradient] { Train(gradient); });
  }
  // What the chief does once per global step.
  void Aggregate() { Expect(session_->RunTargets({sync_})); }

  float w() { return Read<float>(w_.read); }
  int64_t step() { return Read<int64_t>(step_.read); }
  int32_t num_tokens() { return Read<int32_t>(num_tokens_); }

 private:
  static void Expect(const Status& status) { EXPECT_TRUE(status.ok()) << status; }
  template <typename T>
  T Read(const Output& output) {
    const auto value = session_->Eval(output);
    EXPECT_TRUE(value.ok()) << value.status();
    return value.ok() ? value->scalar<T>() : T();
  }

  Graph graph_;
  Variable step_, w_;
  Output x_, num_tokens_;
  Operation train_, init_, local_init_, tokens_, sync_;
  std::optional<Session> session_;
};

// Worker 0 is the chief.
struct Job {
  Job(int num_workers, int aggregate, int init_tokens = -1) : cluster(1, num_workers) {
    const SyncReplicasOptions options{.replicas_to_aggregate = aggregate,
                                      .total_num_replicas = num_workers};
    for (int i = 0; i < num_workers; ++i) {
      workers.push_back(std::make_unique<Replica>(cluster, i, options, init_tokens));
    }
    for (int i = 0; i < num_workers; ++i) workers[i]->Initialise(/*is_chief=*/i == 0);
  }
  Replica& operator[](int i) { return *workers[i]; }
  Replica& chief() { return *workers[0]; }

  InProcessCluster cluster;
  std::vector<std::unique_ptr<Replica>> workers;
};

TEST(SyncReplicasOfAllWorkers, ApplyTheMeanOfTheirGradientsOnce) {
  Job job(/*num_workers=*/2, /*aggregate=*/2);
  job[0].Train(1);  // the first tokens are there from the start
  job[1].Train(3);
  EXPECT_EQ(job.chief().w(), 0);  // nothing is applied before the chief aggregates
  job.chief().Aggregate();
  EXPECT_EQ(job.chief().w(), -2);
  EXPECT_EQ(job.chief().step(), 1);
}

// A chief that comes again finds the queue as it was; more tokens would let workers run ahead.
TEST(SyncReplicasOfAllWorkers, AreGivenTheirFirstTokensOnceInTheLifeOfTheQueue) {
  Job job(2, 2);
  EXPECT_EQ(job.chief().num_tokens(), 2);
  job.chief().Initialise(/*is_chief=*/true);
  EXPECT_EQ(job.chief().num_tokens(), 2);
  job[0].Train(1);
  job[1].Train(1);
  job.chief().Initialise(/*is_chief=*/true);
  EXPECT_EQ(job.chief().num_tokens(), 0);
}

TEST(SyncReplicasOfAllWorkers, DropGradientsOfAnOlderStep) {
  Job job(2, 2);
  job[0].Train(1);
  job[1].Train(3);
  job.chief().Aggregate();
  // The tokens that both took were of step 0, so what they compute now is too old.
  job[0].Train(1000);
  job[1].Train(1000);
  // The tokens of step 1 bring them up to date.
  std::thread first = job[0].TrainInThread(5), second = job[1].TrainInThread(7);
  job.chief().Aggregate();
  first.join();
  second.join();
  EXPECT_EQ(job.chief().w(), -2 - 6);
  EXPECT_EQ(job.chief().step(), 2);
}

TEST(SyncReplicasOfAllWorkers, HoldAWorkerUntilTheStepIsOver) {
  Job job(2, 2, /*init_tokens=*/0);
  std::atomic<bool> finished{false};
  std::thread early([&] {
    job[0].Train(2);
    finished = true;
  });
  std::thread late = job[1].TrainInThread(4);
  // Neither can have finished: tokens come from the aggregation alone, which has not run.
  EXPECT_FALSE(finished);
  job.chief().Aggregate();
  early.join();
  late.join();
  EXPECT_EQ(job.chief().w(), -3);
}

TEST(SyncReplicasWithBackupWorkers, DoNotWaitForTheSlowestAndDropItsGradient) {
  Job job(/*num_workers=*/3, /*aggregate=*/2);
  job[0].Train(1);
  job[1].Train(3);
  job.chief().Aggregate();  // hands out one token per worker
  EXPECT_EQ(job.chief().w(), -2);
  job[2].Train(1000);  // of step 0: too late
  // The others took the first tokens and are a step behind as well. Now all three catch up.
  job[0].Train(1000);
  job[1].Train(1000);
  std::thread first = job[2].TrainInThread(4), second = job[0].TrainInThread(8);
  job.chief().Aggregate();
  first.join();
  second.join();
  EXPECT_EQ(job.chief().w(), -2 - 6);
  job[1].Train(1000);  // of step 1, which two others have closed
  std::thread third = job[1].TrainInThread(3), fourth = job[2].TrainInThread(5);
  job.chief().Aggregate();
  third.join();
  fourth.join();
  EXPECT_EQ(job.chief().w(), -2 - 6 - 4);
  EXPECT_EQ(job.chief().step(), 3);
}

TEST(SyncReplicasWithBackupWorkers, TakeTheMeanOverAllThatCameInTime) {
  Job job(/*num_workers=*/3, /*aggregate=*/2, /*init_tokens=*/3);
  job[0].Train(1);
  job[1].Train(2);
  job[2].Train(6);
  job.chief().Aggregate();
  EXPECT_EQ(job.chief().w(), -3);
}

TEST(SyncReplicasOfMoreThanTheWorkers, TakeSeveralGradientsOfEach) {
  Job job(/*num_workers=*/2, /*aggregate=*/4);
  job[0].Train(1);
  job[1].Train(2);
  job[0].Train(3);
  job[1].Train(6);
  job.chief().Aggregate();
  EXPECT_EQ(job.chief().w(), -3);
  EXPECT_EQ(job.chief().step(), 1);
}

TEST(SyncReplicasInTheLongRun, KeepWorkersInLockStep) {
  constexpr int kWorkers = 2, kSteps = 30;
  Job job(kWorkers, kWorkers, /*init_tokens=*/0);
  // Step by step: a worker that ran ahead could take the token of another one.
  for (int k = 0; k < kSteps; ++k) {
    std::thread first = job[0].TrainInThread(1), second = job[1].TrainInThread(3);
    job.chief().Aggregate();
    first.join();
    second.join();
  }
  // Without first tokens no gradient is ever stale.
  EXPECT_EQ(job.chief().w(), -2 * kSteps);
  EXPECT_EQ(job.chief().step(), kSteps);
}

// --- One worker is a local run --------------------------------------------------------------
struct Mlp {
  Output x, y, loss;
  std::vector<Variable> variables;
};

Mlp BuildMlp(const Scope& s) {
  Mlp m;
  m.x = Placeholder(s, kFloat, {-1, 20});
  m.y = Placeholder(s, kInt64, {-1});
  const Variable w1 = MakeVariable(s, "w1", TruncatedNormal(s, {20, 16}, {.stddev = 0.3f}));
  const Variable b1 = MakeVariable(s, "b1", Zeros(s, {16}));
  const Variable w2 = MakeVariable(s, "w2", TruncatedNormal(s, {16, 5}, {.stddev = 0.3f}));
  const Variable b2 = MakeVariable(s, "b2", Zeros(s, {5}));
  const Output hidden = ops::Relu(s, ops::BiasAdd(s, ops::MatMul(s, m.x, w1.read), b1.read));
  const Output logits = ops::BiasAdd(s, ops::MatMul(s, hidden, w2.read), b2.read);
  m.loss = ReduceMean(s, SparseSoftmaxCrossEntropy(s, logits, m.y));
  m.variables = {w1, b1, w2, b2};
  return m;
}

std::vector<Feed> Batch(const Mlp& m, int step) {
  Tensor x(kFloat, {8, 20}), y(kInt64, {8});
  for (int i = 0; i < 160; ++i) {
    x.data<float>()[i] = static_cast<float>((i * 37 + step * 101) % 64) / 32.0f - 1.0f;
  }
  for (int i = 0; i < 8; ++i) y.data<int64_t>()[i] = (i * 3 + step) % 5;
  return {{m.x, x}, {m.y, y}};
}

constexpr int kSteps = 40;
constexpr int64_t kSeed = 11;

std::vector<Tensor> ReadAll(Session& session, const Mlp& m) {
  std::vector<Output> reads;
  for (const Variable& v : m.variables) reads.push_back(v.read);
  auto values = session.Run({}, reads);
  EXPECT_TRUE(values.ok()) << values.status();
  return values.ok() ? *std::move(values) : std::vector<Tensor>();
}

std::vector<Tensor> TrainLocally(const std::string& optimizer) {
  Graph graph;
  graph.SetSeed(kSeed);
  const Scope root = graph.root();
  const Variable step = GlobalStep(root);
  const Mlp m = BuildMlp(root);
  const auto train = (*OptimizerByName(optimizer, 0.05f))->Minimize(root, m.loss, &step);
  EXPECT_TRUE(train.ok()) << train.status();
  const Operation init = InitializeVariables(root);
  auto session = Session::Create(graph);
  EXPECT_TRUE(session.ok()) << session.status();
  EXPECT_TRUE(session->RunTargets({init}).ok());
  for (int i = 0; i < kSteps; ++i) {
    const Status status = session->Run(Batch(m, i), {}, std::span(&*train, 1)).status();
    EXPECT_TRUE(status.ok()) << status;
  }
  return ReadAll(*session, m);
}

// Two ps tasks, one worker, and the chief's queue on a thread of its own.
std::vector<Tensor> TrainSynchronised(const std::string& optimizer) {
  InProcessCluster cluster(2, 1);
  Graph graph;
  graph.SetSeed(kSeed);
  const Scope root = graph.root().WithDevice(ReplicaDeviceSetter(SetterOptions(2, 0)));
  const Variable step = GlobalStep(root);
  const Mlp m = BuildMlp(root);
  SyncReplicas sync(*OptimizerByName(optimizer, 0.05f), {.replicas_to_aggregate = 1});
  const auto train = sync.Minimize(root, m.loss, &step);
  EXPECT_TRUE(train.ok()) << train.status();
  SupervisedSessionOptions options;
  options.session.target = cluster.Target("worker", 0);
  options.init_op = InitializeVariables(root);
  options.not_ready = ReportUninitializedVariables(root);
  options.local_init_op = *sync.chief_init_op();
  options.init_tokens_op = *sync.InitTokensOp(root, 0);  // or the second batch would be stale
  options.queue_ops = {*sync.chief_queue_op()};
  auto session = SupervisedSession::Create(graph, options);
  EXPECT_TRUE(session.ok()) << session.status();
  for (int i = 0; i < kSteps; ++i) {
    const Status status = (*session)->Run(Batch(m, i), {}, std::span(&*train, 1)).status();
    EXPECT_TRUE(status.ok()) << status;
  }
  std::vector<Tensor> values = ReadAll((*session)->session(), m);
  EXPECT_EQ((*session)->recoveries(), 0);
  EXPECT_TRUE((*session)->Stop().ok());
  return values;
}

class SyncReplicasOfOneWorker : public ::testing::TestWithParam<const char*> {};

TEST_P(SyncReplicasOfOneWorker, GiveBitwiseTheVariablesOfALocalRun) {
  const std::vector<Tensor> local = TrainLocally(GetParam());
  const std::vector<Tensor> synchronised = TrainSynchronised(GetParam());
  ASSERT_EQ(local.size(), 4u);
  ASSERT_EQ(synchronised.size(), local.size());
  for (std::size_t i = 0; i < local.size(); ++i) {
    EXPECT_TRUE(TensorsEqual(local[i], synchronised[i]))
        << "variable " << i << ": " << local[i].DebugString() << " "
        << synchronised[i].DebugString();
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, SyncReplicasOfOneWorker,
                         ::testing::Values("sgd", "momentum", "adagrad", "rmsprop", "adam"),
                         [](const auto& info) { return std::string(info.param); });

// --- What is refused ------------------------------------------------------------------------
struct Parts {
  Graph graph;
  Scope root = graph.root();
  Variable w = MakeVariable(root, "w", Zeros(root, {}));
  Variable step = GlobalStep(root);
};

TEST(SyncReplicasRefuse, AnythingBeforeGradientsWereApplied) {
  Parts p;
  const SyncReplicas sync(GradientDescent({}), {.replicas_to_aggregate = 1});
  EXPECT_TRUE(errors::IsFailedPrecondition(sync.chief_init_op().status()));
  EXPECT_TRUE(errors::IsFailedPrecondition(sync.local_step_init_op().status()));
  EXPECT_TRUE(errors::IsFailedPrecondition(sync.chief_queue_op().status()));
  EXPECT_TRUE(errors::IsFailedPrecondition(sync.InitTokensOp(p.root).status()));
}

TEST(SyncReplicasRefuse, ToTrainWithoutAGlobalStep) {
  Parts p;
  SyncReplicas sync(GradientDescent({}), {.replicas_to_aggregate = 1});
  const Status status = sync.Minimize(p.root, ops::Square(p.root, p.w.read), nullptr).status();
  EXPECT_TRUE(errors::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(Message(status)), ::testing::HasSubstr("Global step is required"));
}

TEST(SyncReplicasRefuse, ToTrainWithoutAnOptimizer) {
  Graph graph;
  const Scope root = graph.root();
  const Variable w = MakeVariable(root, "w", Constant(root, Tensor::Scalar(1.0f)));
  const Variable step = GlobalStep(root);
  SyncReplicas sync(nullptr, {.replicas_to_aggregate = 1});
  const Status status = sync.Minimize(root, ops::Mul(root, w.read, w.read), &step).status();
  EXPECT_TRUE(errors::IsInvalidArgument(status)) << status;
}

TEST(SyncReplicasRefuse, ToAggregateNothing) {
  Parts p;
  SyncReplicas sync(GradientDescent({}), {.replicas_to_aggregate = 0, .total_num_replicas = 2});
  const Status status = sync.Minimize(p.root, ops::Square(p.root, p.w.read), &p.step).status();
  EXPECT_TRUE(errors::IsInvalidArgument(status)) << status;
}

TEST(SyncReplicasRefuse, TooFewTokensForTheFirstStep) {
  Parts p;
  SyncReplicas sync(GradientDescent({}), {.replicas_to_aggregate = 3, .total_num_replicas = 1});
  ASSERT_TRUE(sync.Minimize(p.root, ops::Square(p.root, p.w.read), &p.step).ok());
  const Status status = sync.InitTokensOp(p.root, 1).status();
  EXPECT_TRUE(errors::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(Message(status)), ::testing::HasSubstr("Too few tokens"));
  EXPECT_TRUE(sync.InitTokensOp(p.root, 2).ok());
}

}  // namespace
}  // namespace millrace::testing
