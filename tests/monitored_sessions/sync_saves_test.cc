// SPDX-License-Identifier: Apache-2.0
// Checkpoints of synchronous workers with hooks, who go on while the chief saves: each is between
// two updates, and a job that goes on with one ends as one that nobody has disturbed, bit for bit.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/notification.h"
#include "base/strings.h"
#include "millrace/checkpoint.h"
#include "millrace/saver.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/monitored_sessions/golden.h"

namespace millrace::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Far more than anything here takes.
constexpr seconds kPatience{60};
constexpr int kWorkers = 2;

struct JobOptions {
  int num_ps = 1;
  int64_t seed = 1;
  int num_tokens = 0;  // 0: nobody begins a step ahead
  std::string directory{};
  std::vector<HookPtr> chief_hooks{};  // in front of those that are made
  std::shared_ptr<Scaffold> scaffold = std::make_shared<Scaffold>();
};

// One worker's graph and session: a layer with Adam, its variables on the ps.
class Replica {
 public:
  Replica(const InProcessCluster& cluster, int index, const JobOptions& job) : index_(index) {
    graph_.SetSeed(job.seed);
    ReplicaDeviceSetterOptions setter;
    setter.ps_tasks = cluster.spec().num_tasks("ps");
    setter.worker_device = StrCat("/job:worker/task:", index);
    const Scope s = graph_.root().WithDevice(ReplicaDeviceSetter(setter));
    const Variable step = GlobalStep(s);
    x_ = Placeholder(s, kFloat, {-1, 6});
    const Variable w = MakeVariable(s, "w", TruncatedNormal(s, {6, 3}, {.stddev = 0.3f}));
    const Variable b = MakeVariable(s, "b", Zeros(s, {3}));
    const Output y = ops::BiasAdd(s, ops::MatMul(s, x_, w.read), b.read);
    SyncReplicas sync(Adam({.learning_rate = 0.05f}),
                      {.replicas_to_aggregate = kWorkers, .total_num_replicas = kWorkers});
    train_ = *sync.Minimize(s, ReduceMean(s, ops::Mul(s, y, y)), &step);
    step_ = step.read;
    for (const Operation& op : graph_.operations()) {
      if (op.type() == "ResourceAccumulatorApplyGradient") pushes_.push_back(op);
    }
    local_init_ = *sync.local_step_init_op();
    for (const SavedVariable& v : SavedVariables(graph_.root())) {
      reads_.push_back(v.variable.read);
      names_.push_back(v.key);
    }
    MonitoredTrainingOptions options;
    options.session.target = cluster.Target("worker", index);
    options.session.step_timeout = kPatience;
    options.is_chief = index == 0;
    options.max_wait = kPatience;
    options.hooks = {SyncReplicasHook(sync, options.is_chief, job.num_tokens)};
    options.log_step_count_steps = 0;
    options.save_summaries_steps = 0;
    options.save_graph_def = false;
    if (options.is_chief) {
      options.scaffold = job.scaffold;
      options.chief_only_hooks = job.chief_hooks;
      options.checkpoint_dir = job.directory;
      options.save_checkpoint_steps = 1;
      auto saver = Saver::Create(graph_, {.sharded = true, .max_to_keep = 0});
      EXPECT_TRUE(saver.ok()) << saver.status();
      options.scaffold->saver = *std::move(saver);
    }
    auto opened = MonitoredTrainingSession(graph_, options);
    EXPECT_TRUE(opened.ok()) << opened.status();
    session_ = *std::move(opened);
  }

