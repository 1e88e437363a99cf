// SPDX-License-Identifier: Apache-2.0
// Monitored sessions of jobs: servers that stop and come again, workers that wait, replicas in
// step, and hooks that fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "base/mutex.h"
#include "base/notification.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "millrace/saver.h"
#include "millrace/supervisor.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/monitored_sessions/golden.h"

namespace millrace::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Far more than anything here takes.
constexpr seconds kPatience{60};

Scope ReplicaScope(Graph& graph, const InProcessCluster& cluster, int worker) {
  ReplicaDeviceSetterOptions setter;
  setter.ps_tasks = cluster.spec().num_tasks("ps");
  setter.worker_device = StrCat("/job:worker/task:", worker);
  return graph.root().WithDevice(ReplicaDeviceSetter(setter));
}

// Counts what a session tells its hooks.
class CountingHook : public SessionRunHook {
 public:
  Status AfterCreateSession(Session&, Coordinator&) override {
    ++sessions;
    return OkStatus();
  }
  Status End(Session&) override {
    ++ends;
    return OkStatus();
  }
  int sessions = 0, ends = 0;
};

// A worker whose step adds 1 to w and to the global step, both on a ps.
struct Worker {
  Worker(const InProcessCluster& cluster, int index) {
    const Scope root = ReplicaScope(graph, cluster, index);
    step = GlobalStep(root);
    w = MakeVariable(root, "w", Constant(root, Tensor::Scalar(1.0f)));
    const Operation add = AssignAdd(root, w, 1.0f);
    train = AssignAdd(root.WithControlDependencies({add}), step, Input(int64_t{1}));
    options.session.target = cluster.Target("worker", index);
    options.is_chief = index == 0;
    options.max_wait = kPatience;
    options.hooks = {counts};
    options.on_wait = [this](const std::string& reason) {
      MutexLock lock(&mu);
      last_reason = reason;
    };
  }
  Status Open() {
    auto opened = MonitoredTrainingSession(graph, options);
    MR_RETURN_IF_ERROR(opened.status());
    session = *std::move(opened);
    return OkStatus();
  }
  Status Train() { return session->RunTargets({train}); }
  float ReadW() {
    const auto value = session->Run({}, {w.read});
    EXPECT_TRUE(value.ok()) << value.status();
    return value.ok() ? (*value)[0].scalar<float>() : -1;
  }
  std::string Reason() {
    MutexLock lock(&mu);
    return last_reason;
  }

  Mutex mu;
  std::string last_reason ABSL_GUARDED_BY(mu);
  Graph graph;
  Variable step, w;
  Operation train;
  std::shared_ptr<CountingHook> counts = std::make_shared<CountingHook>();
  MonitoredTrainingOptions options;
  std::unique_ptr<MonitoredSession> session;
};

TEST(RestartedPs, GetsTheNewestCheckpoint) {
  InProcessCluster cluster(1, 1);
  const TestDirectory directory("restarted_ps");
  Worker chief(cluster, 0);
  chief.options.checkpoint_dir = directory.path();
  chief.options.save_checkpoint_steps = 2;
  ASSERT_TRUE(chief.Open().ok());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(chief.Train().ok());
  cluster.Stop("ps", 0);
  cluster.Start("ps", 0);
  const Status status = chief.Train();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(chief.session->recoveries(), 1);
  EXPECT_EQ(chief.counts->sessions, 2);
  EXPECT_EQ(chief.ReadW(), 1 + 2 + 1);  // saved at step 2, the third step is lost
  EXPECT_TRUE(chief.session->Close().ok());
  EXPECT_EQ(chief.counts->ends, 1);
}

