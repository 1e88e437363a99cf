// SPDX-License-Identifier: Apache-2.0
// Data sets as graphs that are data, and what distribution strategies do with them, as a program
// sees it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "base/strings.h"
#include "millrace/core.h"
#include "proto/dataset_options.pb.h"
#include "proto/graph.pb.h"
#include "tests/functions/function_text.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Ints(const std::string& key = "output_types", const std::string& shape = "shape {}") {
  return Attr(key, "list { type: DT_INT64 }") +
         Attr("output_shapes", StrCat("list { ", shape, " }"));
}
constexpr char kRows[] = "shape { dim { size: -1 } }";

std::string Const(const std::string& name, const std::string& type, const std::string& values) {
  return GraphNode(name, "Const", {},
                   Attr("dtype", "type: " + type) +
                       Attr("value", StrCat("tensor { dtype: ", type, " ", values, " }")));
}
std::string Int(const std::string& name, int64_t value) {
  return Const(name, "DT_INT64", StrCat("tensor_shape {} int64_val: ", value));
}
std::string Text(const std::string& name, const std::string& value) {
  return Const(name, "DT_STRING", StrCat("tensor_shape {} string_val: '", CEscape(value), "'"));
}
// 0, 1, ... as node "numbers".
std::string Range(int64_t count) {
  return Int("zero", 0) + Int("one", 1) + Int("count", count) +
         GraphNode("numbers", "RangeDataset", {"zero", "count", "one"}, Ints());
}
// A function x + 100 of numbers.
std::string AddHundred() {
  return "library { function { signature { name: 'add' input_arg { name: 'x' type: DT_INT64 } "
         "output_arg { name: 'y' type: DT_INT64 } } " +
         NodeText("node_def", "hundred", "Const", {},
                  Attr("dtype", "type: DT_INT64") +
                      Attr("value", "tensor { dtype: DT_INT64 tensor_shape {} int64_val: 100 }")) +
         BodyNode("sum", "AddV2", {"x", "hundred:output:0"}, Attr("T", "type: DT_INT64")) +
         "ret { key: 'y' value: 'sum:z:0' } } }\n";
}
std::string Map(const std::string& name, const std::string& input) {
  return GraphNode(name, "MapDataset", {input},
                   Func("f", "add") + Attr("Targuments", "list {}") + Ints());
}
// An iterator over `dataset`: "start" and "next".
std::string Iterate(const std::string& dataset, const std::string& shape = "shape {}") {
  const std::string names = Attr("shared_name", "s: ''") + Attr("container", "s: ''");
  return GraphNode("iterator", "IteratorV2", {}, names + Ints("output_types", shape)) +
         GraphNode("start", "MakeIterator", {dataset, "iterator"}) +
         GraphNode("next", "IteratorGetNext", {"iterator"}, Ints("output_types", shape));
}

class DatasetGraphTest : public ::testing::Test {
 protected:
  void Open(const std::string& text) {
    auto session = OpenText(text, &graph_);
    ASSERT_TRUE(session.ok()) << session.status();
    session_.emplace(*std::move(session));
  }
  Status Start() { return session_->RunTargets({graph_.FindOperation("start")}); }
  StatusOr<Tensor> Fetch(const std::string& node) {
    auto got = session_->Run({}, {graph_.FindOperation(node).output(0)});
    if (!got.ok()) return got.status();
    return (*got)[0];
  }
  // Each element as its numbers with commas.
  std::vector<std::string> Drain() {
    std::vector<std::string> elements;
    const Status started = Start();
    EXPECT_TRUE(started.ok()) << started;
    while (started.ok()) {
      const auto got = Fetch("next");
      if (!got.ok()) {
        EXPECT_EQ(got.status().code(), StatusCode::kOutOfRange) << got.status();
        break;
      }
      std::vector<int64_t> numbers;
      for (int64_t i = 0; i < got->num_elements(); ++i) numbers.push_back(got->data<int64_t>()[i]);
      elements.push_back(StrJoin(numbers, ","));
    }
    return elements;
  }

  Graph graph_;
  std::optional<Session> session_;
};

