// SPDX-License-Identifier: Apache-2.0
// Variables in parts in checkpoints of objects: one tensor under one key, restored into any number
// of parts, with what optimizers keep for them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/errors.h"
#include "base/strings.h"
#include "millrace/checkpoint_layout.h"
#include "millrace/keras_optimizers.h"
#include "millrace/partitioners.h"
#include "millrace/training.h"
#include "proto/trackable_object_graph.pb.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/saving/saving_testlib.h"

namespace millrace::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kMost = 3;  // parts
constexpr int64_t kRows = 7, kColumns = 2;
constexpr char kEnd[] = "/.ATTRIBUTES/VARIABLE_VALUE";

using MakeOptimizer = std::function<std::unique_ptr<Optimizer>()>;

std::unique_ptr<Optimizer> MakeMomentum() {
  return Momentum({.learning_rate = 0.5f, .momentum = 0.9f});
}
std::unique_ptr<Optimizer> MakeAdam() { return Adam({.learning_rate = 0.1f}); }
std::unique_ptr<Optimizer> MakeKerasAdam() { return optimizers::Adam({.learning_rate = 0.1}); }

Tensor Table(float first, int64_t rows = kRows) {
  Tensor table(kFloat, Shape({rows, kColumns}));
  for (int64_t i = 0; i < table.num_elements(); ++i) {
    table.data<float>()[i] = first + static_cast<float>(i) / 4;
  }
  return table;
}

// A table in so many parts, and whole variables before and behind it, all of them trained. With 0
// parts the table is a variable as it was before there were any.
struct Program {
  Program(int parts, float first, const MakeOptimizer& make, const std::string& target = "",
          int num_ps = 0) {
    Scope root = graph.root();
    if (num_ps > 0) root = root.WithDevice(ReplicaDeviceSetter({.ps_tasks = num_ps}));
    const Variable before = FloatVariable(root, "bias", {first, first + 1}, /*use_resource=*/true);
    Trackable of_table;
    if (parts == 0) {
      const Variable whole = MakeVariable(root, "table", Constant(root, Table(first)));
      table.parts.push_back({whole, 0, kRows});
      of_table = whole;
    } else {
      table = MakeShardedVariable(root, "table", Constant(root, Table(first)), FixedShards(parts));
      of_table = TrackableOf(table);
    }
    const Variable behind = FloatVariable(root, "scale", {first + 2});
    std::vector<Variable> trained = {before};
    for (const VariablePart& part : table.parts) trained.push_back(part.variable);
    trained.push_back(behind);
    optimizer = make();
    std::vector<GradientAndVariable> gradients;
    for (const Variable& v : trained) gradients.push_back({ops::Tanh(root, v.read), v});
    const auto applied = optimizer->ApplyGradients(root, gradients, nullptr);
    EXPECT_TRUE(applied.ok()) << applied.status();
    train = *applied;
    Trackable layer;
    layer.Add("bias", before).Add("table", of_table).Add("scale", behind);
    CheckpointOptions options;
    if (num_ps > 0) options.counter_device = "/job:ps/task:0/cpu:0";
    checkpoint = *Checkpoint::Create(
        graph, {{"layer", layer}, {"optimizer", Trackable::Of(*optimizer, trained)}}, options);
    const Operation init = InitializeVariables(graph.root());
    all = parts == 0 ? table.parts[0].variable.read : ReadSharded(root, table);
    session.emplace(*Session::Create(graph, {.target = target}));
    EXPECT_TRUE(session->RunTargets({init}).ok());
  }

  void Train(int steps) {
    for (int i = 0; i < steps; ++i) EXPECT_TRUE(session->RunTargets({train}).ok());
  }
  void Write(const std::string& prefix) {
    const Status written = checkpoint->Write(*session, prefix);
    EXPECT_TRUE(written.ok()) << written;
  }
  // All of the checkpoint, into all of the tree.
  void Read(const std::string& prefix) {
    const auto read = checkpoint->Read(*session, prefix);
    ASSERT_TRUE(read.ok()) << prefix << ": " << read.status();
    EXPECT_TRUE(read->AssertConsumed().ok()) << prefix << ": " << read->AssertConsumed();
  }
  Tensor TableNow() {
    const auto value = session->Eval(all);
    EXPECT_TRUE(value.ok()) << value.status();
    return value.ok() ? *value : Tensor();
  }