TEST(RestartedPs, GetsTheCheckpointOfASupervisorToo) {
  InProcessCluster cluster(1, 1);
  const TestDirectory directory("restarted_ps_supervisor");
  Worker chief(cluster, 0);
  SupervisorOptions options;
  options.session.target = cluster.Target("worker", 0);
  options.logdir = directory.path();
  options.save_model_time = milliseconds(10);
  options.max_wait = kPatience;
  const auto supervisor = Supervisor::Create(chief.graph, options);
  ASSERT_TRUE(supervisor.ok()) << supervisor.status();
  float last = 0;
  int steps = 0;
  const Status status = (*supervisor)->RunUntilStop([&](Session& session) -> Status {
    MR_RETURN_IF_ERROR(session.RunTargets({chief.train}));
    MR_ASSIGN_OR_RETURN(const Tensor w, session.Eval(chief.w.read));
    last = w.scalar<float>();
    if (++steps == 3) {
      while (!LatestCheckpoint(directory.path()).ends_with("model.ckpt-3")) {
        std::this_thread::sleep_for(milliseconds(2));
      }
      cluster.Stop("ps", 0);
      cluster.Start("ps", 0);
    }
    if (steps == 5) (*supervisor)->RequestStop();
    return OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(last, 1 + 5) << "goes on from the third step, not from the first";
}

TEST(LostPeers, EndASupervisorAfterSoManyRecoveriesInARow) {
  TrainingGraph g;
  const auto supervisor = Supervisor::Create(g.graph, {.max_recoveries = 1});
  ASSERT_TRUE(supervisor.ok()) << supervisor.status();
  int calls = 0;
  const Status status = (*supervisor)->RunUntilStop([&](Session&) -> Status {
    ++calls;
    return errors::Unavailable("a task is gone");
  });
  EXPECT_TRUE(errors::IsUnavailable(status)) << status;
  EXPECT_EQ(calls, 2);
  EXPECT_TRUE(errors::IsDataLoss((*supervisor)->RunUntilStop([](Session&) -> Status {
    return errors::DataLoss("of another kind");
  })));
}

TEST(RestartedPs, IsInitialisedAnewWithoutACheckpoint) {
  InProcessCluster cluster(2, 1);
  Worker chief(cluster, 0);
  ASSERT_TRUE(chief.Open().ok());
  ASSERT_TRUE(chief.Train().ok());
  cluster.Stop("ps", 1);  // of w; the global step is on the other
  cluster.Start("ps", 1);
  ASSERT_TRUE(chief.Train().ok());
  EXPECT_EQ(chief.ReadW(), 2);
  const auto step = chief.session->session().Eval(chief.step.read);
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_EQ(step->scalar<int64_t>(), 2) << "of the ps that lived";
}

TEST(RestartedChief, FindsTheVariablesAsTheyAre) {
  InProcessCluster cluster(1, 1);
  const TestDirectory directory("restarted_chief");
  {
    Worker chief(cluster, 0);
    chief.options.checkpoint_dir = directory.path();
    chief.options.save_checkpoint_steps = 100;
    ASSERT_TRUE(chief.Open().ok());
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(chief.Train().ok());
    // As if it had been killed: nothing is saved.
    EXPECT_FALSE(chief.session->Close(errors::Internal("killed")).ok());
  }
  Worker keeps(cluster, 0);
  keeps.options.checkpoint_dir = directory.path();
  ASSERT_TRUE(keeps.Open().ok());
  EXPECT_EQ(keeps.ReadW(), 4);
  ASSERT_TRUE(keeps.Train().ok());
  EXPECT_FALSE(keeps.session->Close(errors::Internal("killed")).ok());
  // As TensorFlow does: what came after the last checkpoint, of step 3, is gone.
  Worker restores(cluster, 0);
  restores.options.checkpoint_dir = directory.path();
  restores.options.keep_values = false;
  ASSERT_TRUE(restores.Open().ok());
  EXPECT_EQ(restores.ReadW(), 4);
}

TEST(RestartedChief, DeletesInTheirTurnWhatWasKeptBefore) {
  InProcessCluster cluster(1, 1);
  const TestDirectory directory("restarted_chief_keeps");
  const auto train = [&](int steps) {
    Worker chief(cluster, 0);
    chief.options.checkpoint_dir = directory.path();
    chief.options.save_checkpoint_steps = 1;
    ASSERT_TRUE(chief.Open().ok());
    for (int i = 0; i < steps; ++i) ASSERT_TRUE(chief.Train().ok());
    // As if it had been killed; the ps lives, and has all values.
    EXPECT_FALSE(chief.session->Close(errors::Internal("killed")).ok());
  };
  train(4);
  train(3);
  const auto state = GetCheckpointState(directory.path());
  ASSERT_TRUE(state.ok() && state->has_value());
  EXPECT_EQ((*state)->all_model_checkpoint_paths.size(), 5u) << "of both";
  int indices = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory.path())) {
    indices += entry.path().extension() == ".index" ? 1 : 0;
  }
  EXPECT_EQ(indices, 5) << "those that no list names any more are gone";
}

