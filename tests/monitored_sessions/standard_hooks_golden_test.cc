// SPDX-License-Identifier: Apache-2.0
// The stock hooks, run by run under a clock that the test moves, against recordings of
// TensorFlow's: log lines, files, calls of listeners, events.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "tests/monitored_sessions/golden.h"

namespace millrace::testing {
namespace {

// A clock and a log for hooks.
struct Surroundings {
  int64_t now = 1'000'000'000;
  Json lines = Json::array();
  HookIo io() {
    return {.now = [this] { return now; },
            .log = [this](const std::string& line) { lines.push_back(line); }};
  }
  void Advance(double seconds) { now += std::llround(seconds * 1e9); }
};

Every EveryOf(const Json& arguments, const char* steps, const char* seconds) {
  Every every;
  if (arguments.contains(steps) && !arguments[steps].is_null()) every.steps = arguments[steps];
  if (arguments.contains(seconds)) {
    every.time = std::chrono::milliseconds(std::llround(arguments[seconds].get<double>() * 1e3));
  }
  return every;
}

TEST(StepTimer, TriggersWhenTheRecordedOneDoes) {
  for (const Json& recording : Recordings().at("timer")) {
    SCOPED_TRACE(recording["arguments"].dump());
    Surroundings around;
    StatusOr<StepTimer> timer = StepTimer::Create(
        EveryOf(recording["arguments"], "every_steps", "every_secs"), around.io());
    if (recording.contains("raises")) {
      EXPECT_TRUE(errors::IsInvalidArgument(timer.status()));
      continue;
    }
    ASSERT_TRUE(timer.ok()) << timer.status();
    for (const Json& row : recording["rows"]) {
      around.now = std::llround(row["time"].get<double>() * 1e9);
      ASSERT_EQ(timer->ShouldTrigger(row["step"]), row["triggers"].get<bool>()) << row;
      if (!row["triggers"]) continue;
      const std::optional<StepTimer::Elapsed> elapsed = timer->Update(row["step"]);
      ASSERT_EQ(elapsed.has_value(), !row["elapsed_secs"].is_null()) << row;
      if (!elapsed) continue;
      EXPECT_NEAR(elapsed->seconds, row["elapsed_secs"].get<double>(), 1e-5) << row;
      EXPECT_EQ(elapsed->steps, row["elapsed_steps"].get<int64_t>()) << row;
    }
    EXPECT_EQ(timer->last_step(), recording["last_triggered_step"].get<int64_t>());
  }
}

void ExpectEvents(const std::vector<Json>& got, const Json& want) {
  ASSERT_EQ(got.size(), want.size()) << Json(got).dump();
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (want[i][1] != "summary") {
      EXPECT_EQ(got[i], want[i]) << i;
    } else {
      for (int part = 0; part < 3; ++part) EXPECT_EQ(got[i][part], want[i][part]) << i;
      EXPECT_NEAR(got[i][3].get<double>(), want[i][3].get<double>(),
                  1e-5 * std::abs(want[i][3].get<double>()));
    }
  }
}

// Runs `steps` steps of the training graph with hooks, moving the clock before each.
class HookRun {
 public:
  explicit HookRun(const Json& recording)
      : recording_(recording), directory_(recording.at("name").get<std::string>()) {
    const Output tag = Constant(g.graph.root(), Tensor::String("loss_summary"));
    g.graph.AddToCollection(kSummaries, ops::ScalarSummary(g.graph.root(), tag, g.loss));
  }
  const Json& arguments() const { return recording_["arguments"]; }
  const std::string& directory() const { return directory_.path(); }
  HookIo io() { return around.io(); }

