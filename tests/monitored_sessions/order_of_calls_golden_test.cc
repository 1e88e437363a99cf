// SPDX-License-Identifier: Apache-2.0
// The order of calls in a monitored session, call by call, against recordings of TensorFlow's.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "tests/monitored_sessions/golden.h"

namespace millrace::testing {
namespace {

// What the script has somebody do at his n-th call: "raise X" or "request_stop".
class Script {
 public:
  explicit Script(const Json& calls) {
    for (const Json& call : calls) {
      if (!call[1].is_string()) continue;
      const std::string who = StrCat(call[0].get<std::string>(), ".", call[1].get<std::string>());
      const bool acts = call.size() > 2 && call.back().is_string();
      actions_[who].push_back(acts ? call.back().get<std::string>() : "");
    }
  }
  std::string Next(const std::string& who, const std::string& method) {
    const std::string key = StrCat(who, ".", method);
    const int call = calls_[key]++;
    const auto& actions = actions_[key];
    return call < static_cast<int>(actions.size()) ? actions[call] : "";
  }

 private:
  std::map<std::string, std::vector<std::string>> actions_;
  std::map<std::string, int> calls_;
};

Status Raised(const std::string& action) {
  constexpr std::string_view kRaise = "raise ";
  if (!action.starts_with(kRaise)) return OkStatus();
  return MakeStatus(CodeOf(action.substr(kRaise.size())), "as the script says");
}

struct Record {
  explicit Record(const Json& expected) : script(expected) {}
  // Adds the call with what the script has it do.
  std::string Add(Json call) {
    const std::string action = script.Next(call[0], call[1]);
    if (!action.empty()) call.push_back(action);
    calls.push_back(std::move(call));
    return action;
  }
  Script script;
  Json calls = Json::array();
};

class RecordingHook : public SessionRunHook {
 public:
  RecordingHook(std::string name, const Output& step, std::vector<Output> fetches, Record* record)
      : name_(std::move(name)), step_(step), fetches_(std::move(fetches)), record_(record) {}

  Status Begin(Graph&) override { return Raised(record_->Add({name_, "begin"})); }
  Status AfterCreateSession(Session& session, Coordinator&) override {
    return AddWithStep("after_create_session", session);
  }
  StatusOr<SessionRunArgs> BeforeRun(SessionRunContext& context) override {
    Json names = Json::array();
    for (const Output& fetch : context.original_args().fetches) names.push_back(fetch.name());
    MR_RETURN_IF_ERROR(Act(context, "before_run",
                           {{"stop_requested", context.stop_requested()},
                            {"caller_fetches", names.size() == 1 ? names[0] : names}}));
    return SessionRunArgs{.fetches = fetches_, .feeds = feeds_};
  }
  Status AfterRun(SessionRunContext& context, const SessionRunValues& values) override {
    Json results;
    for (const Tensor& value : values.results) results.push_back(ToJson(value));
    if (results.size() == 1) results = results[0];
    return Act(context, "after_run",
               {{"stop_requested", context.stop_requested()}, {"results", results}});
  }
  Status End(Session& session) override { return AddWithStep("end", session); }
  void Feed(std::vector<millrace::Feed> feeds) { feeds_ = std::move(feeds); }

 private:
  Status AddWithStep(const std::string& method, Session& session) {
    MR_ASSIGN_OR_RETURN(const Tensor step, session.Eval(step_));
    return Raised(record_->Add({name_, method, ToJson(step)}));
  }
  Status Act(SessionRunContext& context, const std::string& method, const Json& seen) {
    const std::string action = record_->Add({name_, method, seen});
    if (action == "request_stop") context.RequestStop();
    return Raised(action);
  }

  const std::string name_;
  const Output step_;
  const std::vector<Output> fetches_;
  std::vector<millrace::Feed> feeds_;
  Record* const record_;
};

// One of the recorded programs, written with our sessions.
class Program {
 public:
  explicit Program(const Json& recording)
      : recording_(recording),
        record_(recording.at("calls")),
        directory_(recording.at("name").get<std::string>()) {}

  Status Run() {
    MonitoredSessionOptions options;
    options.scaffold = std::make_shared<Scaffold>();
    options.hooks = {
        std::make_shared<RecordingHook>("a", g_.step.read, std::vector{g_.loss}, &record_),
        std::make_shared<RecordingHook>("b", g_.step.read, std::vector{g_.train, g_.loss},
                                        &record_)};
    AddNamedHooks(&options);
    if (recording_.at("kind") == "SingularMonitoredSession") options.max_recoveries = 0;
    MR_ASSIGN_OR_RETURN(const auto session, MonitoredSession::Create(g_.graph, options));
    return session->Close(Loop(*session));
  }
  const Json& calls() const { return record_.calls; }
  const TestDirectory& directory() const { return directory_; }