  Graph graph;
  ShardedVariable table;
  std::unique_ptr<Optimizer> optimizer;
  Operation train;
  Output all;
  std::unique_ptr<Checkpoint> checkpoint;
  std::optional<Session> session;
};

// Whole tensors, whatever slices they are stored in.
std::map<std::string, Tensor> TensorsIn(const std::string& prefix) {
  auto tensors = ReadTensors(prefix);
  EXPECT_TRUE(tensors.ok()) << tensors.status();
  if (!tensors.ok()) return {};
  tensors->erase("_CHECKPOINTABLE_OBJECT_GRAPH");
  return *std::move(tensors);
}

void ExpectSame(const std::map<std::string, Tensor>& got,
                const std::map<std::string, Tensor>& want) {
  EXPECT_EQ(got.size(), want.size());
  for (const auto& [key, value] : want) {
    ASSERT_TRUE(got.contains(key)) << key;
    EXPECT_TRUE(TensorsEqual(got.at(key), value)) << key << ": " << got.at(key).DebugString(20);
  }
}

std::vector<std::string> KeysOf(const std::map<std::string, Tensor>& tensors) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : tensors) {
    EXPECT_TRUE(key.ends_with(kEnd)) << key;
    keys.push_back(key.substr(0, key.size() - std::string(kEnd).size()));
  }
  return keys;
}

// Saved in any number of parts it is one checkpoint, and any number of parts goes on from it.
void ExpectAnyPartsFromAnyOther(const MakeOptimizer& make) {
  const std::string folder = EmptyFolder("it");
  std::map<std::string, Tensor> want, later;
  for (int from = 0; from <= kMost; ++from) {
    Program saved(from, 1, make);
    saved.Train(2);
    const std::string prefix = StrCat(folder, "/from", from);
    saved.Write(prefix);
    if (from == 0) want = TensorsIn(prefix);
    ExpectSame(TensorsIn(prefix), want);
    saved.Train(2);
    saved.Write(prefix + "_later");
    if (from == 0) later = TensorsIn(prefix + "_later");
    ExpectSame(TensorsIn(prefix + "_later"), later);
  }
  for (int into = 0; into <= kMost; ++into) {
    for (int from = 0; from <= kMost; ++from) {
      SCOPED_TRACE(StrCat(from, " parts into ", into));
      Program p(into, 50, make);
      p.Read(StrCat(folder, "/from", from));
      EXPECT_TRUE(TensorsEqual(p.TableNow(), want.at(StrCat("layer/table", kEnd))));
      p.Train(2);
      const std::string again = StrCat(folder, "/again");
      p.Write(again);
      ExpectSame(TensorsIn(again), later);
    }
  }
}

TEST(ShardedCheckpoint, AnyNumberOfPartsIsRestoredIntoAnyOther) {
  ExpectAnyPartsFromAnyOther(MakeMomentum);
}
TEST(ShardedCheckpoint, WithSeveralSlots) { ExpectAnyPartsFromAnyOther(MakeAdam); }
TEST(ShardedCheckpoint, WithTheListsOfKeras) { ExpectAnyPartsFromAnyOther(MakeKerasAdam); }

// As ShardedVariable of TensorFlow 2.21 writes it.
TEST(ShardedCheckpoint, PartsAreSlicesOfOneTensorUnderTheKeyOfTheObject) {
  const std::string prefix = EmptyFolder("it") + "/c";
  Program p(3, 1, MakeMomentum);
  p.Write(prefix);
  EXPECT_THAT(KeysOf(TensorsIn(prefix)),
              ElementsAre("layer/bias", "layer/bias/.OPTIMIZER_SLOT/optimizer/momentum",
                          "layer/scale", "layer/scale/.OPTIMIZER_SLOT/optimizer/momentum",
                          "layer/table", "layer/table/.OPTIMIZER_SLOT/optimizer/momentum"));
  const auto reader = CheckpointReader::Open(prefix);
  ASSERT_TRUE(reader.ok());
  const auto* const table = (*reader)->Find(StrCat("layer/table", kEnd));
  EXPECT_EQ(table->parts, 3);
  EXPECT_EQ(table->shape, Shape({kRows, kColumns}));
  EXPECT_TRUE(TensorsEqual(*(*reader)->Read(table->name), Table(1)));

  pb::TrackableObjectGraph objects;
  ASSERT_TRUE(objects.ParseFromString(*(*reader)->ObjectGraph()));
  // The root, the layer with three, the optimizer, and three slots.
  ASSERT_EQ(objects.nodes_size(), 9);
  int found = 0;
  for (const auto& node : objects.nodes()) {
    if (node.attributes().empty() || !node.attributes(0).full_name().starts_with("table")) continue;
    ++found;
    EXPECT_EQ(node.children_size(), 0);
    const bool is_slot = node.attributes(0).full_name() == "table/Momentum";
    EXPECT_EQ(node.attributes(0).full_name(), is_slot ? "table/Momentum" : "table");
    EXPECT_EQ(node.attributes(0).checkpoint_key(),
              StrCat("layer/table", is_slot ? "/.OPTIMIZER_SLOT/optimizer/momentum" : "", kEnd));
  }
  EXPECT_EQ(found, 2);
}