  // With an input that is the step's and the worker's own.
  Status Train() {
    const int64_t step = LocalStep();
    Tensor x(kFloat, {4, 6});
    for (int64_t i = 0; i < x.num_elements(); ++i) {
      x.data<float>()[i] = static_cast<float>((i * 37 + step * 101 + index_ * 17) % 64) / 32 - 1;
    }
    return session_->Run({{x_, x}}, {}, {train_}).status();
  }
  void TrainTo(int64_t step) {
    while (LocalStep() < step && !::testing::Test::HasFailure()) {
      const Status trained = Train();
      ASSERT_TRUE(trained.ok()) << trained;
    }
  }
  // What a worker does that comes for its token later: first it learns which step this is.
  void Push() {
    ASSERT_TRUE(session_->session().RunTargets({local_init_}).ok());
    const Feed feed[] = {{x_, Tensor::FromValues<float>({1, 2, 3, 4, 5, 6}, {1, 6})}};
    const Status pushed = session_->session().Run(feed, {}, pushes_).status();
    EXPECT_TRUE(pushed.ok()) << pushed;
  }
  // The step that the next gradient is computed from.
  int64_t LocalStep() { return Read(pushes_[0].input(1)); }
  const Output& step() const { return step_; }
  int64_t ReachedStep() { return Read(step_); }
  std::vector<Tensor> Values() {
    auto values = session_->session().Run({}, std::span<const Output>(reads_));
    EXPECT_TRUE(values.ok()) << values.status();
    return values.ok() ? *std::move(values) : std::vector<Tensor>();
  }
  const std::vector<std::string>& names() const { return names_; }
  Status Close() { return session_->Close(); }

 private:
  int64_t Read(const Output& output) {
    const auto value = session_->session().Eval(output);
    EXPECT_TRUE(value.ok()) << value.status();
    return value.ok() ? value->scalar<int64_t>() : 0;
  }

  const int index_;
  Graph graph_;
  Output x_, step_;
  Operation train_, local_init_;
  std::vector<Operation> pushes_;
  std::vector<Output> reads_;
  std::vector<std::string> names_;
  std::unique_ptr<MonitoredSession> session_;
};

class Job {
 public:
  explicit Job(const JobOptions& options) : cluster_(options.num_ps, kWorkers) {
    std::thread other([&] { worker_ = std::make_unique<Replica>(cluster_, 1, options); });
    chief_ = std::make_unique<Replica>(cluster_, 0, options);
    other.join();
  }
  void TrainTo(int64_t step) {
    std::thread other([&] { worker_->TrainTo(step); });
    chief_->TrainTo(step);
    other.join();
  }
  // The chief ends with this step, while the worker brings its gradient of the next one.
  void EndAt(int64_t step) {
    std::thread other([&] {
      worker_->TrainTo(step);
      (void)worker_->Train();  // in vain
    });
    chief_->TrainTo(step);
    const Status closed = chief_->Close();
    EXPECT_TRUE(closed.ok()) << closed;
    other.join();
    (void)worker_->Close();
  }
  Replica& chief() { return *chief_; }
  Replica& worker() { return *worker_; }

 private:
  InProcessCluster cluster_;
  std::unique_ptr<Replica> chief_, worker_;
};

void ExpectSame(const std::vector<Tensor>& got, const std::vector<Tensor>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    ASSERT_TRUE(TensorsEqual(got[i], want[i]))
        << "variable " << i << ": " << got[i].DebugString() << " " << want[i].DebugString();
  }
}

std::vector<Tensor> InCheckpoint(const std::string& prefix, const std::vector<std::string>& names) {
  std::vector<Tensor> values;
  const auto reader = CheckpointReader::Open(prefix);
  EXPECT_TRUE(reader.ok()) << reader.status();
  for (const std::string& name : names) {
    const auto value = reader.ok() ? (*reader)->Read(name) : reader.status();
    EXPECT_TRUE(value.ok()) << value.status();
    if (value.ok()) values.push_back(*value);
  }
  return values;
}

class SyncSaves : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(FirstTokens, SyncSaves, ::testing::Values(0, -1), [](const auto& info) {
  return info.param == 0 ? std::string("None") : std::string("Some");
});

