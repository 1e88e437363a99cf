// SPDX-License-Identifier: Apache-2.0
// Stock hooks that no recording covers, and what they refuse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <map>
#include <thread>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "millrace/preemption.h"
#include "millrace/saver.h"
#include "millrace/summary.h"
#include "tests/monitored_sessions/golden.h"

namespace millrace::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
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

TEST(ProfilerHook, DrawsDataflowAndMemoryAsItIsTold) {
  const auto phases = [](bool dataflow, bool memory) {
    const TestDirectory directory("profiler_shows");
    TrainingGraph g;
    const Status status = Train(g,
                                {ProfilerHook({.output_dir = directory.path(),
                                               .every = {.steps = 1},
                                               .show_dataflow = dataflow,
                                               .show_memory = memory})},
                                /*steps=*/2);
    EXPECT_TRUE(status.ok()) << status;
    std::map<std::string, int> count;
    const Json timeline = Json::parse(directory.Read("timeline-2.json"));
    for (const Json& event : timeline["traceEvents"]) {
      ++count[event.value("ph", "")];
    }
    return count;
  };
  auto all = phases(true, true), none = phases(false, false);
  EXPECT_GE(all["s"], 1);
  EXPECT_EQ(all["s"], all["f"]);
  EXPECT_EQ(none["s"] + none["f"] + none["C"], 0);
  EXPECT_GE(none["X"], 2);
  EXPECT_EQ(phases(false, true)["C"], all["C"]);
}

TEST(SummaryWriters, ThatAreGivenTakeTheEventsOfHooks) {
  const TestDirectory directory("writer");
  TrainingGraph g;
  auto made = EventWriter::Create(directory.path());
  ASSERT_TRUE(made.ok()) << made.status();
  const std::shared_ptr<EventWriter> writer = *std::move(made);
  const Output tag = Constant(g.graph.root(), Tensor::String("loss_summary"));
  const Output summary = ops::ScalarSummary(g.graph.root(), tag, g.loss);
  const Status status =
      Train(g,
            {StepCounterHook({.every = {.steps = 1}, .summary_writer = writer}),
             SummarySaverHook(
                 {.summary_writer = writer, .every = {.steps = 1}, .summary_ops = {summary}})},
            /*steps=*/3);
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_TRUE(writer->Close().ok());
  std::string events;
  for (const auto& entry : std::filesystem::directory_iterator(directory.path())) {
    events += directory.Read(entry.path().filename());
  }
  EXPECT_THAT(events, AllOf(HasSubstr("global_step/sec"), HasSubstr("loss_summary")));
  EXPECT_TRUE(errors::IsInvalidArgument(
      Train(g, {StepCounterHook({.output_dir = directory.path(), .summary_writer = writer})}, 0)));
}

TEST(StopAfterNEvalsHook, CountsStepsAndTellsOfThem) {
  for (const int64_t evals : {3, 40}) {
    TrainingGraph g;
    std::vector<std::string> lines;
    const auto log = [&](const std::string& line) { lines.push_back(line); };
    const HookPtr hook = StopAfterNEvalsHook({.num_evals = evals, .io = {.log = log}});
    ASSERT_TRUE(Train(g, {hook}, /*steps=*/100).ok());
    if (evals == 3) {
      EXPECT_THAT(lines, ElementsAre("Evaluation [1/3]", "Evaluation [2/3]", "Evaluation [3/3]"));
    } else {
      EXPECT_EQ(lines.size(), 10u);
      EXPECT_EQ(lines.front(), "Evaluation [4/40]");
    }
  }
}

TEST(EvaluateOnce, RestoresRunsAndFetchesAtTheEnd) {
  const TestDirectory directory("evaluate_once");
  TrainingGraph g;
  auto saver = Saver::Create(g.graph);
  ASSERT_TRUE(saver.ok()) << saver.status();
  std::string checkpoint;
  {
    auto session = Session::Create(g.graph);
    ASSERT_TRUE(session.ok() && session->RunTargets({g.step.initializer}).ok());
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(session->Run({}, {g.train}).ok());
    const auto saved = (*saver)->Save(*session, directory.path() + "/model.ckpt");
    ASSERT_TRUE(saved.ok()) << saved.status();
    checkpoint = *saved;
  }
  std::vector<std::string> lines;
  EvaluateOnceOptions options;
  options.checkpoint_path = checkpoint;
  options.eval_ops = {g.train.op()};
  options.final_ops = {g.step.read};
  options.hooks = {StopAfterNEvalsHook({.num_evals = 2, .log_progress = false})};
  options.io.log = [&](const std::string& line) { lines.push_back(line); };
  for (int i = 0; i < 2; ++i) {
    const auto values = EvaluateOnce(g.graph, options);
    ASSERT_TRUE(values.ok()) << values.status();
    EXPECT_EQ((*values)[0].scalar<int64_t>(), 5 + 2) << "each begins with the checkpoint";
  }
  EXPECT_THAT(lines.back(), HasSubstr("Inference Time : "));
  options.eval_ops = {};
  const auto restored = EvaluateOnce(g.graph, options);
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ((*restored)[0].scalar<int64_t>(), 5);
  options.checkpoint_path = directory.path() + "/nothing";
  EXPECT_TRUE(errors::IsInvalidArgument(EvaluateOnce(g.graph, options).status()));
}