TEST(ShardedCheckpoint, AWrongShapeIsNamedAndNothingChanges) {
  const std::string prefix = EmptyFolder("it") + "/c";
  Program(2, 1, MakeMomentum).Write(prefix);
  for (const int parts : {1, 3}) {
    Graph graph;
    const Scope root = graph.root();
    const ShardedVariable other =
        MakeShardedVariable(root, "table", Constant(root, Table(9, kRows + 1)), FixedShards(parts));
    const Operation init = InitializeVariables(root);
    Trackable layer;
    layer.Add("table", TrackableOf(other));
    const auto checkpoint = Checkpoint::Create(graph, {{"layer", layer}});
    Session session = *Session::Create(graph);
    ASSERT_TRUE(session.RunTargets({init}).ok());
    const Status refused = (*checkpoint)->Read(session, prefix).status();
    EXPECT_TRUE(errors::IsInvalidArgument(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr(parts == 1 ? "shape (7, 2) when attempting to restore variable with "
                                       "shape (8, 2) and name table:0"
                                     : "tensor_name = layer/table/.ATTRIBUTES/VARIABLE_VALUE; "
                                       "shape in shape_and_slice spec [8,2] does not match the "
                                       "shape stored in checkpoint: [7,2]"));
    EXPECT_TRUE(TensorsEqual(*session.Eval(ReadSharded(root, other)), Table(9, kRows + 1)));
  }
}

TEST(ShardedCheckpoint, SaversAndCheckpointsReadEachOthers) {
  const std::string folder = EmptyFolder("it");
  Program p(3, 1, MakeMomentum);
  p.Train(2);
  const Tensor want = p.TableNow();
  const auto saver = Saver::Create(p.graph);
  ASSERT_TRUE((*saver)->Save(*p.session, folder + "/names").ok());
  p.Write(folder + "/objects");
  p.Train(2);
  p.Write(folder + "/later");

  Program by_name(2, 50, MakeMomentum);
  by_name.Read(folder + "/names");
  EXPECT_TRUE(TensorsEqual(by_name.TableNow(), want));
  by_name.Train(2);
  by_name.Write(folder + "/again");
  ExpectSame(TensorsIn(folder + "/again"), TensorsIn(folder + "/later"));

  Program by_saver(2, 50, MakeMomentum);
  const auto other = Saver::Create(by_saver.graph);
  const Status restored = (*other)->Restore(*by_saver.session, folder + "/objects");
  ASSERT_TRUE(restored.ok()) << restored;
  by_saver.Train(2);
  by_saver.Write(folder + "/again");
  ExpectSame(TensorsIn(folder + "/again"), TensorsIn(folder + "/later"));
}

TEST(ShardedCheckpoint, WrittenAsideAndInSmallFiles) {
  const std::string folder = EmptyFolder("it");
  Program p(3, 1, MakeMomentum);
  p.Train(1);
  p.Write(folder + "/plain");
  ASSERT_TRUE(p.checkpoint->WriteAsync(*p.session, folder + "/aside").ok());
  p.Train(1);
  ASSERT_TRUE(p.checkpoint->Sync().ok());
  ExpectSame(TensorsIn(folder + "/aside"), TensorsIn(folder + "/plain"));

  p.Read(folder + "/plain");
  ASSERT_TRUE(SetLayout(*p.checkpoint, {.max_file_bytes = 8}).ok());
  p.Write(folder + "/small");
  const auto reader = CheckpointReader::Open(folder + "/small");
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ((*reader)->Find(StrCat("layer/table", kEnd))->parts, kRows);
  ExpectSame(TensorsIn(folder + "/small"), TensorsIn(folder + "/plain"));
  Program other(2, 50, MakeMomentum);
  other.Read(folder + "/small");
  EXPECT_TRUE(TensorsEqual(other.TableNow(), p.TableNow()));
}

TEST(ShardedCheckpoint, EveryParameterServerWritesAndReadsItsParts) {
  const std::string folder = EmptyFolder("it");
  Tensor want;
  for (int num_ps = 1; num_ps <= kMost; ++num_ps) {
    InProcessCluster cluster(num_ps, 1);
    Program p(num_ps, 1, MakeMomentum, cluster.Target("worker", 0), num_ps);
    p.Train(2);
    const auto saved = p.checkpoint->Save(*p.session, StrCat(folder, "/ps", num_ps));
    ASSERT_TRUE(saved.ok()) << saved.status();
    EXPECT_EQ((*CheckpointReader::Open(*saved))->num_files(), num_ps);
    if (num_ps == 1) want = p.TableNow();
    EXPECT_TRUE(TensorsEqual(p.TableNow(), want));
  }
  for (int num_ps = 1; num_ps <= kMost; ++num_ps) {
    InProcessCluster cluster(num_ps, 1);
    for (int from = 1; from <= kMost; ++from) {
      Program p(num_ps, 50, MakeMomentum, cluster.Target("worker", 0), num_ps);
      const auto status = p.checkpoint->Restore(*p.session, StrCat(folder, "/ps", from, "-1"));
      ASSERT_TRUE(status.ok()) << status.status();
      EXPECT_TRUE(status->AssertConsumed().ok()) << status->AssertConsumed();
      EXPECT_TRUE(TensorsEqual(p.TableNow(), want)) << from << " into " << num_ps;
    }
  }
}

// As before there was TrackableOf: each part is an object, with what is kept for it.
TEST(ShardedCheckpoint, PartsMayStillBeObjectsOfTheirOwn) {
  for (const MakeOptimizer& make : {MakeOptimizer(MakeMomentum), MakeOptimizer(MakeKerasAdam)}) {
    const std::string prefix = EmptyFolder("it") + "/c";
    Graph graph;
    const Scope root = graph.root();
    const ShardedVariable table =
        MakeShardedVariable(root, "table", Constant(root, Table(1)), FixedShards(2));
    const std::vector<Variable> parts = {table.parts[0].variable, table.parts[1].variable};
    const auto optimizer = make();
    std::vector<GradientAndVariable> gradients;
    for (const Variable& v : parts) gradients.push_back({ops::OnesLike(root, v.read), v});
    ASSERT_TRUE(optimizer->ApplyGradients(root, gradients, nullptr).ok());
    const auto checkpoint = Checkpoint::Create(
        graph,
        {{"parts", Trackable::List(parts)}, {"optimizer", Trackable::Of(*optimizer, parts)}});
    Session session = *Session::Create(graph);
    ASSERT_TRUE(session.RunTargets({InitializeVariables(root)}).ok());
    ASSERT_TRUE((*checkpoint)->Write(session, prefix).ok());
    int of_parts = 0;
    for (const auto& [key, value] : TensorsIn(prefix)) {
      EXPECT_NE(value.shape(), Shape({kRows, kColumns})) << key;
      of_parts += value.shape() == Shape({4, kColumns});
    }
    EXPECT_GE(of_parts, 2);
  }
}

TEST(ShardedCheckpoint, WhatIsKeptForSomePartsOnlyIsRefused) {
  Graph graph;
  const Scope root = graph.root();
  const ShardedVariable table =
      MakeShardedVariable(root, "table", Constant(root, Table(1)), FixedShards(3));
  const Variable& first = table.parts[0].variable;
  const Variable kept = FloatVariable(root, "kept", {1});
  Trackable optimizer;
  optimizer.AddSlot("m", first, kept);
  const auto checkpoint =
      Checkpoint::Create(graph, {{"table", TrackableOf(table)}, {"optimizer", optimizer}});
  Session session = *Session::Create(graph);
  const Status refused = (*checkpoint)->Write(session, EmptyFolder("it") + "/c");
  EXPECT_EQ(refused.code(), StatusCode::kUnimplemented) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("'m' of table"));
}

}  // namespace
}  // namespace millrace::testing
