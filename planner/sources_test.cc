// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/errors.h"
#include "base/strings.h"
#include "planner/cluster_source.h"
#include "planner/graph_source.h"
#include "planner/plan_json.h"
#include "proto/cluster.pb.h"
#include "proto/meta_graph.pb.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

constexpr char kGraph[] = R"(
  node { name: "x" op: "Const" device: "/job:ps/task:0/cpu:0"
         attr { key: "dtype" value { type: DT_FLOAT } }
         attr { key: "value" value { tensor { dtype: DT_FLOAT tensor_shape { } float_val: 1 } } } }
  node { name: "y" op: "Neg" input: "x" attr { key: "T" value { type: DT_FLOAT } } }
  versions { producer: 1000 })";

class SourcesTest : public ::testing::Test {
 protected:
  SourcesTest()
      : dir_(StrCat(std::getenv("TEST_TMPDIR"), "/",
                    ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::create_directories(dir_);
    unsetenv("TF_CONFIG");
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(kGraph, &graph_));
  }

  std::string Write(const std::string& name, const std::string& bytes) {
    const std::filesystem::path path = std::filesystem::path(dir_) / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << bytes;
    return path.string();
  }
  static std::string Text(const google::protobuf::Message& message) {
    std::string text;
    google::protobuf::TextFormat::PrintToString(message, &text);
    return text;
  }
  void ExpectGraph(const std::string& path, const std::string& tags = "") {
    const StatusOr<GraphSource> source = ReadGraphSource(path, tags);
    ASSERT_TRUE(source.ok()) << source.status();
    EXPECT_EQ(Text(source->graph), Text(graph_)) << path;
    EXPECT_FALSE(source->is_placed);
  }
  static std::string ErrorOf(const std::string& path, const std::string& tags = "") {
    return std::string(Message(ReadGraphSource(path, tags).status()));
  }

  const std::string dir_;
  pb::GraphDef graph_;
};

TEST_F(SourcesTest, GraphsAndMetaGraphsAreReadAsBytesAndAsText) {
  pb::MetaGraphDef meta;
  *meta.mutable_graph_def() = graph_;
  ExpectGraph(Write("a.pb", graph_.SerializeAsString()));
  ExpectGraph(Write("a.pbtxt", Text(graph_)));
  ExpectGraph(Write("b.meta", meta.SerializeAsString()));
  ExpectGraph(Write("b.pbtxt", Text(meta)));
}

TEST_F(SourcesTest, AGraphOfASavedModelIsChosenByItsTags) {
  pb::SavedModel model;
  const auto add = [&](std::initializer_list<const char*> tags) {
    pb::MetaGraphDef* const meta = model.add_meta_graphs();
    *meta->mutable_graph_def() = graph_;
    for (const char* tag : tags) meta->mutable_meta_info_def()->add_tags(tag);
    return meta;
  };
  add({"serve"});
  ExpectGraph(Write("one/saved_model.pb", model.SerializeAsString()));
  ExpectGraph(StrCat(dir_, "/one"));
  add({"train", "gpu"})->mutable_graph_def()->mutable_node()->RemoveLast();
  Write("two/saved_model.pbtxt", Text(model));
  ExpectGraph(StrCat(dir_, "/two"), "serve");
  const StatusOr<GraphSource> other = ReadGraphSource(StrCat(dir_, "/two"), "gpu, train");
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->graph.node_size(), 1);
  EXPECT_THAT(ErrorOf(StrCat(dir_, "/two")), HasSubstr("\"serve\" or \"gpu,train\""));
  EXPECT_THAT(ErrorOf(StrCat(dir_, "/two"), "gpu"),
              HasSubstr("no graph with exactly the tags gpu"));
}

TEST_F(SourcesTest, ADirectoryOfDumpsStandsForItsLastPlacedGraph) {
  pb::GraphDef first = graph_;
  first.mutable_node()->RemoveLast();
  Write("d/session_1/0002_placed.pbtxt", Text(first));
  Write("d/session_1/0004_placed.pbtxt", Text(graph_));
  Write("d/session_1/run_x/0001_pruned.pbtxt", Text(first));
  ExpectGraph(StrCat(dir_, "/d"));
  ExpectGraph(StrCat(dir_, "/d/session_1"));
  const StatusOr<GraphSource> run = ReadGraphSource(StrCat(dir_, "/d/session_1/run_x"), "");
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->graph.node_size(), 1);
  EXPECT_TRUE(run->is_placed);
  Write("d/session_2/0002_placed.pbtxt", Text(first));
  EXPECT_THAT(ErrorOf(StrCat(dir_, "/d")), HasSubstr("choose one of session_1, session_2"));
  std::filesystem::create_directories(StrCat(dir_, "/empty"));
  EXPECT_THAT(ErrorOf(StrCat(dir_, "/empty")), HasSubstr("neither a saved model nor graph dumps"));
}

