// SPDX-License-Identifier: Apache-2.0
// Data sets that take elements for ever before they give one: the step that asks ends at its
// deadline, and nothing of it goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "base/strings.h"
#include "millrace/core.h"
#include "proto/graph.pb.h"
#include "tests/functions/function_text.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMany = int64_t{1} << 62;

std::string Int(const std::string& name, int64_t value) {
  return GraphNode(
      name, "Const", {},
      Attr("dtype", "type: DT_INT64") +
          Attr("value",
               StrCat("tensor { dtype: DT_INT64 tensor_shape {} int64_val: ", value, " }")));
}
std::string Types(const std::string& key = "output_types") {
  return Attr(key, "list { type: DT_INT64 }") + Attr("output_shapes", "list { shape {} }");
}
// The numbers from `begin` to `end`, with the nodes that it takes.
std::string Range(const std::string& name, int64_t begin, int64_t end) {
  return Int(name + "_begin", begin) + Int(name + "_end", end) + Int(name + "_step", 1) +
         GraphNode(name, "RangeDataset", {name + "_begin", name + "_end", name + "_step"}, Types());
}
std::string Counted(const std::string& name, const std::string& op, const std::string& input,
                    int64_t count) {
  return Int(name + "_count", count) + GraphNode(name, op, {input, name + "_count"}, Types());
}

struct Pipeline {
  const char* what;
  std::string text;  // ends with node "all"
};

std::vector<Pipeline> Endless() {
  return {
      {"skips", Range("r", 0, kMany) + Counted("all", "SkipDataset", "r", kMany - 1)},
      {"skips random numbers", Int("seed", 1) +
                                   GraphNode("r", "RandomDataset", {"seed", "seed"}, Types()) +
                                   Counted("all", "SkipDataset", "r", kMany)},
      {"deals out", Range("r", 0, kMany) + Int("shards", kMany) + Int("index", kMany - 1) +
                        GraphNode("all", "ShardDataset", {"r", "shards", "index"}, Types())},
      {"repeats nothing", Range("r", 0, 0) + Counted("all", "RepeatDataset", "r", kMany)},
      {"skips what repeats nothing", Range("r", 0, 0) +
                                         Counted("none", "RepeatDataset", "r", kMany) +
                                         Counted("all", "SkipDataset", "none", 1)},
      {"takes turns with what has ended",
       Range("r", 0, 1) + Range("s", 0, 0) + Counted("first", "RepeatDataset", "r", -1) +
           Range("other", 0, 1) +
           GraphNode("all", "DirectedInterleaveDataset", {"first", "s", "other"},
                     Types() + Attr("N", "i: 2"))},
      {"takes apart what holds nothing",
       GraphNode("none", "Const", {},
                 Attr("dtype", "type: DT_INT64") +
                     Attr("value", "tensor { dtype: DT_INT64 tensor_shape { dim { size: 0 } } }")) +
           GraphNode("one", "TensorDataset", {"none"},
                     Attr("Toutput_types", "list { type: DT_INT64 }") +
                         Attr("output_shapes", "list { shape { dim { size: 0 } } }")) +
           Counted("many", "RepeatDataset", "one", -1) +
           GraphNode("all", "UnbatchDataset", {"many"}, Types())},
      {"ignores errors", Range("r", 0, 1) + Counted("many", "RepeatDataset", "r", -1) +
                             GraphNode("bad", "UnbatchDataset", {"many"}, Types()) +
                             GraphNode("all", "IgnoreErrorsDataset", {"bad"}, Types())},
      {"looks ahead in another thread", Range("r", 0, kMany) +
                                            Counted("late", "SkipDataset", "r", kMany - 1) +
                                            Counted("all", "PrefetchDataset", "late", 2)},
  };
}

TEST(AnEndlessDataSet, EndsWithTheStepThatAsks) {
  for (const Pipeline& pipeline : Endless()) {
    SCOPED_TRACE(pipeline.what);
    const std::string names = Attr("shared_name", "s: ''") + Attr("container", "s: ''");
    pb::GraphDef def;
    ASSERT_TRUE(ParseGraph(pipeline.text +
                               GraphNode("iterator", "IteratorV2", {}, names + Types()) +
                               GraphNode("start", "MakeIterator", {"all", "iterator"}) +
                               GraphNode("next", "IteratorGetNext", {"iterator"}, Types()),
                           &def));
    Graph graph;
    const Status imported = graph.ImportGraphDef(def.SerializeAsString());
    ASSERT_TRUE(imported.ok()) << imported;
    auto session = Session::Create(graph);
    ASSERT_TRUE(session.ok()) << session.status();
    const Status started = session->RunTargets({graph.FindOperation("start")});
    ASSERT_TRUE(started.ok()) << started;
    const std::vector<Output> fetches = {graph.FindOperation("next").output(0)};
    // Twice. A kernel that did not end within half a second is told so: on a loaded machine that
    // may happen to one that ends as soon as it has a processor, but not again and again.
    int ended = 0;
    std::string told;
    for (int run = 0; run < 6 && ended < 2; ++run) {
      RunOptions options;
      options.timeout = std::chrono::milliseconds(100);
      const auto got = session->Run({}, fetches, {}, options);
      ASSERT_EQ(got.status().code(), StatusCode::kDeadlineExceeded) << got.status();
      told = std::string(got.status().message());
      ended += told.find("still runs") == std::string::npos ? 1 : 0;
    }
    EXPECT_EQ(ended, 2) << told;
  }
}

TEST(AnEndlessDataSet, HasNoMoreElementsThanCanBeCounted) {
  pb::GraphDef def;
  ASSERT_TRUE(ParseGraph(
      Range("all", INT64_MIN, INT64_MAX) + Range("half", 0, kMany) +
          GraphNode("half_again", "ConcatenateDataset", {"half", "half"}, Types()) +
          GraphNode("both", "ConcatenateDataset", {"half_again", "half"}, Types()) +
          GraphNode("count", "DatasetCardinality", {"all"}) +
          GraphNode("sum", "DatasetCardinality", {"both"}) +
          GraphNode("iterator", "IteratorV2", {},
                    Attr("shared_name", "s: ''") + Attr("container", "s: ''") + Types()) +
          GraphNode("start", "MakeIterator", {"all", "iterator"}) +
          GraphNode("next", "IteratorGetNext", {"iterator"}, Types()),
      &def));
  Graph graph;
  const Status imported = graph.ImportGraphDef(def.SerializeAsString());
  ASSERT_TRUE(imported.ok()) << imported;
  auto session = Session::Create(graph);
  ASSERT_TRUE(session.ok()) << session.status();
  const auto counts = session->Run(
      {}, {graph.FindOperation("count").output(0), graph.FindOperation("sum").output(0)});
  ASSERT_TRUE(counts.ok()) << counts.status();
  EXPECT_EQ((*counts)[0].scalar<int64_t>(), INT64_MAX);
  EXPECT_EQ((*counts)[1].scalar<int64_t>(), -2);  // unknown
  ASSERT_TRUE(session->RunTargets({graph.FindOperation("start")}).ok());
  for (int64_t i = 0; i < 3; ++i) {
    const auto next = session->Run({}, {graph.FindOperation("next").output(0)});
    ASSERT_TRUE(next.ok()) << next.status();
    EXPECT_EQ((*next)[0].scalar<int64_t>(), INT64_MIN + i);
  }
}

}  // namespace
}  // namespace millrace