 private:
  void AddNamedHooks(MonitoredSessionOptions* options) {
    const std::string name = recording_.at("name");
    const float no_number = std::numeric_limits<float>::quiet_NaN();
    const Output nan = Constant(g_.graph.root(), Tensor::Scalar(no_number));
    if (name == "StopAtStepHook num_steps")
      options->hooks.push_back(StopAtStepHook({.num_steps = 2}));
    if (name == "StopAtStepHook last_step")
      options->hooks.push_back(StopAtStepHook({.last_step = 3}));
    if (name == "NanTensorHook no nan") options->hooks.push_back(NanTensorHook(g_.loss));
    if (name == "NanTensorHook fails") options->hooks.push_back(NanTensorHook(nan));
    if (name == "NanTensorHook stops") {
      options->hooks.push_back(NanTensorHook(nan, {.fail_on_nan_loss = false}));
    }
    if (recording_.contains("save_steps")) {
      options->checkpoint_dir = directory_.path();
      options->hooks.push_back(CheckpointSaverHook({.checkpoint_dir = directory_.path(),
                                                    .every = {.steps = recording_["save_steps"]},
                                                    .scaffold = options->scaffold}));
    }
  }

  Status Loop(MonitoredSession& session) {
    const bool until_stop = recording_.at("loop") == "should_stop";
    const int asked = recording_.at("steps_asked");
    for (int i = 0; until_stop ? !session.ShouldStop() : i < asked; ++i) {
      MR_RETURN_IF_ERROR(Raised(record_.Add({"caller", "run", i})));
      MR_ASSIGN_OR_RETURN(const std::vector<Tensor> results, session.Run({}, {g_.train, g_.loss}));
      record_.Add({"caller", "result", {ToJson(results[0]), ToJson(results[1])}});
    }
    record_.Add({"caller", "leaving", session.ShouldStop()});
    return OkStatus();
  }