TEST_F(SourcesTest, TheRecordBesideADumpedGraphIsReadWithIt) {
  Write("d/0002_placed.txt",
        "x (Const) asks for /job:ps -> /job:ps/replica:0/task:0/device:CPU:0\n"
        "  made at net.cc:3\n"
        "  rule 8: highest kernel priority\n"
        "  group of 2:\n"
        "    y (Neg)\n"
        "y (Neg) -> /job:ps/replica:0/task:0/device:CPU:0\n"
        "  rule 5: a node of its group was placed there: x\n"
        "  in the group of x\n");
  Write("d/0002_placed.pbtxt", Text(graph_));
  const StatusOr<GraphSource> source = ReadGraphSource(StrCat(dir_, "/d"), "");
  ASSERT_TRUE(source.ok()) << source.status();
  ASSERT_EQ(source->explanations.size(), 2u);
  const Explanation& x = source->explanations.find("x")->second;
  EXPECT_EQ(x.rule, 8);
  EXPECT_EQ(x.why, "highest kernel priority");
  EXPECT_EQ(x.requested, "/job:ps");
  EXPECT_EQ(x.origin, "net.cc:3");
  EXPECT_THAT(x.chain, HasSubstr("group of 2:\n    y (Neg)\n"));
  EXPECT_EQ(source->explanations.find("y")->second.rule, 5);
}

TEST_F(SourcesTest, APlanIsReadAsItWasWritten) {
  StringMap<Explanation> why;
  why["x"] = {8, "highest kernel priority", "/job:ps", "a.cc:3", "x (Const)\n  rule 8\n"};
  const std::string json = PlanToJson(graph_, why, /*with_chains=*/true);
  EXPECT_EQ(json, PlanToJson(graph_, why, /*with_chains=*/true));
  const std::string path = Write("plan.json", json);
  ExpectGraph(path);
  const StatusOr<GraphSource> source = ReadGraphSource(path, "");
  ASSERT_TRUE(source.ok()) << source.status();
  const Explanation& known = source->explanations.find("x")->second;
  EXPECT_EQ(known.rule, 8);
  EXPECT_EQ(known.requested, "/job:ps");
  EXPECT_EQ(known.chain, "x (Const)\n  rule 8\n");
  EXPECT_THAT(ErrorOf(Write("bad.json", R"({"format": "millrace plan 9"})")),
              HasSubstr("this is not a \"millrace plan 1\""));
  EXPECT_THAT(ErrorOf(Write("bad.json", R"({"format": "millrace plan 1", "nodes": [{}]})")),
              HasSubstr("a node without a name or an op"));
}

TEST_F(SourcesTest, WhatIsNoGraphIsSaidSo) {
  EXPECT_THAT(ErrorOf(StrCat(dir_, "/absent")), HasSubstr("cannot read"));
  EXPECT_THAT(ErrorOf(Write("noise", "what is this")), HasSubstr("as text: line 1: "));
  EXPECT_THAT(ErrorOf(Write("noise", std::string("\0\1\2", 3))), HasSubstr("holds neither"));
}

std::string Jobs(const std::string& text) {
  const StatusOr<ClusterJobs> jobs = ReadCluster(text);
  if (!jobs.ok()) return std::string(Message(jobs.status()));
  std::string out;
  for (const auto& [job, tasks] : *jobs) StrAppend(&out, job, ":", StrJoin(tasks, ","), " ");
  return out;
}

TEST_F(SourcesTest, AClusterIsCountsOrAddressesOrAFile) {
  EXPECT_EQ(Jobs("ps:2,worker:1"), "ps:0,1 worker:0 ");
  EXPECT_EQ(Jobs("ps|a:1;b:1,worker|c:1"), "ps:0,1 worker:0 ");
  pb::ClusterDef def;
  pb::JobDef* const job = def.add_job();
  job->set_name("worker");
  (*job->mutable_tasks())[3] = "a:1";
  EXPECT_EQ(Jobs(Write("cluster.pbtxt", Text(def))), "worker:3 ");
  EXPECT_EQ(Jobs(Write("cluster.pb", def.SerializeAsString())), "worker:3 ");
  const std::string config = R"({"cluster": {"ps": ["a:1", "b:1"]}})";
  EXPECT_EQ(Jobs(Write("config.json", config)), "ps:0,1 ");
  EXPECT_THAT(Jobs("ps"), HasSubstr("'ps' is neither"));
  EXPECT_THAT(Jobs(Write("noise", "what is this")), HasSubstr("nor a ClusterDef: line 1: "));
  EXPECT_EQ(Jobs(""), "");
  setenv("TF_CONFIG", config.c_str(), 1);
  EXPECT_EQ(Jobs(""), "ps:0,1 ");
}

}  // namespace
}  // namespace millrace
