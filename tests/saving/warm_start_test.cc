// SPDX-License-Identifier: Apache-2.0
// Variables that begin with values of a checkpoint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/strings.h"
#include "millrace/monitored_session.h"
#include "millrace/partitioners.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/saving/saving_testlib.h"

namespace millrace::testing {
namespace {

using ::testing::HasSubstr;
using Floats = std::vector<float>;

Tensor Vector(const Floats& values) {
  return Tensor::FromValues<float>(std::span<const float>(values),
                                   Shape({static_cast<int64_t>(values.size())}));
}

// Variables new/a, new/b (a resource) and other, each with two elements, 0 at first.
struct Program {
  Program() {
    const Scope root = graph.root();
    a = FloatVariable(root, "new/a", {0, 0});
    b = FloatVariable(root, "new/b", {0, 0}, /*use_resource=*/true);
    other = FloatVariable(root, "other", {0, 0});
  }
  // "new/a new/b other" after the init op.
  std::vector<Floats> Values() {
    Session session = *Session::Create(graph);
    const Status status = session.RunTargets({InitializeVariables(graph.root())});
    EXPECT_TRUE(status.ok()) << status;
    return {FloatsOf(session, a), FloatsOf(session, b), FloatsOf(session, other)};
  }
  Graph graph;
  Variable a, b, other;
};

std::string Written(const std::map<std::string, Tensor>& tensors) {
  const std::string prefix = EmptyFolder("from") + "/model.ckpt";
  const Status status = WriteTensors(prefix, tensors);
  EXPECT_TRUE(status.ok()) << status;
  return prefix;
}

std::string Text(const Status& status) { return std::string(Message(status)); }

TEST(InitialValues, AreTakenOfTheTensorsThatAreNamed) {
  const std::string from = Written({{"x", Vector({1, 2})}, {"y", Vector({3, 4})}});
  Program p;
  const Status status = InitFromCheckpoint(p.graph, from, {{"x", "new/a"}, {"y", "new/b"}});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(p.Values(), (std::vector<Floats>{{1, 2}, {3, 4}, {0, 0}}));
}

TEST(InitialValues, OfAScopeAreThoseOfAnother) {
  const std::string from = Written({{"old/a", Vector({1, 2})}, {"old/b", Vector({3, 4})}});
  Program p;
  ASSERT_TRUE(InitFromCheckpoint(p.graph, from, {{"old/", "new/"}}).ok());
  EXPECT_EQ(p.Values(), (std::vector<Floats>{{1, 2}, {3, 4}, {0, 0}}));
}

TEST(InitialValues, OfAScopeMayBeThoseOfTheRootAndTheReverse) {
  const std::string from = Written({{"a", Vector({1, 2})}, {"b", Vector({3, 4})}});
  Program p;
  ASSERT_TRUE(InitFromCheckpoint(p.graph, from, {{"/", "new/"}}).ok());
  EXPECT_EQ(p.Values(), (std::vector<Floats>{{1, 2}, {3, 4}, {0, 0}}));
  const std::string deep = Written(
      {{"m/new/a", Vector({5, 6})}, {"m/new/b", Vector({7, 8})}, {"m/other", Vector({9, 0})}});
  Program q;
  ASSERT_TRUE(InitFromCheckpoint(q.graph, deep, {{"m/", "/"}}).ok());
  EXPECT_EQ(q.Values(), (std::vector<Floats>{{5, 6}, {7, 8}, {9, 0}}));
}

TEST(InitialValues, MayBeOfTheNewestCheckpointOfADirectory) {
  const std::string from = Written({{"x", Vector({1, 2})}});
  const std::string folder = from.substr(0, from.rfind('/'));
  Program p;
  ASSERT_TRUE(InitFromCheckpoint(p.graph, folder, {{"x", "other"}}).ok());
  EXPECT_EQ(p.Values()[2], (Floats{1, 2}));
  const Status none = InitFromCheckpoint(p.graph, EmptyFolder("empty"), {{"x", "other"}});
  EXPECT_TRUE(errors::IsNotFound(none)) << none;
}

// TensorFlow's checkpoint has the table in three parts, this program in two.
TEST(InitialValues, OfAVariableInPartsAreThoseOfTheWhole) {
  Graph graph;
  const Scope root = graph.root();
  const ShardedVariable table =
      MakeShardedVariable(root, "table", Zeros(root, {7, 2}), FixedShards(2));
  const Status status =
      InitFromCheckpoint(graph, GoldenPath("checkpoints/saver/model.ckpt-3"), {{"pv", "table"}});
  ASSERT_TRUE(status.ok()) << status;
  Session session = *Session::Create(graph);
  ASSERT_TRUE(session.RunTargets({InitializeVariables(root)}).ok());
  Floats got, want;
  for (const VariablePart& part : table.parts) {
    for (const float v : FloatsOf(session, part.variable)) got.push_back(v);
  }
  const Json golden = LoadJson("checkpoints/expected.json")["saver/model.ckpt-3"];
  for (const Json& entry : golden["entries"]) {
    if (entry["key"] != "pv") continue;
    for (const Json& v : entry["value"]) want.push_back(v.get<float>());
  }
  EXPECT_EQ(got, want);
}

TEST(InitialValues, AreReadWhereTheVariableIs) {
  const InProcessCluster cluster(2, 1);
  const std::string from = Written({{"w", Vector({1, 2})}, {"v", Vector({3, 4})}});
  Graph graph;
  const Scope root = graph.root().WithDevice(ReplicaDeviceSetter({.ps_tasks = 2}));
  const Variable w = FloatVariable(root, "w", {0, 0}), v = FloatVariable(root, "v", {0, 0});
  ASSERT_TRUE(InitFromCheckpoint(graph, from, {{"/", "/"}}).ok());
  std::vector<std::string> devices;
  for (const Operation& op : graph.operations()) {
    if (op.type() == "RestoreV2") devices.push_back(op.device());
  }
  EXPECT_THAT(devices, ::testing::UnorderedElementsAre(HasSubstr("/job:ps/task:0/device:CPU:0"),
                                                       HasSubstr("/job:ps/task:1/device:CPU:0")));
  Session session = *Session::Create(graph, {.target = cluster.Target("worker", 0)});
  ASSERT_TRUE(session.RunTargets({InitializeVariables(root)}).ok());
  EXPECT_EQ(FloatsOf(session, w), (Floats{1, 2}));
  EXPECT_EQ(FloatsOf(session, v), (Floats{3, 4}));
}

TEST(InitialValues, ThatCannotBeChangeNothing) {
  const std::string from =
      Written({{"x", Vector({1, 2})},
               {"long", Vector({1, 2, 3})},
               {"whole", Tensor::FromValues<int32_t>(std::vector<int32_t>{1, 2}, Shape({2}))}});
  Program p;
  struct Case {
    std::map<std::string, std::string> map;
    StatusCode code;
    const char* text;
  };
  for (const Case& c : std::vector<Case>{
           {{{"x", "new/a"}, {"z", "other"}}, StatusCode::kNotFound, "Tensor z"},
           {{{"x", "new/a"}, {"long", "other"}}, StatusCode::kInvalidArgument, "Shape of variable"},
           {{{"x", "new/a"}, {"whole", "other"}}, StatusCode::kInvalidArgument, "int32"},
           {{{"x", "no_such"}}, StatusCode::kInvalidArgument, "no_such"},
           {{{"x", "new/"}}, StatusCode::kInvalidArgument, "Should be 'scope/': 'other_scope/'."},
           {{{"old/", "other"}}, StatusCode::kInvalidArgument, "should map to scope only"},
           {{{"old/", "new/"}}, StatusCode::kNotFound, "old/a"},
           {{{"/", "nowhere/"}}, StatusCode::kInvalidArgument, "nowhere/"}}) {
    const Status status = InitFromCheckpoint(p.graph, from, c.map);
    EXPECT_EQ(status.code(), c.code) << status;
    EXPECT_THAT(Text(status), HasSubstr(c.text));
  }
  EXPECT_EQ(p.Values(), (std::vector<Floats>{{0, 0}, {0, 0}, {0, 0}}));
}

TEST(AWarmStart, TakesTheVariablesThatPatternsName) {
  const std::string from =
      Written({{"new/a", Vector({1, 2})}, {"new/b", Vector({3, 4})}, {"other", Vector({5, 6})}});
  Program all, some;
  ASSERT_TRUE(WarmStart(all.graph, {.checkpoint = from}).ok());
  EXPECT_EQ(all.Values(), (std::vector<Floats>{{1, 2}, {3, 4}, {5, 6}}));
  // From the beginning of the name, as Python's re.match.
  ASSERT_TRUE(
      WarmStart(some.graph, {.checkpoint = from, .variables = {"b", "o", "new/[b-z]"}}).ok());
  EXPECT_EQ(some.Values(), (std::vector<Floats>{{0, 0}, {3, 4}, {5, 6}}));
}

TEST(AWarmStart, FindsWhatWasCalledSomethingElse) {
  const std::string from = Written({{"new/a", Vector({1, 2})}, {"before", Vector({3, 4})}});
  Program p;
  WarmStartOptions options{.checkpoint = from, .variables = {"new/"}};
  options.previous_names = {{"new/b", "before"}};
  ASSERT_TRUE(WarmStart(p.graph, options).ok());
  EXPECT_EQ(p.Values(), (std::vector<Floats>{{1, 2}, {3, 4}, {0, 0}}));
}

TEST(AWarmStart, RefusesNamesThatAreNotUsed) {
  const std::string from = Written({{"new/a", Vector({1, 2})}, {"new/b", Vector({3, 4})}});
  Program p;
  WarmStartOptions options{.checkpoint = from, .variables = {"new/"}};
  options.previous_names = {{"new/c", "before"}};
  const Status status = WarmStart(p.graph, options);
  EXPECT_TRUE(errors::IsInvalidArgument(status)) << status;
  EXPECT_THAT(Text(status), HasSubstr("that were not used: new/c. Perhaps you misspelled them? "
                                      "Here is the list of viable variable names: new/a, new/b"));
  const Status none = WarmStart(p.graph, {.checkpoint = from, .variables = {"no_such"}});
  EXPECT_THAT(Text(none), HasSubstr("no variable is to be warm-started"));
  const Status pattern = WarmStart(p.graph, {.checkpoint = from, .variables = {"("}});
  EXPECT_TRUE(errors::IsInvalidArgument(pattern)) << pattern;
  EXPECT_EQ(p.Values(), (std::vector<Floats>{{0, 0}, {0, 0}, {0, 0}}));
}

TEST(AWarmStart, LeavesOutWhatIsNotTrainedUnlessItIsAskedFor) {
  const std::string from =
      Written({{"w", Vector({1, 2})}, {"global_step", Tensor::Scalar<int64_t>(7)}});
  for (const bool only_trainable : {true, false}) {
    Graph graph;
    const Variable step = GlobalStep(graph.root());
    const Variable w = FloatVariable(graph.root(), "w", {0, 0});
    ASSERT_TRUE(WarmStart(graph, {.checkpoint = from, .only_trainable = only_trainable}).ok());
    Session session = *Session::Create(graph);
    ASSERT_TRUE(session.RunTargets({InitializeVariables(graph.root())}).ok());
    EXPECT_EQ(FloatsOf(session, w), (Floats{1, 2}));
    EXPECT_EQ(session.Eval(step.read)->scalar<int64_t>(), only_trainable ? 0 : 7);
  }
}

// The first session of a training; those that follow go on from its own checkpoints.
TEST(AWarmStart, IsTheBeginningOfATrainingThatGoesOnFromItsOwnCheckpoints) {
  const std::string from = Written({{"w", Vector({1, 2})}}), folder = EmptyFolder("own");
  for (const Floats& want : {Floats{2, 3}, Floats{3, 4}}) {
    Graph graph;
    const Scope root = graph.root();
    const Variable step = GlobalStep(root);
    const Variable w = FloatVariable(root, "w", {0, 0});
    const Operation add = AssignAdd(root, w, Vector({1, 1}));
    const Operation train =
        AssignAdd(root.WithControlDependencies({add}), step, Tensor::Scalar<int64_t>(1));
    ASSERT_TRUE(WarmStart(graph, {.checkpoint = from}).ok());
    MonitoredTrainingOptions options;
    options.checkpoint_dir = folder;
    options.save_summaries_steps = 0;
    options.log_step_count_steps = 0;
    auto session = MonitoredTrainingSession(graph, options);
    ASSERT_TRUE(session.ok()) << session.status();
    ASSERT_TRUE((*session)->RunTargets({train}).ok());
    EXPECT_EQ(FloatsOf((*session)->session(), w), want);
    ASSERT_TRUE((*session)->Close().ok());
  }
}

}  // namespace
}  // namespace millrace::testing
