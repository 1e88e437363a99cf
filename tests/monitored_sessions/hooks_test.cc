// Stock hooks that no recording covers, and what they refuse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "millrace/preemption.h"
#include "millrace/saver.h"
#include "tests/monitored_sessions/golden.h"

namespace millrace::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Status Train(TrainingGraph& g, std::vector<HookPtr> hooks, int steps) {
  MR_ASSIGN_OR_RETURN(const auto session,
                      MonitoredSession::Create(g.graph, {.hooks = std::move(hooks)}));
  for (int i = 0; i < steps && !session->ShouldStop(); ++i) {
    const Status status = session->Run({}, {g.train}).status();
    if (!status.ok()) return session->Close(status);
  }
  return session->Close();
}

TEST(ProfilerHook, WritesAStepOverTimeButNeverTheFirst) {
  const TestDirectory directory("profiler");
  TrainingGraph g;
  const Status status = Train(
      g, {ProfilerHook({.output_dir = directory.path(), .every = {.steps = 2}})}, /*steps=*/5);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(directory.Files(), ElementsAre("timeline-2.json", "timeline-4.json"));
  const Json timeline =
      Json::parse(directory.Read("timeline-2.json"), nullptr, /*allow_exceptions=*/false);
  EXPECT_FALSE(timeline.is_discarded());
  EXPECT_THAT(timeline.dump(), HasSubstr("train"));
}

TEST(GlobalStepWaiterHook, HoldsTheFirstStepBack) {
  TrainingGraph g;
  const Scope root = g.graph.root();
  const Operation jump = Assign(root, g.step, Input(int64_t{100}));
  std::vector<std::string> lines;
  // The clock of the wait is its log: the others come to the step once it is told to wait.
  Session* session_of_hook = nullptr;
  class Others : public SessionRunHook {
   public:
    explicit Others(Session** session) : session_(session) {}
    Status AfterCreateSession(Session& session, Coordinator&) override {
      *session_ = &session;
      return OkStatus();
    }

   private:
    Session** const session_;
  };
  HookIo io;
  io.log = [&](const std::string& line) {
    lines.push_back(line);
    if (lines.size() > 1) return;
    EXPECT_TRUE(session_of_hook->RunTargets({jump}).ok());
  };
  const Status status =
      Train(g,
            {std::make_shared<Others>(&session_of_hook),
             GlobalStepWaiterHook({.wait_until_step = 50, .poll = milliseconds(1), .io = io})},
            /*steps=*/2);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(lines,
              ElementsAre("Waiting for global step 50 before starting training.", "Done waiting."));
}

TEST(StepCounterHook, WarnsFiveTimesOfAGlobalStepThatStands) {
  Graph graph;
  const Scope root = graph.root();
  GlobalStep(root);
  const Output x = Constant(root, Tensor::Scalar(1.0f));
  int warnings = 0;
  HookIo io;
  io.log = [&](const std::string& line) {
    warnings += line.find("the global step stays at 0") != std::string::npos;
  };
  const auto session = MonitoredSession::Create(
      graph, {.hooks = {StepCounterHook({.every = {.steps = 1}, .io = io})}});
  ASSERT_TRUE(session.ok()) << session.status();
  for (int i = 0; i < 20; ++i) ASSERT_TRUE((*session)->Run({}, {x}).ok());
  EXPECT_EQ(warnings, 5);
}

// A notice that the process is to end, in the third step.
class Notice : public SessionRunHook {
 public:
  StatusOr<SessionRunArgs> BeforeRun(SessionRunContext&) override {
    if (++runs_ == 3) NoticePreemption();
    return SessionRunArgs();
  }

 private:
  int runs_ = 0;
};

TEST(CheckpointSaverHook, SavesAndAsksToStopWhenTheProcessIsToEnd) {
  const TestDirectory directory("preempted");
  TrainingGraph g;
  auto created = Saver::Create(g.graph);
  ASSERT_TRUE(created.ok()) << created.status();
  const std::shared_ptr<Saver> saver = *std::move(created);
  const Status status =
      Train(g,
            {CheckpointSaverHook(
                 {.checkpoint_dir = directory.path(), .every = {.steps = 1000}, .saver = saver}),
             std::make_shared<Notice>()},
            /*steps=*/100);
  ForgetPreemption();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(LatestCheckpoint(directory.path()), StrCat(directory.path(), "/model.ckpt-3"));
}