TEST_F(DatasetGraphTest, ADataSetWithFunctionsIsWrittenAndMadeAgain) {
  Open(AddHundred() + Range(3) + Map("map", "numbers") +
       GraphNode("written", "DatasetToGraphV2", {"map"}) +
       GraphNode("made", "DatasetFromGraph", {"written"}) + Iterate("made"));
  EXPECT_THAT(Drain(), ElementsAre("100", "101", "102"));
}

TEST_F(DatasetGraphTest, WhatWasMadeFromAGraphCanBeWrittenOnceMore) {
  Open(AddHundred() + Range(2) + Map("map", "numbers") +
       GraphNode("written", "DatasetToGraphV2", {"map"}) +
       GraphNode("made", "DatasetFromGraph", {"written"}) +
       GraphNode("both", "ConcatenateDataset", {"made", "made"}, Ints()) +
       GraphNode("written2", "DatasetToGraphV2", {"both"}) +
       GraphNode("made2", "DatasetFromGraph", {"written2"}) + Iterate("made2"));
  EXPECT_THAT(Drain(), ElementsAre("100", "101", "100", "101"));
}

TEST_F(DatasetGraphTest, TheGraphHasOneNodeForADataSetThatIsUsedTwice) {
  Open(Range(2) + GraphNode("both", "ConcatenateDataset", {"numbers", "numbers"}, Ints()) +
       GraphNode("written", "DatasetToGraphV2", {"both"}));
  const auto written = Fetch("written");
  ASSERT_TRUE(written.ok()) << written.status();
  pb::GraphDef graph;
  ASSERT_TRUE(graph.ParseFromString(written->scalar<std::string>()));
  std::vector<std::string> ops;
  for (const pb::NodeDef& node : graph.node()) ops.push_back(node.op());
  EXPECT_THAT(
      ops, ElementsAre("Const", "Const", "Const", "RangeDataset", "ConcatenateDataset", "_Retval"));
  EXPECT_EQ(graph.node(5).name(), "dataset");
}

TEST_F(DatasetGraphTest, GraphsThatGiveNoDataSetAreRefused) {
  const auto refused = [this](const std::string& text, const std::string& why) {
    graph_ = Graph();
    Open(Text("text", text) + GraphNode("made", "DatasetFromGraph", {"text"}) + Iterate("made"));
    const Status status = Start();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(why));
  };
  const auto bytes = [](const std::string& text) {
    pb::GraphDef def;
    EXPECT_TRUE(ParseGraph(text, &def)) << text;
    def.mutable_versions()->set_producer(2474);
    return def.SerializeAsString();
  };
  refused("\xff\xff no graph", "serialized GraphDef");
  refused("", "_Retval");
  refused(bytes(Int("n", 1)), "_Retval");
  const std::string variant = Attr("T", "type: DT_VARIANT"), number = Attr("T", "type: DT_INT64");
  refused(bytes(GraphNode("x", "_Arg", {}, variant + Attr("index", "i: 0"))), "takes an argument");
  refused(
      bytes(Int("n", 1) + GraphNode("dataset", "_Retval", {"n"}, number + Attr("index", "i: 0"))),
      "data set");
  refused(
      bytes(Int("n", 1) + GraphNode("dataset", "_Retval", {"n"}, number + Attr("index", "i: 7"))),
      "number 7");
}

TEST_F(DatasetGraphTest, OptionsOfLaterStagesWin) {
  pb::data::Options first, second;
  first.set_deterministic(true);
  first.set_slack(true);
  second.set_deterministic(false);
  second.mutable_distribute_options()->set_auto_shard_policy(2);
  const auto with = [](const std::string& name, const std::string& input, const std::string& text) {
    return GraphNode(name, "OptionsDataset", {input},
                     Attr("serialized_options", StrCat("s: '", CEscape(text), "'")) + Ints());
  };
  Open(Range(4) + with("a", "numbers", first.SerializeAsString()) +
       GraphNode("some", "TakeDataset", {"a", "one"}, Ints()) +
       with("b", "some", second.SerializeAsString()) + GraphNode("told", "GetOptions", {"b"}) +
       GraphNode("none", "GetOptions", {"numbers"}) + Iterate("b"));
  const auto told = Fetch("told");
  ASSERT_TRUE(told.ok()) << told.status();
  pb::data::Options options;
  ASSERT_TRUE(options.ParseFromString(told->scalar<std::string>()));
  EXPECT_FALSE(options.deterministic());
  EXPECT_TRUE(options.slack());
  EXPECT_EQ(options.distribute_options().auto_shard_policy(), 2);
  const auto none = Fetch("none");
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(none->scalar<std::string>(), "");
  EXPECT_THAT(Drain(), ElementsAre("0"));
}