TEST(RestartedWorker, GoesOnWithTheVariables) {
  InProcessCluster cluster(1, 1);
  Worker chief(cluster, 0);
  ASSERT_TRUE(chief.Open().ok());
  ASSERT_TRUE(chief.Train().ok());
  cluster.Stop("worker", 0);
  cluster.Start("worker", 0);
  const Status status = chief.Train();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(chief.session->recoveries(), 1);
  EXPECT_EQ(chief.ReadW(), 3);
}

TEST(OtherWorkers, WaitForTheChiefAndAreToldForWhat) {
  InProcessCluster cluster(1, 2);
  Worker chief(cluster, 0), other(cluster, 1);
  std::thread waiter([&] {
    const Status status = other.Open();
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(other.ReadW(), 1);
  });
  while (other.Reason().find("waiting for the chief") == std::string::npos) {
    std::this_thread::sleep_for(milliseconds(5));
  }
  EXPECT_THAT(other.Reason(), HasSubstr("w @ /job:ps/task:0"));
  const Status status = chief.Open();
  waiter.join();
  EXPECT_TRUE(status.ok()) << status;
}

TEST(OtherWorkers, GiveUpAfterMaxWaitNamingWhatIsMissing) {
  InProcessCluster cluster(1, 2);
  // Until it has come as far as to ask for the variables before it gives up.
  Status status;
  for (milliseconds wait(300); wait < kPatience; wait *= 2) {
    Worker other(cluster, 1);
    other.options.max_wait = wait;
    status = other.Open();
    EXPECT_TRUE(errors::IsDeadlineExceeded(status)) << status;
    if (other.Reason().find("waiting for the chief") != std::string::npos) break;
  }
  EXPECT_THAT(std::string(Message(status)), HasSubstr("w @ /job:ps/task:0"));
}

// Trains w by the mean of two workers' gradients.
class SyncWorker {
 public:
  SyncWorker(const InProcessCluster& cluster, int index, float gradient,
             const std::string& checkpoint_dir = "")
      : gradient_(gradient) {
    const Scope root = ReplicaScope(graph_, cluster, index);
    step_ = GlobalStep(root);
    w_ = MakeVariable(root, "w", Zeros(root, {}));
    x_ = Placeholder(root, kFloat, PartialShape({}));
    SyncReplicas sync(GradientDescent({.learning_rate = 1.0f}),
                      {.replicas_to_aggregate = 2, .total_num_replicas = 2});
    const auto train = sync.Minimize(root, ops::Mul(root, w_.read, x_), &step_);
    EXPECT_TRUE(train.ok()) << train.status();
    train_ = *train;
    const Operation queue = graph_.FindOperation("sync_replicas/sync_token_q");
    tokens_ = ops::QueueSizeV2(root.ColocateWith(queue), queue.output(0));
    MonitoredTrainingOptions options;
    options.session.target = cluster.Target("worker", index);
    options.session.step_timeout = kPatience;
    options.is_chief = index == 0;
    options.max_wait = kPatience;
    options.hooks = {SyncReplicasHook(sync, options.is_chief),
                     StopAtStepHook({.last_step = kSteps})};
    options.checkpoint_dir = checkpoint_dir;
    options.save_checkpoint_steps = 1;
    auto session = MonitoredTrainingSession(graph_, options);
    EXPECT_TRUE(session.ok()) << session.status();
    session_ = *std::move(session);
  }
  // Until the last step; the value of w then. `before_step` is told the step before.
  Status Train(const std::function<void(int64_t)>& before_step = {}) {
    return session_->RunUntilStop([&]() -> Status {
      if (before_step) before_step(last_step_);
      const SessionRunArgs args{.targets = {train_}, .feeds = {{x_, Tensor::Scalar(gradient_)}}};
      const auto read = [&](StepContext& context) -> StatusOr<std::vector<Tensor>> {
        MR_RETURN_IF_ERROR(context.RunWithHooks(args).status());
        return context.session().Run({}, {w_.read, step_.read});
      };
      MR_ASSIGN_OR_RETURN(const std::vector<Tensor> values, session_->RunStepFn(read));
      ++runs_;
      w_value_ = values[0].scalar<float>();
      last_step_ = values[1].scalar<int64_t>();
      return OkStatus();
    });
  }
  int runs() const { return runs_; }
  float w() const { return w_value_; }
  int64_t last_step() const { return last_step_; }
  int recoveries() const { return session_->recoveries(); }
  Status Close() { return session_->Close(); }
  int Tokens() {
    const auto count = session_->session().Eval(tokens_);
    EXPECT_TRUE(count.ok()) << count.status();
    return count.ok() ? count->scalar<int32_t>() : -1;
  }
  static constexpr int kSteps = 10;

