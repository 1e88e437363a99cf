// SPDX-License-Identifier: Apache-2.0
// Graphs that come from files, with the savers that they bring with them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/strings.h"
#include "proto/meta_graph.pb.h"
#include "tests/saving/saving_testlib.h"

namespace millrace::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const char kStock[] = "checkpoints/saver/model.ckpt-3";  // written by TensorFlow's Saver

std::vector<std::string> NamesOf(const std::vector<Variable>& variables) {
  std::vector<std::string> names;
  for (const Variable& v : variables) names.push_back(v.name());
  return names;
}

// Of a checkpoint: each name, its type, shape and value, in one line.
std::vector<std::string> ContentsOf(const std::string& prefix) {
  std::vector<std::string> lines;
  const auto reader = CheckpointReader::Open(prefix);
  EXPECT_TRUE(reader.ok()) << reader.status();
  if (!reader.ok()) return lines;
  for (const CheckpointReader::Entry& entry : (*reader)->entries()) {
    const auto value = (*reader)->Read(entry.name);
    EXPECT_TRUE(value.ok()) << value.status();
    if (value.ok()) {
      lines.push_back(StrCat(entry.name, " ", value->DebugString(), " in ", entry.parts));
    }
  }
  return lines;
}

struct Imported {
  explicit Imported(const std::string& file, const std::string& scope = "") {
    auto made = ImportMetaGraph(graph, file, scope);
    EXPECT_TRUE(made.ok()) << made.status();
    if (made.ok()) saver = *std::move(made);
    session = *Session::Create(graph);
  }
  Graph graph;
  std::unique_ptr<Saver> saver;
  std::optional<Session> session;
};

TEST(TensorFlowsMetaGraph, BringsTheSaverByWhichItsCheckpointsAreRestored) {
  const std::string stock = GoldenPath(kStock);
  Imported it(stock + ".meta");
  ASSERT_NE(it.saver, nullptr);
  ASSERT_TRUE(it.saver->Restore(*it.session, stock).ok());
  const Json golden = LoadJson("checkpoints/expected.json")["saver/model.ckpt-3"];
  for (const Json& entry : golden["entries"]) {
    if (entry["key"] != "w") continue;
    std::vector<float> want;
    for (const Json& v : entry["value"]) want.push_back(v.get<float>());
    for (const Variable& v : Variables(it.graph)) {
      if (v.name() != "w") continue;
      EXPECT_EQ(FloatsOf(*it.session, v), want);
    }
  }
  // And saves what it has restored.
  const std::string folder = EmptyFolder("it");
  const auto saved = it.saver->Save(*it.session, folder + "/model.ckpt", {.global_step = 3});
  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_EQ(ContentsOf(*saved), ContentsOf(stock));
}

TEST(TensorFlowsMetaGraph, SaysHowManyCheckpointsAreKept) {
  Imported it(GoldenPath(kStock) + ".meta");
  ASSERT_TRUE(it.saver->Restore(*it.session, GoldenPath(kStock)).ok());
  const std::string folder = EmptyFolder("it");
  for (int64_t step = 1; step <= 4; ++step) {
    ASSERT_TRUE(it.saver->Save(*it.session, folder + "/m", {.global_step = step}).ok());
  }
  EXPECT_THAT(it.saver->last_checkpoints(), ElementsAre(folder + "/m-3", folder + "/m-4"));
  EXPECT_FALSE(CheckpointExists(folder + "/m-2"));
}

TEST(TensorFlowsMetaGraph, BringsItsCollections) {
  Imported it(GoldenPath(kStock) + ".meta");
  EXPECT_THAT(NamesOf(Variables(it.graph)),
              ElementsAre("w", "r", "global_step", "pv/part_0", "pv/part_1", "pv/part_2"));
  EXPECT_THAT(NamesOf(Variables(it.graph, kGlobalStep)), ElementsAre("global_step"));
  // A saver that is made here knows the parts, too.
  auto own = Saver::Create(it.graph, {});
  ASSERT_TRUE(own.ok()) << own.status();
  ASSERT_TRUE((*own)->Restore(*it.session, GoldenPath(kStock)).ok());
  const std::string folder = EmptyFolder("it");
  const auto saved = (*own)->Save(*it.session, folder + "/model.ckpt");
  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_EQ(ContentsOf(*saved), ContentsOf(GoldenPath(kStock)));
}

TEST(TensorFlowsMetaGraph, MayBeImportedIntoAScope) {
  Imported it(GoldenPath(kStock) + ".meta", "copy");
  ASSERT_NE(it.saver, nullptr);
  EXPECT_THAT(NamesOf(Variables(it.graph, kGlobalStep)), ElementsAre("copy/global_step"));
  ASSERT_TRUE(it.saver->Restore(*it.session, GoldenPath(kStock)).ok());
  const Variable step = Variables(it.graph, kGlobalStep)[0];
  EXPECT_EQ(it.session->Eval(step.read)->scalar<int64_t>(), 3);
  std::vector<std::string> keys;
  for (const SavedVariable& v : it.saver->variables()) keys.push_back(v.key);
  EXPECT_THAT(keys, ::testing::UnorderedElementsAre("w", "r", "global_step", "pv", "pv", "pv"));
}