TEST_F(DatasetGraphTest, BatchesOfOtherSizesTakeTurns) {
  Open(Range(10) + Int("four", 4) +
       Const("sizes", "DT_INT64", "tensor_shape { dim { size: 3 } } int64_val: [2, 0, 3]") +
       Const("no", "DT_BOOL", "tensor_shape {} bool_val: false") +
       GraphNode("batches", "BatchDataset", {"numbers", "four"}, Ints("output_types", kRows)) +
       GraphNode("others", "RebatchDatasetV2", {"batches", "sizes", "no"},
                 Ints("output_types", kRows)) +
       Iterate("others", kRows));
  // As TensorFlow gives them.
  EXPECT_THAT(Drain(), ElementsAre("0,1", "", "2,3,4", "5,6", "", "7,8,9"));
}

TEST_F(DatasetGraphTest, EveryWorkerGetsElementsOfItsOwn) {
  Open(AddHundred() + Range(5) + Map("map", "numbers") + Int("two", 2) +
       GraphNode("part", "AutoShardDataset", {"map", "two", "one"}, Ints()) + Iterate("part"));
  EXPECT_THAT(Drain(), ElementsAre("101", "103"));
}

TEST_F(DatasetGraphTest, ElementsAreDealtOutToDevices) {
  const std::string devices = Attr("devices", "list { s: '/cpu:0' s: '/cpu:1' }");
  const std::string shared = Attr("shared_name", "s: 'both'") + Attr("container", "s: ''");
  const auto shard = [](const std::string& name) {
    return GraphNode(name, "MultiDeviceIteratorGetNextFromShard", {"it", "shard_" + name, "time"},
                     Ints());
  };
  Open(Range(3) + GraphNode("it", "MultiDeviceIterator", {}, devices + shared + Ints()) +
       GraphNode("begin", "MultiDeviceIteratorInit", {"numbers", "it", "one"}) + Int("time", 1) +
       Const("shard_a", "DT_INT32", "tensor_shape {} int_val: 0") +
       Const("shard_b", "DT_INT32", "tensor_shape {} int_val: 1") +
       Const("shard_c", "DT_INT32", "tensor_shape {} int_val: 2") + shard("a") + shard("b") +
       shard("c"));
  EXPECT_EQ(Fetch("a").status().code(), StatusCode::kInvalidArgument);  // has not begun
  ASSERT_TRUE(Fetch("begin").ok());
  EXPECT_EQ(Fetch("b")->scalar<int64_t>(), 1);
  EXPECT_EQ(Fetch("a")->scalar<int64_t>(), 0);
  EXPECT_EQ(Fetch("a")->scalar<int64_t>(), 2);
  EXPECT_EQ(Fetch("a").status().code(), StatusCode::kOutOfRange);
  EXPECT_EQ(Fetch("b").status().code(), StatusCode::kOutOfRange);
  EXPECT_EQ(Fetch("c").status().code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(Fetch("begin").ok());
  EXPECT_THAT(std::string(Fetch("a").status().message()), HasSubstr("Invalid incarnation id"));
}

TEST_F(DatasetGraphTest, ElementsAreReducedToOneState) {
  const std::string add =
      "library { function { signature { name: 'both' input_arg { name: 'a' type: DT_INT64 } "
      "input_arg { name: 'x' type: DT_INT64 } output_arg { name: 'y' type: DT_INT64 } } " +
      BodyNode("sum", "AddV2", {"a", "x"}, Attr("T", "type: DT_INT64")) +
      "ret { key: 'y' value: 'sum:z:0' } } }\n";
  const std::string attrs = Func("f", "both") + Attr("Tstate", "list { type: DT_INT64 }") +
                            Attr("Targuments", "list {}") + Ints();
  Open(add + Range(5) + Int("ten", 10) +
       GraphNode("sum", "ReduceDataset", {"numbers", "ten"}, attrs) +
       GraphNode("empty", "TakeDataset", {"numbers", "zero"}, Ints()) +
       GraphNode("nothing", "ReduceDataset", {"empty", "ten"}, attrs));
  EXPECT_EQ(Fetch("sum")->scalar<int64_t>(), 20);
  EXPECT_EQ(Fetch("nothing")->scalar<int64_t>(), 10);
}

// A function that gives what an iterator gives until its end, by way of a call at a device.
TEST_F(DatasetGraphTest, AFunctionGivesElementsUntilItSaysThatTheyEnd) {
  const std::string number = "output_arg { name: 'y' type: DT_INT64 } } ";
  const std::string step =
      "library { function { signature { name: 'step' input_arg { name: 'it' type: DT_RESOURCE } " +
      number + BodyNode("got", "IteratorGetNext", {"it"}, Ints()) +
      "ret { key: 'y' value: 'got:components:0' } } }\n";
  const std::string target = Attr("dtype", "type: DT_STRING") +
                             Attr("value",
                                  "tensor { dtype: DT_STRING tensor_shape {} string_val: "
                                  "'/job:localhost/replica:0/task:0/device:CPU:0' }");
  const std::string next =
      "library { function { signature { name: 'next' input_arg { name: 's' type: DT_INT64 } "
      "input_arg { name: 'it' type: DT_RESOURCE } " +
      number + NodeText("node_def", "where", "Const", {}, target) +
      BodyNode("call", "RemoteCall", {"where:output:0", "it"},
               Func("f", "step") + Attr("Tin", "list { type: DT_RESOURCE }") +
                   Attr("Tout", "list { type: DT_INT64 }")) +
      "ret { key: 'y' value: 'call:output:0' } } }\n";
  const std::string same =
      "library { function { signature { name: 'same' input_arg { name: 'x' type: DT_INT64 } " +
      number + BodyNode("kept", "Identity", {"x"}, Attr("T", "type: DT_INT64")) +
      "ret { key: 'y' value: 'kept:output:0' } } }\n";
  const std::string attrs = Func("init_func", "same") + Func("next_func", "next") +
                            Func("finalize_func", "same") +
                            Attr("Tinit_func_args", "list { type: DT_INT64 }") +
                            Attr("Tnext_func_args", "list { type: DT_RESOURCE }") +
                            Attr("Tfinalize_func_args", "list {}") + Ints();
  const std::string names = Attr("shared_name", "s: 'inner'") + Attr("container", "s: ''");
  Open(step + next + same + Range(3) + GraphNode("inner", "IteratorV2", {}, names + Ints()) +
       GraphNode("begin", "MakeIterator", {"numbers", "inner"}) +
       GraphNode("given", "GeneratorDataset", {"one", "inner"}, attrs) + Iterate("given"));
  const Status begun = session_->RunTargets({graph_.FindOperation("begin")});
  ASSERT_TRUE(begun.ok()) << begun;
  EXPECT_THAT(Drain(), ElementsAre("0", "1", "2"));
}

TEST_F(DatasetGraphTest, StagesUponEachOtherHaveALimit) {
  std::string text = Range(1), last = "numbers";
  for (int i = 0; i < 1000; ++i) {
    const std::string name = StrCat("skip_", i);
    text += GraphNode(name, "SkipDataset", {last, "zero"}, Ints());
    last = name;
  }
  Open(text + Iterate(last));
  EXPECT_EQ(Start().code(), StatusCode::kResourceExhausted);
}

TEST_F(DatasetGraphTest, StagesUpToTheLimitAreWalkedThrough) {
  std::string text = Range(1), last = "numbers";
  for (int i = 0; i < 998; ++i) {
    const std::string name = StrCat("skip_", i);
    text += GraphNode(name, "SkipDataset", {last, "zero"}, Ints());
    last = name;
  }
  Open(text + GraphNode("written", "DatasetToGraphV2", {last}) +
       GraphNode("made", "DatasetFromGraph", {"written"}) + Iterate("made"));
  EXPECT_THAT(Drain(), ElementsAre("0"));
}

}  // namespace
}  // namespace millrace