 private:
  const float gradient_;
  Graph graph_;
  Variable step_, w_;
  Output x_, tokens_;
  Operation train_;
  std::unique_ptr<MonitoredSession> session_;
  int runs_ = 0;
  float w_value_ = 0;
  int64_t last_step_ = 0;
};

TEST(SyncReplicasHook, KeepsTwoWorkersInStepAndLetsBothEnd) {
  InProcessCluster cluster(1, 2);
  std::atomic<float> w[2] = {0, 0};
  std::atomic<int> runs[2] = {0, 0};
  std::atomic<int64_t> steps[2] = {0, 0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      SyncWorker worker(cluster, i, /*gradient=*/1);
      const Status status = worker.Train();
      EXPECT_TRUE(status.ok()) << status;
      w[i] = worker.w();
      runs[i] = worker.runs();
      steps[i] = worker.last_step();
    });
  }
  for (std::thread& thread : threads) thread.join();
  // Two gradients of 1 make one step of -1, however the workers took turns.
  for (int i = 0; i < 2; ++i) {
    EXPECT_GE(steps[i], SyncWorker::kSteps);
    EXPECT_GE(w[i], -static_cast<float>(steps[i]) - 1);
    EXPECT_LE(w[i], -static_cast<float>(SyncWorker::kSteps));
  }
  EXPECT_GE(runs[0] + runs[1], 2 * SyncWorker::kSteps);
}

// What another pushes alone may be too old to be counted: it waits for a token, not for an update.
TEST(SyncReplicasHook, LeavesTokensToThoseThatGoOnWhenAWorkerEnds) {
  InProcessCluster cluster(1, 2);
  std::unique_ptr<SyncWorker> workers[2];
  std::thread other([&] { workers[1] = std::make_unique<SyncWorker>(cluster, 1, /*gradient=*/1); });
  workers[0] = std::make_unique<SyncWorker>(cluster, 0, /*gradient=*/1);
  other.join();
  EXPECT_EQ(workers[0]->Tokens(), 2);
  EXPECT_TRUE(workers[1]->Close().ok());
  EXPECT_EQ(workers[0]->Tokens(), 4);
}

// With the ps go the tokens, what was pushed and the step; the chief gives all of it again.
void LosePsOfSyncWorkers(bool while_steps_run) {
  InProcessCluster cluster(1, 2);
  const TestDirectory directory(StrCat("sync_lost_ps_", while_steps_run));
  constexpr int64_t kLostAt = 4;
  std::atomic<float> w[2] = {0, 0};
  std::atomic<int> recoveries[2] = {0, 0};
  std::atomic<int64_t> steps[2] = {0, 0};
  Notification is_trained, go_on;
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      SyncWorker worker(cluster, i, /*gradient=*/1, directory.path());
      const Status status = worker.Train([&](int64_t step) {
        if (step < kLostAt) return;
        if (i == 0) is_trained.Notify();
        go_on.Wait();
      });
      EXPECT_TRUE(status.ok()) << i << ": " << status;
      if (i == 0) is_trained.Notify();  // if it has failed before
      w[i] = worker.w();
      recoveries[i] = worker.recoveries();
      steps[i] = worker.last_step();
    });
  }
  is_trained.Wait();
  if (while_steps_run) go_on.Notify();
  cluster.Stop("ps", 0);
  cluster.Start("ps", 0);
  go_on.Notify();
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < 2; ++i) {
    if (!while_steps_run) {
      EXPECT_GE(recoveries[i], 1) << i;
    }
    EXPECT_GE(steps[i], SyncWorker::kSteps) << i;
    // The chief may save between the update of w and that of the step.
    EXPECT_NEAR(w[i], -static_cast<float>(steps[i]), 4) << i;
  }
  EXPECT_NE(LatestCheckpoint(directory.path()), "");
}