  void Run(std::vector<HookPtr> hooks) {
    MonitoredSessionOptions options;
    options.scaffold = scaffold;
    options.hooks = std::move(hooks);
    options.log = io().log;
    const auto session = MonitoredSession::Create(g.graph, options);
    ASSERT_TRUE(session.ok()) << session.status();
    const int steps = recording_["steps"];
    for (int i = 0; i < steps && !(*session)->ShouldStop(); ++i) {
      around.lines.push_back(StrCat("-- run ", i));
      around.Advance(recording_["seconds_per_step"]);
      const auto result = (*session)->Run({}, {g.train});
      ASSERT_TRUE(result.ok()) << result.status();
    }
    const Status closed = (*session)->Close();
    ASSERT_TRUE(closed.ok()) << closed;
  }
  void ExpectLines() const {
    const Json& want = recording_["log_lines"];
    for (std::size_t i = 0; i < std::max(want.size(), around.lines.size()); ++i) {
      ASSERT_TRUE(i < want.size() && i < around.lines.size())
          << "got " << around.lines.dump(1) << ", recorded " << want.dump(1);
      std::string expected = want[i];
      expected = expected.substr(0, expected.find(" listener: "));
      EXPECT_EQ(directory_.Cut(around.lines[i].get<std::string>()), expected) << "line " << i;
    }
  }
  void ExpectFiles() const {
    EXPECT_EQ(Json(directory_.Files()), recording_["files"]);
    if (recording_.contains("state_file")) {
      EXPECT_EQ(PathsIn(directory_.Cut(directory_.Read("checkpoint"))),
                PathsIn(recording_["state_file"]));
    }
  }
  void ExpectEvents() const {
    millrace::testing::ExpectEvents(EventsIn(directory_), recording_["events"]);
  }

  TrainingGraph g;
  Surroundings around;
  std::shared_ptr<Scaffold> scaffold = std::make_shared<Scaffold>();

 private:
  // The state file without times, which the recordings do not have.
  static std::string PathsIn(const std::string& state) {
    std::string paths;
    for (const std::string_view line : StrSplit(state, '\n')) {
      if (line.find("timestamp") == std::string_view::npos && !line.empty()) {
        StrAppend(&paths, line, "\n");
      }
    }
    return paths;
  }

  const Json& recording_;
  TestDirectory directory_;
};

class RecordingListener : public CheckpointSaverListener {
 public:
  explicit RecordingListener(int64_t stops_at) : stops_at_(stops_at) {}
  Status Begin() override { return Add({"begin"}); }
  Status BeforeSave(Session&, int64_t step) override { return Add({"before_save", step}); }
  StatusOr<bool> AfterSave(Session&, int64_t step) override {
    Add({"after_save", step}).IgnoreError();
    return step == stops_at_;
  }
  Status End(Session&, int64_t step) override { return Add({"end", step}); }
  const Json& calls() const { return calls_; }