TEST_P(SyncSaves, AJobThatIsKilledEndsAsOneThatWasNot) {
  constexpr int64_t kSteps = 10;
  std::vector<std::vector<Tensor>> after;  // so many steps
  {
    Job job({.num_ps = 2, .seed = 11, .num_tokens = GetParam()});
    for (int64_t step = 0; step <= kSteps; ++step) {
      job.TrainTo(step);
      ASSERT_FALSE(HasFailure());
      after.push_back(job.chief().Values());
    }
    job.EndAt(kSteps);
  }
  ASSERT_GE(after[0].size(), 7u);
  for (const int64_t killed_at : {int64_t{1}, int64_t{4}, int64_t{7}}) {
    SCOPED_TRACE(StrCat("killed after step ", killed_at));
    const TestDirectory directory(StrCat("killed_at_", killed_at));
    JobOptions options{.num_ps = 2, .seed = 11, .num_tokens = GetParam()};
    options.directory = directory.path();
    std::vector<std::string> names;
    {
      Job job(options);
      names = job.chief().names();
      job.EndAt(killed_at);
      ASSERT_FALSE(HasFailure());
    }
    for (int64_t step = 0; step <= killed_at; ++step) {
      const std::string prefix = StrCat(directory.path(), "/model.ckpt-", step);
      if (!std::filesystem::exists(prefix + ".index")) continue;
      ExpectSame(InCheckpoint(prefix, names), after[static_cast<std::size_t>(step)]);
      ASSERT_FALSE(HasFailure()) << prefix;
    }
    // Servers of another number, and a program that would have begun with other weights.
    options.num_ps = 1;
    options.seed = 100 + killed_at;
    options.scaffold = std::make_shared<Scaffold>();
    Job job(options);
    ExpectSame(job.chief().Values(), after[static_cast<std::size_t>(killed_at)]);
    job.TrainTo(kSteps);
    ExpectSame(job.chief().Values(), after[kSteps]);
    job.EndAt(kSteps);
    ASSERT_FALSE(HasFailure());
  }
}

// Of what the chief does after a step, before and while it saves.
class Spy : public SessionRunHook, public CheckpointSaverListener {
 public:
  Status Begin() override { return OkStatus(); }
  Status Begin(Graph&) override { return OkStatus(); }
  Status AfterRun(SessionRunContext&, const SessionRunValues&) override {
    if (after_run) after_run();
    return OkStatus();
  }
  Status BeforeSave(Session& session, int64_t step) override {
    if (before_save) before_save(session, step);
    return OkStatus();
  }
  Status End(Session&) override { return OkStatus(); }
  Status End(Session&, int64_t) override { return OkStatus(); }

  std::function<void()> after_run;
  std::function<void(Session&, int64_t)> before_save;
};

// The chief finds the token of a worker that has not come for it, and would save while its own
// gradient is still to be applied.
TEST(SyncSavesTest, ASaveWaitsForTheUpdateThatIsUnderWay) {
  const TestDirectory directory("under_way");
  const auto spy = std::make_shared<Spy>();
  std::atomic<int64_t> now{1};
  JobOptions options;
  options.chief_hooks = {spy, CheckpointSaverHook({.checkpoint_dir = directory.path(),
                                                   .every = {.time = seconds(1)},
                                                   .scaffold = options.scaffold,
                                                   .listeners = {spy},
                                                   .save_graph_def = false,
                                                   .io = {.now = [&now] { return now.load(); }}})};
  Job job(options);
  job.worker().Push();
  ASSERT_TRUE(job.chief().Train().ok());
  ASSERT_EQ(job.chief().ReachedStep(), 1);
  now += 10'000'000'000;  // a save is due
  // The gradient that the update waits for comes when the chief saves, or late.
  Notification saves;
  std::thread late;
  spy->after_run = [&] {
    if (late.joinable()) return;
    late = std::thread([&] {
      (void)saves.WaitUntil(DeadlineAfter(milliseconds(300)));
      job.worker().Push();
    });
  };
  int64_t saved = -1;
  spy->before_save = [&](Session& session, int64_t step) {
    saved = step;
    saves.Notify();
    // Without the wait the update would fall into the save.
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < deadline) {
      const auto reached = session.Eval(job.chief().step());
      if (!reached.ok() || reached->scalar<int64_t>() >= 2) break;
      std::this_thread::sleep_for(milliseconds(2));
    }
  };
  const Status trained = job.chief().Train();
  if (late.joinable()) late.join();
  spy->after_run = nullptr;
  spy->before_save = nullptr;
  ASSERT_TRUE(trained.ok()) << trained;
  EXPECT_EQ(saved, 2);
  const std::string newest = LatestCheckpoint(directory.path());
  EXPECT_TRUE(newest.ends_with(StrCat("-", saved))) << newest;
  ExpectSame(InCheckpoint(newest, job.chief().names()), job.chief().Values());
  job.EndAt(2);
}

}  // namespace
}  // namespace millrace::testing
