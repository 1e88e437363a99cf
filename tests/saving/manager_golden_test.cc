// SPDX-License-Identifier: Apache-2.0
// Which checkpoints TensorFlow's CheckpointManager keeps, under a clock that is told the time.
#include <gtest/gtest.h>

#include "tests/saving/saving_testlib.h"

namespace millrace::testing {
namespace {

std::string NameOf(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::vector<std::string> NamesOf(const std::vector<std::string>& paths) {
  std::vector<std::string> names;
  for (const std::string& path : paths) names.push_back(NameOf(path));
  return names;
}

std::string TextOf(const Json& json) { return json.is_null() ? "" : json.get<std::string>(); }

CheckpointManagerOptions OptionsOf(const Json& arguments, const std::string& folder, double* now) {
  CheckpointManagerOptions options{.directory = folder, .max_to_keep = std::nullopt};
  options.clock = [now] { return *now; };
  if (!arguments["max_to_keep"].is_null()) options.max_to_keep = arguments["max_to_keep"];
  if (arguments.contains("keep_checkpoint_every_n_hours")) {
    options.keep_checkpoint_every_n_hours = arguments["keep_checkpoint_every_n_hours"];
  }
  if (arguments.contains("checkpoint_interval")) {
    options.checkpoint_interval = arguments["checkpoint_interval"];
  }
  options.checkpoint_name = arguments.value("checkpoint_name", options.checkpoint_name);
  return options;
}

// A program with a count of steps and a manager.
struct Program {
  Program(const Json& golden, const std::string& folder, double* now) {
    step = GlobalStep(graph.root());
    const Variable v = FloatVariable(graph.root(), "v", {1, 2});
    checkpoint = *Checkpoint::Create(graph, {{"step", step}, {"v", v}});
    CheckpointManagerOptions options = OptionsOf(golden["arguments"], folder, now);
    if (golden.value("step_counter", false)) options.step_counter = step;
    auto made = CheckpointManager::Create(checkpoint.get(), options);
    EXPECT_TRUE(made.ok()) << made.status();
    manager = *std::move(made);
    init = InitializeVariables(graph.root());
    count = AssignAdd(graph.root(), step, Tensor::Scalar<int64_t>(1));
    session.emplace(*Session::Create(graph));
  }

  void ExpectState(const Json& want, const std::string& folder) {
    EXPECT_EQ(FilesAsWrittenFirst(folder), want["files"].get<std::vector<std::string>>());
    EXPECT_EQ(FileText(folder + "/checkpoint"), want["state_file"]);
  }
  void ExpectCheckpoints(const Json& want) {
    EXPECT_EQ(NamesOf(manager->checkpoints()), want["checkpoints"].get<std::vector<std::string>>());
  }

  Graph graph;
  Variable step;
  std::unique_ptr<Checkpoint> checkpoint;
  std::unique_ptr<CheckpointManager> manager;
  Operation init, count;
  std::optional<Session> session;
};

void RunSecond(const Json& golden, const std::string& folder, double* now) {
  const Json& want = golden["second_manager"];
  SCOPED_TRACE(want.dump());
  const double pause = golden["seconds_between_saves"];
  *now += pause;
  Program p(golden, folder, now);
  EXPECT_EQ(NameOf(p.manager->latest_checkpoint()), want["restored"]);
  const auto restored = p.checkpoint->Restore(*p.session, p.manager->latest_checkpoint());
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(p.session->Eval(p.step.read)->scalar<int64_t>(), want["step"]);
  p.ExpectCheckpoints(want);
  *now += pause;
  const auto saved = p.manager->Save(*p.session);
  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_EQ(NameOf(*saved), want["saved"]);
  p.ExpectState(want, folder);
}

void RunCase(const Json& golden, const std::string& folder) {
  double now = golden["created_at"];
  Program p(golden, folder, &now);
  ASSERT_TRUE(p.session->RunTargets({p.init}).ok());
  for (const Json& want : golden["saves"]) {
    SCOPED_TRACE(want.dump());
    now += golden["seconds_between_saves"].get<double>();
    ASSERT_TRUE(p.session->RunTargets({p.count}).ok());
    std::optional<int64_t> number;
    if (!want["number"].is_null()) number = want["number"];
    const auto saved = p.manager->Save(*p.session, number);
    ASSERT_TRUE(saved.ok()) << saved.status();
    EXPECT_EQ(NameOf(*saved), TextOf(want["returned"]));
    EXPECT_EQ(NameOf(p.manager->latest_checkpoint()), TextOf(want["latest"]));
    p.ExpectCheckpoints(want);
    p.ExpectState(want, folder);
  }
  RunSecond(golden, folder, &now);
}

TEST(ManagerGoldenTest, FilesStateAndListAreTensorFlowsAfterEverySave) {
  const Json cases = LoadJson("training/callbacks/checkpoint_manager.json")["cases"];
  int number = 0;
  for (const Json& golden : cases) {
    SCOPED_TRACE(golden["arguments"].dump());
    RunCase(golden, EmptyFolder(std::to_string(++number)));
    if (::testing::Test::HasFatalFailure()) return;
  }
  std::printf("checkpoint manager: %d of %zu run\n", number, cases.size());
  EXPECT_GT(number, 0) << "there is nothing to compare with";
}

TEST(ManagerGoldenTest, OptionsThatCannotBeAreRefused) {
  Graph graph;
  const Variable v = FloatVariable(graph.root(), "v", {1});
  const auto checkpoint = Checkpoint::Create(graph, {{"v", v}});
  const auto refused = [&](CheckpointManagerOptions options) {
    return std::string(
        CheckpointManager::Create(checkpoint->get(), std::move(options)).status().message());
  };
  EXPECT_NE(refused({.directory = "/x", .max_to_keep = 0})
                .find("Expected a positive integer or `None` for `max_to_keep`"),
            std::string::npos);
  EXPECT_NE(
      refused({.directory = "/x", .max_to_keep = 1, .checkpoint_interval = 5}).find("step_counter"),
      std::string::npos);
}

TEST(ManagerGoldenTest, RestoresTheNewestThatIsCompleteOrCallsTheInitFunction) {
  const std::string folder = EmptyFolder("it");
  for (int run = 0; run < 2; ++run) {
    Graph graph;
    const Variable v = FloatVariable(graph.root(), "v", {0});
    const auto checkpoint = Checkpoint::Create(graph, {{"v", v}});
    int calls = 0;
    const Operation init = InitializeVariables(graph.root());
    CheckpointManagerOptions options{.directory = folder, .max_to_keep = 3};
    options.init_fn = [&](Session& session) {
      ++calls;
      return session.RunTargets({init});
    };
    const auto manager = CheckpointManager::Create(checkpoint->get(), options);
    Session session = *Session::Create(graph);
    const auto restored = (*manager)->RestoreOrInitialize(session);
    ASSERT_TRUE(restored.ok()) << restored.status();
    EXPECT_EQ(calls, run == 0 ? 1 : 0);
    EXPECT_EQ(*restored, run == 0 ? "" : folder + "/ckpt-2");
    EXPECT_EQ(FloatsOf(session, v), std::vector<float>{run == 0 ? 0.0f : 2.0f});
    if (run == 1) break;
    for (int i = 1; i <= 3; ++i) {
      ASSERT_TRUE(SetFloats(graph, session, v, {static_cast<float>(i)}).ok());
      ASSERT_TRUE((*manager)->Save(session).ok());
    }
    WriteText(folder + "/ckpt-3.index", FileText(folder + "/ckpt-3.index").substr(0, 20));
  }
}

}  // namespace
}  // namespace millrace::testing