 private:
  Status Add(std::vector<Json> call) {
    calls_.push_back(std::move(call));
    return OkStatus();
  }
  const int64_t stops_at_;
  Json calls_ = Json::array();
};

// One test per recording of the stock hooks; those of one hook share a body.
class StockHook : public ::testing::TestWithParam<int> {};

void RunCheckpointSaver(const Json& recording) {
  HookRun run(recording);
  const auto listener =
      std::make_shared<RecordingListener>(run.arguments().value("listener_stops_at", -1));
  run.Run({CheckpointSaverHook({.checkpoint_dir = run.directory(),
                                .every = EveryOf(run.arguments(), "save_steps", "save_secs"),
                                .scaffold = run.scaffold,
                                .listeners = {listener},
                                .save_graph_def = run.arguments().value("save_graph_def", true),
                                .io = run.io()})});
  run.ExpectLines();
  run.ExpectFiles();
  run.ExpectEvents();
  EXPECT_EQ(listener->calls(), recording["listener_calls"]);
}

void RunStepCounter(const Json& recording) {
  HookRun run(recording);
  run.Run({StepCounterHook({.every = EveryOf(run.arguments(), "every_n_steps", "every_n_secs"),
                            .output_dir = run.directory(),
                            .io = run.io()})});
  run.ExpectLines();
  run.ExpectEvents();
}

void RunLoggingTensor(const Json& recording) {
  HookRun run(recording);
  run.Run({LoggingTensorHook({.tensors = {{"loss", run.g.loss}, {"step", run.g.train}},
                              .every = EveryOf(run.arguments(), "every_n_iter", "every_n_secs"),
                              .at_end = run.arguments().value("at_end", false),
                              .io = run.io()})});
  run.ExpectLines();
}

void RunFormattedLoggingTensor(const Json& recording) {
  HookRun run(recording);
  const auto formatter = [](std::span<const Tensor> values) {
    return StrCat("x is ", ToJson(values[0]).dump());
  };
  run.Run({LoggingTensorHook(
               {.tensors = {{"loss", run.g.loss}}, .every = {.steps = 4}, .io = run.io()}),
           LoggingTensorHook({.tensors = {{"loss", run.g.loss}},
                              .every = {.steps = 2},
                              .formatter = formatter,
                              .io = run.io()})});
  run.ExpectLines();
}

void RunSummarySaver(const Json& recording) {
  HookRun run(recording);
  run.Run({SummarySaverHook({.output_dir = run.directory(),
                             .every = EveryOf(run.arguments(), "save_steps", "save_secs"),
                             .scaffold = run.scaffold,
                             .io = run.io()})});
  run.ExpectLines();
  run.ExpectEvents();
}

void RunFinalOps(const Json& recording) {
  HookRun run(recording);
  const auto hook = std::make_shared<FinalOpsHook>(SessionRunArgs{.fetches = {run.g.step.read}});
  run.Run({hook});
  run.ExpectLines();
  ASSERT_EQ(hook->values().size(), 1u);
  EXPECT_EQ(ToJson(hook->values()[0]), recording["listener_calls"][0][1][0]);
}

void RunFeedFn(const Json& recording) {
  HookRun run(recording);
  const Output fed = Placeholder(run.g.graph.root(), kFloat, PartialShape({}));
  Json calls = Json::array();
  int count = 0;
  run.Run({FeedFnHook([&]() -> StatusOr<std::vector<Feed>> {
    calls.push_back(std::vector<Json>{"feed_fn", ++count});
    return std::vector<Feed>{{fed, Tensor::Scalar(1.0f)}};
  })});
  run.ExpectLines();
  EXPECT_EQ(calls, recording["listener_calls"]);
}

TEST_P(StockHook, DoesWhatTheRecordedOneDid) {
  const Json& recording = Recordings()["standard_hooks"][GetParam()];
  const std::string name = recording["name"];
  SCOPED_TRACE(recording["arguments"].dump());
  if (name.starts_with("CheckpointSaverHook")) return RunCheckpointSaver(recording);
  if (name == "StepCounterHook") return RunStepCounter(recording);
  if (name == "LoggingTensorHook") return RunLoggingTensor(recording);
  if (name.starts_with("LoggingTensorHook with")) return RunFormattedLoggingTensor(recording);
  if (name == "SummarySaverHook") return RunSummarySaver(recording);
  if (name == "FinalOpsHook") return RunFinalOps(recording);
  if (name == "FeedFnHook") return RunFeedFn(recording);
  FAIL() << "nothing here runs a " << name;
}

// The last recording is of two trainings: see below.
INSTANTIATE_TEST_SUITE_P(
    Recorded, StockHook,
    ::testing::Range(0, static_cast<int>(Recordings()["standard_hooks"].size()) - 1));

TEST(MonitoredTrainingSession, GoesOnFromItsCheckpointAsTheRecordedOneDid) {
  const Json& recording = Recording("standard_hooks", "MonitoredTrainingSession, twice");
  const TestDirectory directory("twice");
  Surroundings around;
  for (const Json& want : recording["runs"]) {
    TrainingGraph g;
    const Output tag = Constant(g.graph.root(), Tensor::String("loss_summary"));
    g.graph.AddToCollection(kSummaries, ops::ScalarSummary(g.graph.root(), tag, g.loss));
    around.lines = Json::array();
    MonitoredTrainingOptions options;
    options.checkpoint_dir = directory.path();
    options.save_checkpoint_steps = 3;
    options.save_summaries_steps = 2;
    options.log_step_count_steps = 2;
    options.hooks = {StopAtStepHook({.num_steps = 5})};
    options.io = around.io();
    const auto session = MonitoredTrainingSession(g.graph, options);
    ASSERT_TRUE(session.ok()) << session.status();
    Json steps = Json::array();
    const Status status = (*session)->RunUntilStop([&]() -> Status {
      around.Advance(recording["seconds_per_step"]);
      MR_ASSIGN_OR_RETURN(const std::vector<Tensor> result, (*session)->Run({}, {g.train}));
      steps.push_back(ToJson(result[0]));
      return OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(steps, want["steps"]);
    Json lines = Json::array();
    for (const Json& line : around.lines) lines.push_back(directory.Cut(line));
    EXPECT_EQ(lines, want["log_lines"]);
    EXPECT_EQ(Json(directory.Files()), want["files"]);
  }
  ExpectEvents(EventsIn(directory), recording["events"]);
}

}  // namespace
}  // namespace millrace::testing
