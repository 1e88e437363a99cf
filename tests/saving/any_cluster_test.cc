// SPDX-License-Identifier: Apache-2.0
// A checkpoint of any number of workers and parameter servers is restored by any other: variables
// in parts, what optimizers keep for them, and whole ones.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

#include "base/strings.h"
#include "millrace/partitioners.h"
#include "millrace/training.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/saving/saving_testlib.h"

namespace millrace::testing {
namespace {

constexpr int kMost = 3;  // workers, and parameter servers
constexpr int64_t kRows = 7, kColumns = 2;

Tensor Table(float first) {
  Tensor table(kFloat, Shape({kRows, kColumns}));
  for (int64_t i = 0; i < table.num_elements(); ++i) {
    table.data<float>()[i] = first + static_cast<float>(i);
  }
  return table;
}

// One worker's program: a table in as many parts as there are parameter servers, trained with
// momentum, and whole variables of both kinds.
struct Program {
  Program(int num_ps, float first) {
    const Scope root = graph.root().WithDevice(ReplicaDeviceSetter({.ps_tasks = num_ps}));
    table = MakeShardedVariable(root, "table", Constant(root, Table(first)), FixedShards(num_ps));
    std::vector<GradientAndVariable> gradients;
    for (const VariablePart& part : table.parts) {
      gradients.push_back({ops::OnesLike(root, part.variable.read), part.variable});
    }
    optimizer = Momentum({.learning_rate = 0.5f, .momentum = 0.9f});
    train = *optimizer->ApplyGradients(root, gradients, nullptr);
    whole = {FloatVariable(root, "bias", {first, first + 1}),
             FloatVariable(root, "scale", {first + 2}, /*use_resource=*/true)};
    init = InitializeVariables(graph.root());
    saver = *Saver::Create(graph, {.sharded = true});
    all = ReadSharded(root, table);
    for (const Variable& v : Variables(root)) {
      if (v.name().ends_with("/Momentum")) slots.push_back(v.read);
    }
  }

  // The table, its momentum, and the rest.
  std::vector<float> Values(Session& session) {
    std::vector<Output> fetches = {all};
    fetches.insert(fetches.end(), slots.begin(), slots.end());
    for (const Variable& v : whole) fetches.push_back(v.read);
    const auto got = session.Run({}, fetches);
    if (!got.ok()) {
      ADD_FAILURE() << got.status();
      return {};
    }
    std::vector<float> values;
    for (const Tensor& t : *got) {
      values.insert(values.end(), t.flat<float>().begin(), t.flat<float>().end());
    }
    return values;
  }

  Graph graph;
  ShardedVariable table;
  std::unique_ptr<Optimizer> optimizer;
  Operation train, init;
  std::vector<Variable> whole;
  std::unique_ptr<Saver> saver;
  Output all;
  std::vector<Output> slots;
};

std::string Prefix(const std::string& folder, int workers, int num_ps) {
  return StrCat(folder, "/w", workers, "p", num_ps);
}

TEST(AnyCluster, RestoresWhatAnyOtherHasSaved) {
  const std::string folder = EmptyFolder("it");
  std::vector<float> want;
  for (int num_ps = 1; num_ps <= kMost; ++num_ps) {
    for (int workers = 1; workers <= kMost; ++workers) {
      InProcessCluster cluster(num_ps, workers);
      Program p(num_ps, 1);
      // The last one saves.
      Session session =
          *Session::Create(p.graph, {.target = cluster.Target("worker", workers - 1)});
      ASSERT_TRUE(session.RunTargets({p.init}).ok());
      ASSERT_TRUE(session.RunTargets({p.train}).ok());
      if (want.empty()) want = p.Values(session);
      ASSERT_EQ(p.Values(session), want);
      const auto saved = p.saver->Save(session, Prefix(folder, workers, num_ps));
      ASSERT_TRUE(saved.ok()) << saved.status();
    }
  }
  ASSERT_EQ(want.size(), static_cast<std::size_t>(2 * kRows * kColumns + 3));
  for (int num_ps = 1; num_ps <= kMost; ++num_ps) {
    for (int workers = 1; workers <= kMost; ++workers) {
      InProcessCluster cluster(num_ps, workers);
      Program p(num_ps, 50);
      Session session = *Session::Create(p.graph, {.target = cluster.Target("worker", 0)});
      for (int from = 0; from < kMost * kMost; ++from) {
        ASSERT_TRUE(session.RunTargets({p.init}).ok());
        const std::string prefix = Prefix(folder, 1 + from / kMost, 1 + from % kMost);
        const Status restored = p.saver->Restore(session, prefix);
        ASSERT_TRUE(restored.ok()) << restored;
        ASSERT_EQ(p.Values(session), want)
            << prefix << " in " << workers << " workers and " << num_ps << " ps";
      }
    }
  }
}

TEST(AnyCluster, PartsAreStoredUnderTheNameOfTheWhole) {
  const std::string prefix = EmptyFolder("it") + "/m";
  InProcessCluster cluster(3, 1);
  Program p(3, 1);
  Session session = *Session::Create(p.graph, {.target = cluster.Target("worker", 0)});
  ASSERT_TRUE(session.RunTargets({p.init}).ok());
  ASSERT_TRUE(p.saver->Save(session, prefix).ok());
  const auto reader = CheckpointReader::Open(prefix);
  ASSERT_TRUE(reader.ok()) << reader.status();
  std::vector<std::string> names;
  for (const auto& entry : (*reader)->entries()) names.push_back(entry.name);
  EXPECT_EQ(names, (std::vector<std::string>{"bias", "scale", "table", "table/Momentum"}));
  EXPECT_EQ((*reader)->Find("table")->parts, 3);
  EXPECT_TRUE(TensorsEqual(*(*reader)->Read("table"), Table(1)));
  // Parts of another whole do not fit.
  Graph graph;
  const Scope root = graph.root();
  const ShardedVariable other = MakeShardedVariable(
      root, "table", Constant(root, Tensor(kFloat, Shape({kRows + 1, kColumns}))), FixedShards(2));
  const auto saver = Saver::Create(graph);
  Session alone = *Session::Create(graph);
  const Status refused = (*saver)->Restore(alone, prefix);
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument) << refused;
}

}  // namespace
}  // namespace millrace::testing
