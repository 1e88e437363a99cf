// SPDX-License-Identifier: Apache-2.0
// Checkpoints of objects: optimizers, counts of saves, clusters, writing aside.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/errors.h"
#include "base/strings.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/saving/saving_testlib.h"

namespace millrace::testing {
namespace {

using Floats = std::vector<float>;

std::vector<std::string> NamesIn(const std::string& prefix) {
  std::vector<std::string> names;
  const auto reader = CheckpointReader::Open(prefix);
  EXPECT_TRUE(reader.ok()) << reader.status();
  for (const auto& entry : (*reader)->entries()) {
    const std::string end = "/.ATTRIBUTES/VARIABLE_VALUE";
    names.push_back(entry.name.ends_with(end) ? entry.name.substr(0, entry.name.size() - end.size())
                                              : entry.name);
  }
  return names;
}

// A layer that is trained for some steps.
struct Training {
  explicit Training(std::unique_ptr<Optimizer> o) : optimizer(std::move(o)) {
    kernel = FloatVariable(graph.root(), "kernel", {1, 2, 3});
    bias = FloatVariable(graph.root(), "bias", {4, 5, 6}, /*use_resource=*/true);
    const Output loss = ReduceSum(
        graph.root(), ops::Mul(graph.root(), kernel.read, ops::Exp(graph.root(), bias.read)));
    const std::vector<Variable> trained = {kernel, bias};
    const auto gradients = optimizer->ComputeGradients(graph.root(), loss, trained);
    EXPECT_TRUE(gradients.ok()) << gradients.status();
    const auto made = optimizer->ApplyGradients(graph.root(), *gradients, nullptr);
    EXPECT_TRUE(made.ok()) << made.status();
    train = *made;
    Trackable layer;
    layer.Add("kernel", kernel).Add("bias", bias);
    auto created = Checkpoint::Create(
        graph, {{"layer", layer}, {"optimizer", Trackable::Of(*optimizer, trained)}});
    EXPECT_TRUE(created.ok()) << created.status();
    checkpoint = *std::move(created);
    const Operation init = InitializeVariables(graph.root());
    session.emplace(*Session::Create(graph));
    EXPECT_TRUE(session->RunTargets({init}).ok());
  }
  void Train(int steps) {
    for (int i = 0; i < steps; ++i) EXPECT_TRUE(session->RunTargets({train}).ok());
  }
  Floats Values() {
    Floats all = FloatsOf(*session, kernel);
    for (const float v : FloatsOf(*session, bias)) all.push_back(v);
    return all;
  }