  const Json& recording_;
  TrainingGraph g_;
  Record record_;
  TestDirectory directory_;
};

class Scenario : public ::testing::TestWithParam<int> {};

TEST_P(Scenario, HasTheRecordedCalls) {
  const Json& recording = Recordings().at("scenarios")[GetParam()];
  Program program(recording);
  const Status status = program.Run();
  const std::string ended = recording.at("ended");
  if (ended == "normally") {
    EXPECT_TRUE(status.ok()) << status;
  } else {
    EXPECT_EQ(status.code(), CodeOf(ended.substr(ended.find(' ') + 1))) << status;
  }
  const Json& want = recording.at("calls");
  for (std::size_t i = 0; i < std::max(want.size(), program.calls().size()); ++i) {
    const std::string got_line = i < program.calls().size() ? program.calls()[i].dump() : "nothing";
    const std::string want_line = i < want.size() ? want[i].dump() : "nothing";
    ASSERT_TRUE(i < want.size() && i < program.calls().size() && want[i] == program.calls()[i])
        << "call " << i << ": " << got_line << ", recorded: " << want_line;
  }
  if (recording.contains("files")) {
    EXPECT_EQ(Json(program.directory().Files()), recording["files"]);
  }
}

INSTANTIATE_TEST_SUITE_P(Recorded, Scenario,
                         ::testing::Range(0, static_cast<int>(Recordings()["scenarios"].size())),
                         [](const ::testing::TestParamInfo<int>& info) {
                           std::string name = Recordings()["scenarios"][info.param]["name"];
                           std::erase_if(name, [](unsigned char c) { return !std::isalnum(c); });
                           return name;
                         });

// A placeholder, which hooks and the caller feed, doubled.
struct FedGraph : TrainingGraph {
  FedGraph() {
    fed = Placeholder(graph.root().WithOpName("p"), kFloat, PartialShape({}));
    doubled = ops::Mul(graph.root().WithOpName("mul_1"), fed, 2.0f);
  }
  HookPtr Hook(const std::string& name, Record* record, float value) {
    auto hook = std::make_shared<RecordingHook>(name, step.read, std::vector<Output>(), record);
    hook->Feed({{fed, Tensor::Scalar(value)}});
    return hook;
  }
  Output fed, doubled;
};

TEST(Feeds, OfTwoHooksMustDiffer) {
  const Json& recording = Recording("other", "two hooks feed one tensor");
  FedGraph g;
  Record record(recording["calls"]);
  const auto session = MonitoredSession::Create(
      g.graph, {.hooks = {g.Hook("a", &record, 1), g.Hook("b", &record, 2)}});
  ASSERT_TRUE(session.ok()) << session.status();
  const Status status = (*session)->Run({}, {g.doubled}).status();
  EXPECT_EQ(Message(status), "Same tensor is fed by two hooks. Conflict(s): p:0");
  EXPECT_EQ((*session)->Close(status), status);
  EXPECT_EQ(record.calls, recording["calls"]);
}

TEST(Feeds, OfAHookAndTheCallerMustDiffer) {
  const Json& recording = Recording("other", "hook and caller feed one tensor");
  FedGraph g;
  Record record(recording["calls"]);
  const auto session = MonitoredSession::Create(g.graph, {.hooks = {g.Hook("a", &record, 1)}});
  ASSERT_TRUE(session.ok()) << session.status();
  const Status status = (*session)->Run({{g.fed, Tensor::Scalar(5.0f)}}, {g.doubled}).status();
  EXPECT_EQ(Message(status), "Same tensor is fed by a SessionRunHook and user. Conflict(s): p:0");
  EXPECT_EQ((*session)->Close(status), status);
  EXPECT_EQ(record.calls, recording["calls"]);
}

TEST(Feeds, OfAHookReachTheStep) {
  const Json& recording = Recording("other", "hook feeds");
  FedGraph g;
  Record record(recording["calls"]);
  const auto session = MonitoredSession::Create(g.graph, {.hooks = {g.Hook("a", &record, 3)}});
  ASSERT_TRUE(session.ok()) << session.status();
  const auto result = (*session)->Run({}, {g.doubled});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ((*result)[0].scalar<float>(), recording["result"].get<float>());
  EXPECT_TRUE((*session)->Close().ok());
  EXPECT_EQ(record.calls, recording["calls"]);
}

TEST(StepFunctions, RunWithAndWithoutHooksAndEndTheTraining) {
  const Json& recording = Recording(
      "other", "run_step_fn: one plain run, one with hooks; the second call requests a stop");
  TrainingGraph g;
  Record record(recording["calls"]);
  const auto hook = std::make_shared<RecordingHook>("a", g.step.read, std::vector{g.loss}, &record);
  const auto session = MonitoredSession::Create(g.graph, {.hooks = {hook}});
  ASSERT_TRUE(session.ok()) << session.status();
  int call = 0;
  const auto step_fn = [&](StepContext& context) -> StatusOr<std::vector<Tensor>> {
    record.calls.push_back({"step_fn", "begin"});
    MR_RETURN_IF_ERROR(context.session().Run({}, {g.train}).status());
    MR_ASSIGN_OR_RETURN(std::vector<Tensor> values,
                        context.RunWithHooks({.fetches = {g.train, g.loss}}));
    record.calls.push_back({"step_fn", "end"});
    if (++call == 2) return context.RequestStop();
    return values;
  };
  const auto first = (*session)->RunStepFn(step_fn);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(Json({ToJson((*first)[0]), ToJson((*first)[1])}), recording["results"][0]);
  EXPECT_FALSE((*session)->ShouldStop());
  const Status second = (*session)->RunStepFn(step_fn).status();
  EXPECT_EQ(second.code(), CodeOf(recording["results"][1]));
  EXPECT_TRUE((*session)->ShouldStop());
  EXPECT_TRUE((*session)->Close(second).ok());
  EXPECT_EQ(record.calls, recording["calls"]);
}

TEST(Scaffolds, InitialiseByTheirFunctionAfterTheirOp) {
  const Json& recording = Recording("other", "scaffold with init_fn");
  TrainingGraph g;
  const Scope root = g.graph.root();
  const Variable v = MakeVariable(root, "v", Constant(root, Tensor::Scalar(1.0f)));
  const Variable local =
      MakeVariable(root, "lv", Constant(root, Tensor::Scalar(2.0f)), {.local = true});
  const Operation set = Assign(root, v, 7.0f);
  Record record(recording["calls"]);
  MonitoredSessionOptions options;
  options.scaffold = std::make_shared<Scaffold>();
  options.scaffold->init_fn = [&](Session& session) -> Status {
    MR_ASSIGN_OR_RETURN(const Tensor value, session.Eval(v.read));
    record.calls.push_back({"init_fn", ToJson(value)});
    return session.RunTargets({set});
  };
  options.hooks = {
      std::make_shared<RecordingHook>("a", g.step.read, std::vector<Output>(), &record)};
  const auto session = MonitoredSession::Create(g.graph, options);
  ASSERT_TRUE(session.ok()) << session.status();
  const auto values = (*session)->Run({}, {v.read, local.read});
  ASSERT_TRUE(values.ok()) << values.status();
  record.calls.push_back({"v, lv after", {ToJson((*values)[0]), ToJson((*values)[1])}});
  EXPECT_TRUE((*session)->Close().ok());
  // Fetches have names that the recording does not share.
  Json want = recording["calls"], got = record.calls;
  for (Json* calls : {&want, &got}) {
    for (Json& call : *calls) {
      if (call[1] == "before_run") call[2].erase("caller_fetches");
    }
  }
  EXPECT_EQ(got, want);
  for (const Operation& op :
       {options.scaffold->init_op, options.scaffold->local_init_op, options.scaffold->ready_op.op(),
        options.scaffold->ready_for_local_init_op.op()}) {
    EXPECT_TRUE(op.valid());
  }
  EXPECT_FALSE(options.scaffold->summary_op.valid());
}

TEST(ClosedSessions, ShouldStopAndRunNothing) {
  const Json& recording = Recording("other", "run after close");
  TrainingGraph g;
  const auto session = MonitoredSession::Create(g.graph, {});
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_TRUE((*session)->Close().ok());
  EXPECT_EQ((*session)->ShouldStop(), recording["should_stop"].get<bool>());
  EXPECT_TRUE(errors::IsFailedPrecondition((*session)->Run({}, {g.train}).status()));
  EXPECT_TRUE(errors::IsFailedPrecondition((*session)->Close()));
}

}  // namespace
}  // namespace millrace::testing