TEST(SyncReplicasHook, GoesOnFromTheCheckpointWhenThePsIsLostBetweenSteps) {
  LosePsOfSyncWorkers(/*while_steps_run=*/false);
}

TEST(SyncReplicasHook, GoesOnFromTheCheckpointWhenThePsIsLostInAStep) {
  LosePsOfSyncWorkers(/*while_steps_run=*/true);
}

// It has no step to compute from: its gradient would never be counted, and its token never come.
TEST(SyncWorkers, WhoseLocalInitWasSkippedAreToldWhatHasNoValue) {
  InProcessCluster cluster(1, 1);
  Graph graph;
  const Scope root = ReplicaScope(graph, cluster, 0);
  const Variable step = GlobalStep(root);
  const Variable w = MakeVariable(root, "w", Zeros(root, {}));
  SyncReplicas sync(GradientDescent({.learning_rate = 1.0f}),
                    {.replicas_to_aggregate = 1, .name = "mnist_sync_replicas"});
  const auto train = sync.Minimize(root, ops::Mul(root, w.read, w.read), &step);
  ASSERT_TRUE(train.ok()) << train.status();
  EXPECT_TRUE(graph.FindOperation("mnist_sync_replicas/sync_token_q").valid());
  const auto scaffold = std::make_shared<Scaffold>();
  scaffold->local_init_op = ops::NoOp(root);  // instead of local_step_init_op
  MonitoredTrainingOptions options;
  options.session.target = cluster.Target("worker", 0);
  options.scaffold = scaffold;
  const Status ready = MonitoredTrainingSession(graph, options).status();
  EXPECT_TRUE(errors::IsFailedPrecondition(ready)) << ready;
  EXPECT_THAT(std::string(Message(ready)),
              AllOf(HasSubstr("Init operations did not make model ready"),
                    HasSubstr("sync_rep_local_step")));
  // The same of a session without a manager, at its first step.
  auto session = Session::Create(graph, options.session);
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE(session->RunTargets({step.initializer, w.initializer}).ok());
  const Status trained = session->RunTargets({*train});
  EXPECT_TRUE(errors::IsFailedPrecondition(trained)) << trained;
  EXPECT_THAT(std::string(Message(trained)), HasSubstr("sync_rep_local_step"));
}

// A hook that does what a test wants at one of its calls.
class FailingHook : public SessionRunHook {
 public:
  std::function<Status()> at_begin, at_session, before_run, after_run, at_end;
  Status Begin(Graph&) override { return at_begin ? at_begin() : OkStatus(); }
  Status AfterCreateSession(Session&, Coordinator&) override {
    return at_session ? at_session() : OkStatus();
  }
  StatusOr<SessionRunArgs> BeforeRun(SessionRunContext&) override {
    if (before_run) MR_RETURN_IF_ERROR(before_run());
    return SessionRunArgs();
  }
  Status AfterRun(SessionRunContext&, const SessionRunValues&) override {
    return after_run ? after_run() : OkStatus();
  }
  Status End(Session&) override { return at_end ? at_end() : OkStatus(); }
};

Status Throws() { throw std::runtime_error("a hook has thrown"); }

TEST(ExceptionsOfHooks, AreErrorsOfTheCallThatLedToThem) {
  using Step = std::function<Status()> FailingHook::*;
  for (const Step step :
       {&FailingHook::at_begin, &FailingHook::at_session, &FailingHook::before_run,
        &FailingHook::after_run, &FailingHook::at_end}) {
    TrainingGraph g;
    const auto hook = std::make_shared<FailingHook>();
    (*hook).*step = Throws;
    Status status;
    const auto session = MonitoredSession::Create(g.graph, {.hooks = {hook}});
    if (session.ok()) {
      status = (*session)->Run({}, {g.train}).status();
      status = (*session)->Close(status);
    } else {
      status = session.status();
    }
    EXPECT_TRUE(errors::IsInternal(status)) << status;
    EXPECT_THAT(std::string(Message(status)), HasSubstr("a hook has thrown"));
  }
}