TEST(LocalInitOps, AreRunWithTheirFeedsAndOptions) {
  TrainingGraph g;
  const Scope root = g.graph.root();
  const Output fed = Placeholder(root, kFloat, PartialShape(Shape({})));
  const Variable local = MakeVariable(root, "local", Constant(root, Tensor::Scalar(0.0f)),
                                      {.trainable = false, .local = true});
  const auto scaffold = std::make_shared<Scaffold>();
  scaffold->local_init_op = Assign(root, local, fed);
  scaffold->local_init_feeds = {{fed, Tensor::Scalar(4.0f)}};
  const auto session = MonitoredSession::Create(g.graph, {.scaffold = scaffold});
  ASSERT_TRUE(session.ok()) << session.status();
  const auto value = (*session)->Run({}, {local.read});
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ((*value)[0].scalar<float>(), 4.0f);
}

TEST(Scaffolds, TakeWhatTheGraphBringsWithIt) {
  TrainingGraph g;
  const Scope root = g.graph.root();
  const Variable v = MakeVariable(root, "v", Constant(root, Tensor::Scalar(1.0f)));
  const Variable local =
      MakeVariable(root, "local", Constant(root, Tensor::Scalar(1.0f)), {.local = true});
  const Operation init = Group(root, {g.step.initializer, Assign(root, v, 7.0f)});
  const Operation local_init = Assign(root, local, 8.0f);
  const Output ready = ReportUninitializedVariables(root);
  const Output ready_for_local = ReportUninitializedVariables(root);
  const Output summary = ops::ScalarSummary(root, "loss", g.loss);
  g.graph.AddToCollection(kInitOp, Output(init, 0));
  g.graph.AddToCollection(kLocalInitOp, Output(local_init, 0));
  g.graph.AddToCollection(kReadyOp, ready);
  g.graph.AddToCollection(kReadyForLocalInitOp, ready_for_local);
  g.graph.AddToCollection(kSummaryOp, summary);
  const auto scaffold = std::make_shared<Scaffold>();
  const auto session = MonitoredSession::Create(g.graph, {.scaffold = scaffold});
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ(scaffold->ready_op, ready);
  EXPECT_EQ(scaffold->ready_for_local_init_op, ready_for_local);
  EXPECT_EQ(scaffold->summary_op, summary);
  const auto values = (*session)->Run({}, {v.read, local.read});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ((*values)[0].scalar<float>(), 7.0f);
  EXPECT_EQ((*values)[1].scalar<float>(), 8.0f);
}

TEST(Scaffolds, AreToldWhichToTakeWhereTheGraphBringsTwo) {
  for (const std::string collection :
       {kInitOp, kReadyOp, kReadyForLocalInitOp, kLocalInitOp, kSummaryOp}) {
    TrainingGraph g;
    for (int i = 0; i < 2; ++i) g.graph.AddToCollection(collection, g.loss);
    const Status status = MonitoredSession::Create(g.graph, {}).status();
    EXPECT_TRUE(errors::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(Message(status)),
                HasSubstr(StrCat("More than one item in the collection \"", collection, "\"")));
  }
  TrainingGraph g;
  for (int i = 0; i < 2; ++i) g.graph.AddToCollection(kReadyOp, g.loss);
  const auto scaffold = std::make_shared<Scaffold>();
  scaffold->ready_op = Constant(g.graph.root(), Tensor::FromValues<std::string>({}));
  const Status status = MonitoredSession::Create(g.graph, {.scaffold = scaffold}).status();
  EXPECT_TRUE(status.ok()) << status;
}

TEST(Scaffolds, FillTables) {
  TrainingGraph g;
  const Scope root = g.graph.root();
  const Output table = ops::HashTableV2(root, kString, kInt64, {.shared_name = "words"});
  const Operation fill =
      ops::InitializeTableV2(root, table, Tensor::FromValues<std::string>({"a", "b"}),
                             Tensor::FromValues<int64_t>({5, 6}));
  g.graph.AddToCollection(kTableInitializers, Output(fill, 0));
  const Variable local =
      MakeVariable(root, "local", Constant(root, Tensor::Scalar(1.0f)), {.local = true});
  const Output found =
      ops::LookupTableFindV2(root, table, Tensor::String("b"), Tensor::Scalar<int64_t>(-1));
  const auto session = MonitoredSession::Create(g.graph, {});
  ASSERT_TRUE(session.ok()) << session.status();
  const auto values = (*session)->Run({}, {found, local.read});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ((*values)[0].scalar<int64_t>(), 6);
  EXPECT_EQ((*values)[1].scalar<float>(), 1.0f);
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

TEST(CheckpointSaverHook, IsDoneWhenWhatIsWrittenAsideIsThere) {
  for (const bool preempted : {false, true}) {
    const TestDirectory directory("aside");
    TrainingGraph g;
    auto created = Saver::Create(g.graph, {.asynchronous = true});
    ASSERT_TRUE(created.ok()) << created.status();
    const std::shared_ptr<Saver> saver = *std::move(created);
    std::vector<HookPtr> hooks;
    hooks.push_back(CheckpointSaverHook(
        {.checkpoint_dir = directory.path(), .every = {.steps = 1000}, .saver = saver}));
    if (preempted) hooks.push_back(std::make_shared<Notice>());
    const Status status = Train(g, hooks, /*steps=*/5);
    ForgetPreemption();
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(saver->Sync().ok());
    EXPECT_EQ(LatestCheckpoint(directory.path()),
              StrCat(directory.path(), "/model.ckpt-", preempted ? 3 : 5));
  }
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
        FeedFnHook(nullptr), StopAfterNEvalsHook({}),
        GlobalStepWaiterHook({.poll = milliseconds(0)}), HookPtr()}) {
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