TEST(FinalOpsHook, SaysWhatTheEndOfTheInputMeansForFinalOps) {
  TrainingGraph g;
  const Scope root = g.graph.root();
  const Output queue = ops::FIFOQueueV2(root, {kFloat});
  const Operation close = ops::QueueCloseV2(root, queue);
  const Output next =
      ops::QueueDequeueV2(root.WithControlDependencies({close}), queue, {kFloat})[0];
  const Status status =
      Train(g, {std::make_shared<FinalOpsHook>(SessionRunArgs{.fetches = {next}})}, 1);
  EXPECT_TRUE(errors::IsOutOfRange(status)) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr("the final ops have come to the end"));
}

TEST(StockHooks, RefuseOptionsThatCannotBe) {
  TrainingGraph g;
  const Every both{.steps = 1, .time = milliseconds(1)};
  for (const HookPtr& hook :
       {StopAtStepHook({}), StopAtStepHook({.num_steps = 1, .last_step = 1}),
        StepCounterHook({.every = both}), NanTensorHook(Output()),
        LoggingTensorHook({.tensors = {{"loss", g.loss}}}),
        LoggingTensorHook({.tensors = {{"nothing", Output()}}, .every = {.steps = 1}}),
        SummarySaverHook({.output_dir = "/tmp", .every = {.steps = 1}}),
        CheckpointSaverHook({.checkpoint_dir = "/tmp", .every = {.steps = 1}}),
        CheckpointSaverHook({.every = {.steps = 1}, .scaffold = std::make_shared<Scaffold>()}),
        FeedFnHook(nullptr), GlobalStepWaiterHook({.poll = milliseconds(0)}), HookPtr()}) {
    const Status status = Train(g, {hook}, 0);
    EXPECT_TRUE(errors::IsInvalidArgument(status)) << status;
  }
  MonitoredTrainingOptions options;
  options.save_checkpoint_steps = 1;
  options.save_checkpoint_time = milliseconds(1);
  EXPECT_TRUE(errors::IsInvalidArgument(MonitoredTrainingSession(g.graph, options).status()));
}

TEST(StockHooks, NameThemselvesWhereThereIsNoGlobalStep) {
  for (const HookPtr& hook : {StopAtStepHook({.num_steps = 1}), StepCounterHook({})}) {
    Graph graph;
    const Status status = MonitoredSession::Create(graph, {.hooks = {hook}}).status();
    EXPECT_TRUE(errors::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(std::string(Message(status)), HasSubstr("Global step should be created to use"));
  }
}

TEST(SessionManager, SaysThatThereIsNothingToInitialiseWith) {
  TrainingGraph g;
  const auto manager = SessionManager::Create(g.graph, {});
  ASSERT_TRUE(manager.ok()) << manager.status();
  const Status status = (*manager)->PrepareSession({}).status();
  EXPECT_TRUE(errors::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr("Model is not initialized"));
}

TEST(SessionManager, NamesWhatTheInitOpForgot) {
  TrainingGraph g;
  const Scope root = g.graph.root();
  MakeVariable(root, "v", Constant(root, Tensor::Scalar(1.0f)));
  const auto manager =
      SessionManager::Create(g.graph, {.ready_op = ReportUninitializedVariables(root)});
  ASSERT_TRUE(manager.ok()) << manager.status();
  const Status status = (*manager)->PrepareSession({.init_op = g.step.initializer}).status();
  EXPECT_TRUE(errors::IsFailedPrecondition(status)) << status;
  EXPECT_EQ(Message(status), "Init operations did not make model ready: these have no value: v");
}

TEST(SessionManager, RecoversFromACheckpointOnly) {
  const TestDirectory directory("recovers");
  TrainingGraph g;
  const Scope root = g.graph.root();
  InitialValues values;
  auto saver = Saver::Create(g.graph);
  ASSERT_TRUE(saver.ok()) << saver.status();
  values.saver = *std::move(saver);
  values.checkpoint_dir = directory.path();
  values.init_op = InitializeVariables(root);
  const auto manager =
      SessionManager::Create(g.graph, {.ready_op = ReportUninitializedVariables(root)});
  ASSERT_TRUE(manager.ok()) << manager.status();
  bool recovered = true;
  ASSERT_TRUE((*manager)->RecoverSession(values, &recovered).ok());
  EXPECT_FALSE(recovered);
  {
    auto session = (*manager)->PrepareSession(values);
    ASSERT_TRUE(session.ok()) << session.status();
    ASSERT_TRUE(session->Run({}, {g.train}).ok());
    ASSERT_TRUE(values.saver->Save(*session, directory.path() + "/model.ckpt").ok());
  }
  auto session = (*manager)->RecoverSession(values, &recovered);
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_TRUE(recovered);
  const auto step = session->Eval(g.step.read);
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_EQ(step->scalar<int64_t>(), 1);
}

}  // namespace
}  // namespace millrace::testing