TEST(FailuresOfHooks, ThatLookLikeALostSessionAreRetriedSoManyTimes) {
  TrainingGraph g;
  const auto hook = std::make_shared<FailingHook>();
  int calls = 0;
  hook->after_run = [&] {
    ++calls;
    return errors::Unavailable("never there");
  };
  MonitoredSessionOptions options;
  options.hooks = {hook};
  options.max_recoveries = 2;
  const auto session = MonitoredSession::Create(g.graph, options);
  ASSERT_TRUE(session.ok()) << session.status();
  const Status status = (*session)->Run({}, {g.train}).status();
  EXPECT_TRUE(errors::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr("made anew 2 times"));
  EXPECT_EQ(calls, 3);
}

// What a session says after a cancelled step is waited for, but not for ever.
TEST(CancelledSteps, OfASessionThatAnswersNothingMoreAreLost) {
  Graph graph;
  const Scope root = graph.root();
  const Output reports =
      ops::FIFOQueueV2(root, {DataType::kString}, {.shapes = {PartialShape({0})}});
  MonitoredSessionOptions options;
  options.max_recoveries = 0;
  options.scaffold = std::make_shared<Scaffold>();
  options.scaffold->init_op = ops::QueueEnqueueManyV2(
      root, reports, {Constant(root, Tensor(DataType::kString, Shape({100, 0})))});
  options.scaffold->ready_op = ops::QueueDequeueV2(root, reports, {DataType::kString})[0];
  options.scaffold->ready_for_local_init_op = Constant(root, Tensor(DataType::kString, Shape({0})));
  const Output left = ops::QueueSizeV2(root, reports);
  const Output drain = ops::QueueDequeueManyV2(root, reports, left, {DataType::kString})[0];
  const auto session = MonitoredSession::Create(graph, options);
  ASSERT_TRUE(session.ok()) << session.status();
  const auto begin = SteadyClock::now();
  const Status status = (*session)
                            ->RunStepFn([&](StepContext& context) -> StatusOr<std::vector<Tensor>> {
                              MR_RETURN_IF_ERROR(context.session().Eval(drain).status());
                              return errors::Cancelled("by a task that ends");
                            })
                            .status();
  EXPECT_TRUE(errors::IsUnavailable(status)) << status;
  EXPECT_LT(SteadyClock::now() - begin, kPatience);
}

// A hook's thread ends with the session, and its error is the session's.
TEST(ThreadsOfHooks, EndTheTrainingWhenTheyFail) {
  class ThreadHook : public SessionRunHook {
   public:
    Status AfterCreateSession(Session&, Coordinator& coordinator) override {
      return coordinator.StartThread("input", [this]() -> Status {
        go.Wait();
        return errors::DataLoss("the input is damaged");
      });
    }
    Notification go;
  };
  TrainingGraph g;
  const auto hook = std::make_shared<ThreadHook>();
  const auto session = MonitoredSession::Create(g.graph, {.hooks = {hook}});
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_FALSE((*session)->ShouldStop());
  hook->go.Notify();
  while (!(*session)->ShouldStop()) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_TRUE(errors::IsDataLoss((*session)->Close()));
}

TEST(ThreadsOfHooks, ThatSeeTheSessionLostHaveItMadeAnew) {
  class ThreadHook : public SessionRunHook {
   public:
    Status AfterCreateSession(Session&, Coordinator& coordinator) override {
      if (++sessions > 1) return OkStatus();
      return coordinator.StartThread("queue", [] { return errors::Aborted("a task is gone"); });
    }
    int sessions = 0;
  };
  TrainingGraph g;
  const auto hook = std::make_shared<ThreadHook>();
  const auto session = MonitoredSession::Create(g.graph, {.hooks = {hook}});
  ASSERT_TRUE(session.ok()) << session.status();
  while (hook->sessions < 2) {
    EXPECT_FALSE((*session)->ShouldStop());
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ((*session)->recoveries(), 1);
  EXPECT_TRUE((*session)->Close().ok());
}

}  // namespace
}  // namespace millrace::testing