  Graph graph;
  std::unique_ptr<Optimizer> optimizer;
  Variable kernel, bias;
  Operation train;
  std::unique_ptr<Checkpoint> checkpoint;
  std::optional<Session> session;
};

TEST(CheckpointTest, SlotsOfAdamAreKeptUnderTheNamesOfTensorFlows) {
  Training t(Adam({}));
  t.Train(1);
  const std::string prefix = EmptyFolder("it") + "/c";
  const Status written = t.checkpoint->Write(*t.session, prefix);
  ASSERT_TRUE(written.ok()) << written;
  EXPECT_EQ(
      NamesIn(prefix),
      (std::vector<std::string>{
          "_CHECKPOINTABLE_OBJECT_GRAPH", "layer/bias", "layer/bias/.OPTIMIZER_SLOT/optimizer/m",
          "layer/bias/.OPTIMIZER_SLOT/optimizer/v", "layer/kernel",
          "layer/kernel/.OPTIMIZER_SLOT/optimizer/m", "layer/kernel/.OPTIMIZER_SLOT/optimizer/v",
          "optimizer/beta1_power", "optimizer/beta2_power"}));
}

TEST(CheckpointTest, SlotsOfOtherOptimizersToo) {
  const auto slots = [](std::unique_ptr<Optimizer> optimizer, const std::string& name) {
    Training t(std::move(optimizer));
    const std::string prefix = EmptyFolder(name) + "/c";
    EXPECT_TRUE(t.checkpoint->Write(*t.session, prefix).ok());
    std::string found;
    const std::string start = "layer/bias/.OPTIMIZER_SLOT/optimizer/";
    for (const std::string& key : NamesIn(prefix)) {
      if (key.starts_with(start)) StrAppend(&found, key.substr(start.size()), " ");
    }
    return found;
  };
  EXPECT_EQ(slots(Momentum({}), "momentum"), "momentum ");
  EXPECT_EQ(slots(Adagrad({}), "adagrad"), "accumulator ");
  EXPECT_EQ(slots(Adadelta({}), "adadelta"), "accum accum_update ");
  EXPECT_EQ(slots(RmsProp({}), "rms"), "momentum rms ");
  EXPECT_EQ(slots(RmsProp({.centered = true}), "centered"), "mg momentum rms ");
  EXPECT_EQ(slots(Ftrl({}), "ftrl"), "accum linear ");
}

TEST(CheckpointTest, AnAdamOfKerasHasTheKeysOfKeras) {
  Training t(optimizers::Adam());
  const std::string prefix = EmptyFolder("it") + "/c";
  ASSERT_TRUE(t.checkpoint->Write(*t.session, prefix).ok());
  EXPECT_EQ(NamesIn(prefix),
            (std::vector<std::string>{"_CHECKPOINTABLE_OBJECT_GRAPH", "layer/bias", "layer/kernel",
                                      "optimizer/_iterations", "optimizer/_learning_rate",
                                      "optimizer/_variables/2", "optimizer/_variables/3",
                                      "optimizer/_variables/4", "optimizer/_variables/5"}));
}

TEST(CheckpointTest, TrainingGoesOnAsIfItHadNotStopped) {
  const auto run = [](const auto& make) {
    const std::string prefix = EmptyFolder("it") + "/c";
    Training whole(make());
    whole.Train(3);
    ASSERT_TRUE(whole.checkpoint->Write(*whole.session, prefix).ok());
    whole.Train(3);
    Training second(make());
    auto status = second.checkpoint->Restore(*second.session, prefix);
    ASSERT_TRUE(status.ok()) << status.status();
    EXPECT_TRUE(status->AssertConsumed().ok()) << status->AssertConsumed();
    second.Train(3);
    EXPECT_EQ(whole.Values(), second.Values());
  };
  run([] { return Adam({}); });
  run([]() -> std::unique_ptr<Optimizer> { return optimizers::Adam(); });
  run([] { return RmsProp({.momentum = 0.5f, .centered = true}); });
}

// As a program that makes its optimizer when the first batch has come.
TEST(CheckpointTest, OptimizersAndSlotsThatAreAddedLaterGetTheirValuesThen) {
  const std::string prefix = EmptyFolder("it") + "/c";
  Training whole(Adam({}));
  whole.Train(3);
  ASSERT_TRUE(whole.checkpoint->Write(*whole.session, prefix).ok());
  whole.Train(3);
  Training second(Adam({}));
  const auto late = Checkpoint::Create(second.graph, {});
  auto status = (*late)->Read(*second.session, prefix);
  ASSERT_TRUE(status.ok()) << status.status();
  (*late)->root().Add("layer", Trackable().Add("kernel", second.kernel).Add("bias", second.bias));
  ASSERT_TRUE(status->RestoreAdded(*second.session).ok());
  const Status unresolved = status->AssertConsumed();
  EXPECT_NE(Message(unresolved).find("Unresolved object in checkpoint (root).optimizer"),
            std::string_view::npos)
      << unresolved;
  const std::vector<Variable> trained = {second.kernel, second.bias};
  (*late)->root().Add("optimizer", Trackable::Of(*second.optimizer, trained));
  const Status added = status->RestoreAdded(*second.session);
  ASSERT_TRUE(added.ok()) << added;
  EXPECT_TRUE(status->AssertConsumed().ok()) << status->AssertConsumed();
  second.Train(3);
  EXPECT_EQ(whole.Values(), second.Values());
}

TEST(CheckpointTest, ASlotWaitsForItsOptimizerItsVariableAndItself) {
  const std::string prefix = EmptyFolder("it") + "/c";
  Graph graph;
  const Variable v = FloatVariable(graph.root(), "v", {1});
  const Variable m = FloatVariable(graph.root(), "m", {2});
  const Operation init = InitializeVariables(graph.root());
  Session session = *Session::Create(graph);
  ASSERT_TRUE(session.RunTargets({init}).ok());
  const auto whole =
      Checkpoint::Create(graph, {{"v", v}, {"optimizer", Trackable().AddSlot("m", v, m)}});
  ASSERT_TRUE((*whole)->Write(session, prefix).ok());
  ASSERT_TRUE(SetFloats(graph, session, v, {0}).ok());
  ASSERT_TRUE(SetFloats(graph, session, m, {0}).ok());
  const auto late = Checkpoint::Create(graph, {});
  auto status = (*late)->Read(session, prefix);
  ASSERT_TRUE(status.ok()) << status.status();
  Trackable optimizer;
  (*late)->root().Add("optimizer", optimizer);
  ASSERT_TRUE(status->RestoreAdded(session).ok());
  (*late)->root().Add("v", v);
  ASSERT_TRUE(status->RestoreAdded(session).ok());
  EXPECT_EQ(FloatsOf(session, v), Floats{1});
  EXPECT_EQ(FloatsOf(session, m), Floats{0});
  EXPECT_FALSE(status->AssertConsumed().ok());
  optimizer.AddSlot("m", v, m);
  ASSERT_TRUE(status->RestoreAdded(session).ok());
  EXPECT_EQ(FloatsOf(session, m), Floats{2});
  EXPECT_TRUE(status->AssertConsumed().ok()) << status->AssertConsumed();
}

TEST(CheckpointTest, OfTwoRestoresThatWaitForAnObjectTheLaterWins) {
  const std::string folder = EmptyFolder("it");
  Graph graph;
  const Variable v = FloatVariable(graph.root(), "v", {1});
  const Operation init = InitializeVariables(graph.root());
  Session session = *Session::Create(graph);
  ASSERT_TRUE(session.RunTargets({init}).ok());
  const auto writer = Checkpoint::Create(graph, {{"v", v}});
  ASSERT_TRUE((*writer)->Write(session, folder + "/one").ok());
  ASSERT_TRUE(SetFloats(graph, session, v, {2}).ok());
  ASSERT_TRUE((*writer)->Write(session, folder + "/two").ok());
  for (const bool first_is_asked_first : {true, false}) {
    ASSERT_TRUE(SetFloats(graph, session, v, {0}).ok());
    const auto late = Checkpoint::Create(graph, {});
    auto first = (*late)->Restore(session, folder + "/one");
    auto second = (*late)->Restore(session, folder + "/two");
    ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
    (*late)->root().Add("v", v);
    for (const bool is_first : {first_is_asked_first, !first_is_asked_first}) {
      const Status added = (is_first ? first : second)->RestoreAdded(session);
      ASSERT_TRUE(added.ok()) << added;
    }
    EXPECT_EQ(FloatsOf(session, v), Floats{2}) << first_is_asked_first;
    EXPECT_TRUE(first->AssertConsumed().ok()) << first->AssertConsumed();
    EXPECT_TRUE(second->AssertConsumed().ok()) << second->AssertConsumed();
  }
}

TEST(CheckpointTest, ValuesThatNobodyHasAskedForAreToldUnlessTheyAreExpected) {
  const std::string prefix = EmptyFolder("it") + "/c";
  Graph graph;
  const Variable v = FloatVariable(graph.root(), "v", {1});
  const Variable w = FloatVariable(graph.root(), "w", {1});
  const Operation init = InitializeVariables(graph.root());
  Session session = *Session::Create(graph);
  ASSERT_TRUE(session.RunTargets({init}).ok());
  ASSERT_TRUE((*Checkpoint::Create(graph, {{"v", v}, {"w", w}}))->Write(session, prefix).ok());
  const auto some = Checkpoint::Create(graph, {{"v", v}});
  const auto log_of = [&](const std::function<void(LoadStatus&)>& use) {
    ::testing::internal::CaptureStderr();
    {
      auto status = (*some)->Read(session, prefix);
      EXPECT_TRUE(status.ok()) << status.status();
      use(*status);
    }
    return ::testing::internal::GetCapturedStderr();
  };
  const std::string line = "Value in checkpoint could not be found in the restored object: (root).";
  const std::string told = log_of([](LoadStatus&) {});
  EXPECT_NE(told.find(line + "w"), std::string::npos) << told;
  EXPECT_EQ(told.find(line + "v"), std::string::npos) << told;
  EXPECT_EQ(log_of([](LoadStatus& s) { s.ExpectPartial(); }).find(line), std::string::npos);
  EXPECT_EQ(log_of([](LoadStatus& s) { s.AssertConsumed().IgnoreError(); }).find(line),
            std::string::npos);
}

TEST(CheckpointTest, SlotsAreLeftOutWhereTheyAreSkipped) {
  const std::string prefix = EmptyFolder("it") + "/c";
  Training whole(Adam({}));
  whole.Train(3);
  ASSERT_TRUE(whole.checkpoint->Write(*whole.session, prefix).ok());
  const auto slot = [](Training& t) {
    for (const Variable& v : Variables(t.graph)) {
      if (v.name() == "kernel/Adam") return FloatsOf(*t.session, v);
    }
    return Floats();
  };
  const auto read = [&](bool skip) {
    auto second = std::make_unique<Training>(Adam({}));
    Trackable layer;
    layer.Add("kernel", second->kernel).Add("bias", second->bias);
    const std::vector<Variable> trained = {second->kernel, second->bias};
    const auto checkpoint = *Checkpoint::Create(
        second->graph,
        {{"layer", layer}, {"optimizer", Trackable::Of(*second->optimizer, trained)}},
        {.skip_slot_variables = skip});
    auto status = checkpoint->Read(*second->session, prefix);
    EXPECT_TRUE(status.ok()) << status.status();
    EXPECT_TRUE(status->AssertConsumed().ok()) << status->AssertConsumed();
    EXPECT_EQ(second->Values(), whole.Values());
    return slot(*second);
  };
  EXPECT_EQ(read(false), slot(whole));
  EXPECT_EQ(read(true), Floats({0, 0, 0}));
}

TEST(CheckpointTest, CallbacksHearOfEachCheckpointThatIsWhole) {
  const std::string folder = EmptyFolder("it");
  Graph graph;
  const Variable v = FloatVariable(graph.root(), "v", {1});
  const Operation init = InitializeVariables(graph.root());
  Session session = *Session::Create(graph);
  ASSERT_TRUE(session.RunTargets({init}).ok());
  std::vector<std::string> heard;
  Status answer;
  const auto listen = [&](const std::string& prefix) {
    heard.push_back(prefix);
    EXPECT_TRUE(CheckpointReader::Open(prefix).ok()) << prefix;
    return answer;
  };
  const auto late = [&](const std::string& prefix) {
    heard.push_back("late " + prefix);
    EXPECT_EQ(LatestCheckpoint(folder), prefix);
    return OkStatus();
  };
  const auto checkpoint =
      *Checkpoint::Create(graph, {{"v", v}}, {.write_callbacks = {listen, late}});
  const std::string prefix = folder + "/c";
  ASSERT_TRUE(checkpoint->Save(session, prefix).ok());
  ASSERT_TRUE(checkpoint->SaveAsync(session, prefix).ok());
  ASSERT_TRUE(checkpoint->Sync().ok());
  const auto manager = *CheckpointManager::Create(
      checkpoint.get(), {.directory = folder, .max_to_keep = 2, .checkpoint_name = "c"});
  ASSERT_TRUE(manager->Save(session).ok());
  EXPECT_THAT(heard, ::testing::ElementsAre(prefix + "-1", "late " + prefix + "-1", prefix + "-2",
                                            "late " + prefix + "-2", prefix + "-3",
                                            "late " + prefix + "-3"));
  // An error is the save's, ends the row, and leaves what was written.
  answer = errors::Unavailable("the store is full");
  EXPECT_EQ(checkpoint->Write(session, folder + "/w"), answer);
  ASSERT_TRUE(checkpoint->WriteAsync(session, folder + "/a").ok());
  EXPECT_EQ(checkpoint->Sync(), answer);
  EXPECT_EQ(heard.back(), folder + "/a");
  EXPECT_TRUE(CheckpointReader::Open(folder + "/a").ok());
}

TEST(CheckpointTest, AManagerCanBeToldOfTheLastStepThatWasSaved) {
  const std::string folder = EmptyFolder("it");
  Graph graph;
  const Variable v = FloatVariable(graph.root(), "v", {1});
  const Variable step = GlobalStep(graph.root());
  const Operation init = InitializeVariables(graph.root());
  Session session = *Session::Create(graph);
  ASSERT_TRUE(session.RunTargets({init}).ok());
  const auto checkpoint = *Checkpoint::Create(graph, {{"v", v}});
  CheckpointManagerOptions options{.directory = folder, .max_to_keep = 2};
  options.last_checkpoint_step = 0;
  EXPECT_EQ(CheckpointManager::Create(checkpoint.get(), options).status().code(),
            StatusCode::kInvalidArgument);
  options.step_counter = step;
  EXPECT_EQ(*(*CheckpointManager::Create(checkpoint.get(), options))->Save(session), "");
  options.last_checkpoint_step.reset();
  EXPECT_NE(*(*CheckpointManager::Create(checkpoint.get(), options))->Save(session), "");
}

TEST(CheckpointTest, OneObjectOfTheFileThatIsTwoInTheProgramIsToldOf) {
  const std::string prefix = EmptyFolder("it") + "/c";
  Graph graph;
  const Variable v = FloatVariable(graph.root(), "v", {1});
  const Variable w = FloatVariable(graph.root(), "w", {2});
  const Operation init = InitializeVariables(graph.root());
  Session session = *Session::Create(graph);
  ASSERT_TRUE(session.RunTargets({init}).ok());
  ASSERT_TRUE((*Checkpoint::Create(graph, {{"a", v}, {"b", v}}))->Write(session, prefix).ok());
  ASSERT_TRUE(SetFloats(graph, session, v, {0}).ok());
  const auto other = Checkpoint::Create(graph, {{"a", v}, {"b", w}});
  ::testing::internal::CaptureStderr();
  const auto status = (*other)->Read(session, prefix);
  const std::string told = ::testing::internal::GetCapturedStderr();
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_NE(told.find("Inconsistent references when loading the checkpoint into this object graph"),
            std::string::npos)
      << told;
  EXPECT_EQ(FloatsOf(session, v), Floats{1});
  EXPECT_EQ(FloatsOf(session, w), Floats{2}) << "the first stays";
  EXPECT_FALSE(status->AssertExistingObjectsMatched().ok());
}

TEST(CheckpointTest, TheDirectoryOfASavedModelStandsForItsVariables) {
  const std::string folder = EmptyFolder("it");
  Graph graph;
  const Variable v = FloatVariable(graph.root(), "v", {1});
  const Operation init = InitializeVariables(graph.root());
  Session session = *Session::Create(graph);
  ASSERT_TRUE(session.RunTargets({init}).ok());
  const auto checkpoint = Checkpoint::Create(graph, {{"v", v}});
  std::filesystem::create_directories(folder + "/variables");
  ASSERT_TRUE((*checkpoint)->Write(session, folder + "/variables/variables").ok());
  ASSERT_TRUE(SetFloats(graph, session, v, {2}).ok());
  EXPECT_TRUE(errors::IsNotFound((*checkpoint)->Restore(session, folder).status()))
      << "no SavedModel yet";
  WriteText(folder + "/saved_model.pb", "");
  auto status = (*checkpoint)->Restore(session, folder);
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_TRUE(status->AssertExistingObjectsMatched().ok());
  EXPECT_EQ(FloatsOf(session, v), Floats{1});
}

TEST(CheckpointTest, SavesAreCountedAcrossPrograms) {
  const std::string folder = EmptyFolder("it");
  for (int64_t run = 0; run < 2; ++run) {
    Graph graph;
    const Variable v = FloatVariable(graph.root(), "v", {0});
    const Operation init = InitializeVariables(graph.root());
    const auto checkpoint = Checkpoint::Create(graph, {{"v", v}});
    Session session = *Session::Create(graph);
    ASSERT_TRUE(session.RunTargets({init}).ok());
    if (run == 1) {
      ASSERT_TRUE((*checkpoint)->Restore(session, LatestCheckpoint(folder)).ok());
    }
    for (int64_t i = 1; i <= 2; ++i) {
      const auto saved = (*checkpoint)->Save(session, folder + "/ckpt");
      ASSERT_TRUE(saved.ok()) << saved.status();
      EXPECT_EQ(*saved, StrCat(folder, "/ckpt-", 2 * run + i));
      EXPECT_EQ(LatestCheckpoint(folder), *saved);
    }
  }
  EXPECT_EQ(FileText(folder + "/checkpoint"),
            "model_checkpoint_path: \"ckpt-4\"\nall_model_checkpoint_paths: \"ckpt-4\"\n");
}

TEST(CheckpointTest, SaversAndCheckpointsReadEachOthersFiles) {
  const std::string folder = EmptyFolder("it");
  Graph graph;
  const Variable v = FloatVariable(graph.root(), "v", {1});
  const auto saver = Saver::Create(graph);
  const auto checkpoint = Checkpoint::Create(graph, {{"deep", Trackable().Add("down", v)}});
  const Operation init = InitializeVariables(graph.root());
  Session session = *Session::Create(graph);
  ASSERT_TRUE(session.RunTargets({init}).ok());
  ASSERT_TRUE((*saver)->Save(session, folder + "/by_name").ok());
  ASSERT_TRUE((*checkpoint)->Write(session, folder + "/by_object").ok());
  ASSERT_TRUE(SetFloats(graph, session, v, {2}).ok());
  const Status by_object = (*saver)->Restore(session, folder + "/by_object");
  ASSERT_TRUE(by_object.ok()) << by_object;
  EXPECT_EQ(FloatsOf(session, v), Floats{1});
  ASSERT_TRUE(SetFloats(graph, session, v, {3}).ok());
  const auto by_name = (*checkpoint)->Read(session, folder + "/by_name");
  ASSERT_TRUE(by_name.ok()) << by_name.status();
  EXPECT_TRUE(by_name->AssertConsumed().ok());
  EXPECT_EQ(FloatsOf(session, v), Floats{1});
}

TEST(CheckpointTest, NothingIsChangedWhereSomethingDoesNotFit) {
  const std::string prefix = EmptyFolder("it") + "/c";
  {
    Graph graph;
    const Variable a = FloatVariable(graph.root(), "a", {1});
    const Variable b = FloatVariable(graph.root(), "b", {1, 2});
    const auto checkpoint = Checkpoint::Create(graph, {{"a", a}, {"b", b}});
    const Operation init = InitializeVariables(graph.root());
    Session session = *Session::Create(graph);
    ASSERT_TRUE(session.RunTargets({init}).ok());
    ASSERT_TRUE((*checkpoint)->Write(session, prefix).ok());
  }
  Graph graph;
  const Variable a = FloatVariable(graph.root(), "a", {7});
  const Variable b = FloatVariable(graph.root(), "b", {7, 7, 7});
  const auto checkpoint = Checkpoint::Create(graph, {{"a", a}, {"b", b}});
  const Operation init = InitializeVariables(graph.root());
  Session session = *Session::Create(graph);
  ASSERT_TRUE(session.RunTargets({init}).ok());
  EXPECT_TRUE(errors::IsInvalidArgument((*checkpoint)->Restore(session, prefix).status()));
  EXPECT_EQ(FloatsOf(session, a), Floats{7});
}

TEST(CheckpointTest, TreesThatFilesCannotHaveAreRefused) {
  Graph graph;
  const Variable a = FloatVariable(graph.root(), "a", {1});
  const Variable b = FloatVariable(graph.root(), "b", {1});
  Trackable owner;
  owner.AddSlot("m", a, b);
  const std::string prefix = EmptyFolder("it") + "/c";
  Session session = *Session::Create(graph);
  EXPECT_TRUE(errors::IsUnimplemented(
      (*Checkpoint::Create(graph, {{"a", a}, {"b", b}, {"o", owner}}))->Write(session, prefix)));
  EXPECT_TRUE(errors::IsInvalidArgument(
      (*Checkpoint::Create(graph, {{"o", owner}}))->Write(session, prefix)));
  EXPECT_FALSE(Checkpoint::Create(graph, {{"save_counter", a}}).ok());
  const auto none = (*Checkpoint::Create(graph, {{"a", a}}))->Restore(session, "");
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(none->AssertConsumed().ok());
}

TEST(CheckpointTest, WritingAsideSavesTheValuesOfTheMoment) {
  const std::string folder = EmptyFolder("it");
  Graph graph;
  const Variable v = FloatVariable(graph.root(), "v", {1});
  const auto checkpoint = Checkpoint::Create(graph, {{"v", v}});
  const Operation init = InitializeVariables(graph.root());
  Session session = *Session::Create(graph);
  ASSERT_TRUE(session.RunTargets({init}).ok());
  const auto saved = (*checkpoint)->SaveAsync(session, folder + "/ckpt");
  ASSERT_TRUE(saved.ok()) << saved.status();
  ASSERT_TRUE(SetFloats(graph, session, v, {2}).ok());
  ASSERT_TRUE((*checkpoint)->Sync().ok());
  EXPECT_EQ(LatestCheckpoint(folder), *saved);
  auto status = (*checkpoint)->Restore(session, *saved);
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_TRUE(status->AssertConsumed().ok()) << status->AssertConsumed();
  EXPECT_EQ(FloatsOf(session, v), Floats{1});
  WriteText(folder + "/file", "");
  ASSERT_TRUE((*checkpoint)->SaveAsync(session, folder + "/file/ckpt").ok());
  EXPECT_FALSE((*checkpoint)->SaveAsync(session, folder + "/ckpt").ok());  // of the one before
  EXPECT_TRUE((*checkpoint)->Sync().ok());
}

TEST(CheckpointTest, EveryTaskWritesAndReadsWhatLivesOnIt) {
  const std::string prefix = EmptyFolder("it") + "/c";
  for (const int num_ps : {2, 1, 3}) {
    InProcessCluster cluster(num_ps, 1);
    Graph graph;
    std::map<std::string, Trackable> children;
    std::vector<Variable> variables;
    for (int i = 0; i < 3; ++i) {
      const Scope scope = graph.root().WithDevice(StrCat("/job:ps/task:", i % num_ps, "/cpu:0"));
      variables.push_back(
          FloatVariable(scope, StrCat("v", i), {static_cast<float>(i)}, i % 2 == 1));
      children.emplace(StrCat("v", i), variables.back());
    }
    const auto checkpoint =
        Checkpoint::Create(graph, children, {.counter_device = "/job:ps/task:0/cpu:0"});
    const Operation init = InitializeVariables(graph.root());
    Session session = *Session::Create(graph, {.target = cluster.Target("worker", 0)});
    if (num_ps == 2) {
      ASSERT_TRUE(session.RunTargets({init}).ok());
      const auto saved = (*checkpoint)->Save(session, prefix);
      ASSERT_TRUE(saved.ok()) << saved.status();
      EXPECT_EQ((*CheckpointReader::Open(*saved))->num_files(), 2);
      continue;
    }
    auto status = (*checkpoint)->Restore(session, prefix + "-1");
    ASSERT_TRUE(status.ok()) << status.status();
    EXPECT_TRUE(status->AssertConsumed().ok()) << status->AssertConsumed();
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(FloatsOf(session, variables[i]), Floats{static_cast<float>(i)});
    }
  }
}

}  // namespace
}  // namespace millrace::testing