struct Program {
  explicit Program(std::vector<float> values) {
    w = FloatVariable(graph.root(), "w", values);
    r = FloatVariable(graph.root(), "r", values, /*use_resource=*/true);
    init = InitializeVariables(graph.root());
    graph.AddToCollection("init_op", Output(init, 0));
  }
  Graph graph;
  Variable w, r;
  Operation init;
};

TEST(AMetaGraph, BringsShardedSaversAndOps) {
  Program p({1, 2});
  auto saver = *Saver::Create(p.graph, {.sharded = true, .max_to_keep = 7});
  Session session = *Session::Create(p.graph);
  ASSERT_TRUE(session.RunTargets({p.init}).ok());
  const std::string prefix = EmptyFolder("it") + "/model.ckpt";
  ASSERT_TRUE(saver->Save(session, prefix).ok());
  ASSERT_TRUE(SetFloats(p.graph, session, p.w, {5, 6}).ok());
  Imported it(prefix + ".meta");
  EXPECT_EQ(it.saver->ToSaverDef(), saver->ToSaverDef());
  const std::vector<Output> init = it.graph.collection("init_op");
  ASSERT_EQ(init.size(), 1u);
  ASSERT_TRUE(it.session->RunTargets({init[0].op()}).ok());
  ASSERT_TRUE(it.saver->Restore(*it.session, prefix).ok());
  for (const Variable& v : Variables(it.graph)) {
    EXPECT_EQ(FloatsOf(*it.session, v), (std::vector<float>{1, 2})) << v.name();
  }
}

// No variable has changed.
TEST(ASaverOfADef, RefusesACheckpointThatDoesNotFit) {
  Program p({1, 2});
  const auto made = *Saver::Create(p.graph, {});
  auto saver = Saver::FromDef(p.graph, made->ToSaverDef());
  ASSERT_TRUE(saver.ok()) << saver.status();
  Session session = *Session::Create(p.graph);
  ASSERT_TRUE(session.RunTargets({p.init}).ok());
  const std::string prefix = EmptyFolder("it") + "/model.ckpt";
  const Tensor two = Tensor::FromValues<float>(std::vector<float>{7, 8}, Shape({2}));
  ASSERT_TRUE(WriteTensors(prefix, {{"w", two}}).ok());
  const Status missing = (*saver)->Restore(session, prefix);
  EXPECT_TRUE(errors::IsNotFound(missing)) << missing;
  const Tensor three = Tensor::FromValues<float>(std::vector<float>{7, 8, 9}, Shape({3}));
  ASSERT_TRUE(WriteTensors(prefix, {{"w", two}, {"r", three}}).ok());
  const Status shape = (*saver)->Restore(session, prefix);
  EXPECT_TRUE(errors::IsInvalidArgument(shape)) << shape;
  EXPECT_EQ(FloatsOf(session, p.w), (std::vector<float>{1, 2}));
}

TEST(ASaverOfADef, IsRefusedWithoutItsNodes) {
  Program p({1, 2});
  const auto made = *Saver::Create(p.graph, {});
  const std::string def = made->ToSaverDef();
  Graph other;
  const Status status = Saver::FromDef(other, def).status();
  EXPECT_TRUE(errors::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr("save/Const:0"));
  EXPECT_TRUE(errors::IsInvalidArgument(Saver::FromDef(p.graph, "\xff\xff").status()));
  pb::SaverDef incomplete;
  ASSERT_TRUE(incomplete.ParseFromString(def));
  incomplete.clear_restore_op_name();
  const Status no_restore = Saver::FromDef(p.graph, incomplete.SerializeAsString()).status();
  EXPECT_THAT(std::string(Message(no_restore)), HasSubstr("must specify the restore_op_name"));
}

TEST(AMetaGraph, MayHaveNoSaver) {
  const std::string file = EmptyFolder("it") + "/graph.meta";
  pb::MetaGraphDef meta;
  Program p({1});
  ASSERT_TRUE(meta.mutable_graph_def()->ParseFromString(*p.graph.ToGraphDef()));
  WriteText(file, meta.SerializeAsString());
  Graph graph;
  const auto saver = ImportMetaGraph(graph, file);
  ASSERT_TRUE(saver.ok()) << saver.status();
  EXPECT_EQ(*saver, nullptr);
  EXPECT_TRUE(graph.FindOperation("w/Assign").valid());
}

TEST(AFileThatIsNoMetaGraph, IsNamed) {
  Graph graph;
  const std::string folder = EmptyFolder("it");
  EXPECT_TRUE(errors::IsNotFound(ImportMetaGraph(graph, folder + "/none.meta").status()));
  WriteText(folder + "/it.meta", "\xff\xff\xff");
  const Status status = ImportMetaGraph(graph, folder + "/it.meta").status();
  EXPECT_TRUE(errors::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr(folder + "/it.meta"));
}

}  // namespace
}  // namespace millrace::testing
