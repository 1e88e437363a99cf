// SPDX-License-Identifier: Apache-2.0
// Data sets that call functions, as a program sees them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/strings.h"
#include "millrace/core.h"
#include "proto/graph.pb.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/functions/function_text.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A function of floats (and what `args` adds) with one result of type `type`.
std::string OneResult(const std::string& name, const std::string& args, const std::string& type,
                      const std::string& result, const std::string& body) {
  return StrCat("library { function { signature { name: '", name, "' ", args,
                " output_arg { name: 'y' type: ", type, " } }\n", body, " ret { key: 'y' value: '",
                result, "' } } }\n");
}
const char kFloatArg[] = "input_arg { name: 'x' type: DT_FLOAT }";

std::string Double() {
  return OneResult("double", kFloatArg, "DT_FLOAT", "sum:z:0",
                   BodyNode("sum", "AddV2", {"x", "x"}, FloatT()));
}
std::string Types(const std::string& key = "output_types") {
  return Attr(key, "list { type: DT_FLOAT }") + Attr("output_shapes", "list { shape {} }");
}
const std::string& NoArguments() {
  static const std::string none = Attr("Targuments", "list {}");
  return none;
}
std::string FloatsConst(const std::string& name, const std::vector<float>& values) {
  return GraphNode(
      name, "Const", {},
      Attr("dtype", "type: DT_FLOAT") +
          Attr("value", StrCat("tensor { dtype: DT_FLOAT tensor_shape { dim { size: ",
                               values.size(), " } } float_val: [", StrJoin(values, ", "), "] }")));
}
std::string IntConst(const std::string& name, int64_t value) {
  return GraphNode(
      name, "Const", {},
      Attr("dtype", "type: DT_INT64") +
          Attr("value",
               StrCat("tensor { dtype: DT_INT64 tensor_shape {} int64_val: ", value, " }")));
}
// The floats as a data set of scalars, node "numbers".
std::string Numbers(const std::vector<float>& values) {
  return FloatsConst("values", values) +
         GraphNode("numbers", "TensorSliceDataset", {"values"}, Types("Toutput_types"));
}
// An iterator over `dataset`: "start" and "next".
std::string Iterate(const std::string& dataset) {
  const std::string names = Attr("shared_name", "s: ''") + Attr("container", "s: ''");
  return GraphNode("iterator", "IteratorV2", {}, names + Types()) +
         GraphNode("start", "MakeIterator", {dataset, "iterator"}) +
         GraphNode("next", "IteratorGetNext", {"iterator"}, Types());
}

class FunctionDatasetTest : public ::testing::Test {
 protected:
  void Open(const std::string& text) {
    auto session = OpenText(text, &graph_);
    ASSERT_TRUE(session.ok()) << session.status();
    session_.emplace(*std::move(session));
    const Operation start = graph_.FindOperation("start");
    if (!start.valid()) return;
    const Status started = session_->RunTargets({start});
    ASSERT_TRUE(started.ok()) << started;
  }
  StatusOr<std::vector<Tensor>> Next(const RunOptions& options = {}) {
    const std::vector<Output> fetches = {graph_.FindOperation("next").output(0)};
    return session_->Run({}, fetches, {}, options);
  }
  std::vector<float> Drain() {
    std::vector<float> values;
    for (;;) {
      const auto got = Next();
      if (!got.ok()) {
        EXPECT_EQ(got.status().code(), StatusCode::kOutOfRange) << got.status();
        return values;
      }
      values.push_back((*got)[0].scalar<float>());
    }
  }

  Graph graph_;
  std::optional<Session> session_;
};

TEST_F(FunctionDatasetTest, MapsAndKeepsWhatThePredicateSays) {
  const std::string large =
      OneResult("large", kFloatArg, "DT_BOOL", "more:z:0",
                FloatConst("node_def", "two", 2) +
                    BodyNode("more", "Greater", {"x", "two:output:0"}, FloatT()));
  Open(Double() + large + Numbers({1, 2, 3, 4}) +
       GraphNode("filter", "FilterDataset", {"numbers"},
                 Func("predicate", "large") + NoArguments() + Types()) +
       GraphNode("map", "MapDataset", {"filter"}, Func("f", "double") + NoArguments() + Types()) +
       Iterate("map"));
  EXPECT_THAT(Drain(), ElementsAre(6, 8));
}

TEST_F(FunctionDatasetTest, PassesCapturedValuesBehindTheElement) {
  const std::string scale = OneResult(
      "scale", "input_arg { name: 'x' type: DT_FLOAT } input_arg { name: 'by' type: DT_FLOAT }",
      "DT_FLOAT", "product:z:0", BodyNode("product", "Mul", {"x", "by"}, FloatT()));
  Open(scale + Numbers({1, 2}) + FloatConst("node", "ten", 10) +
       GraphNode("map", "MapDataset", {"numbers", "ten"},
                 Func("f", "scale") + Attr("Targuments", "list { type: DT_FLOAT }") + Types()) +
       Iterate("map"));
  EXPECT_THAT(Drain(), ElementsAre(10, 20));
}

TEST_F(FunctionDatasetTest, TakesElementsWhileThePredicateHolds) {
  const std::string small =
      OneResult("small", kFloatArg, "DT_BOOL", "less:z:0",
                FloatConst("node_def", "three", 3) +
                    BodyNode("less", "Less", {"x", "three:output:0"}, FloatT()));
  Open(small + Numbers({1, 2, 5, 1}) +
       GraphNode("while", "TakeWhileDataset", {"numbers"},
                 Func("predicate", "small") + NoArguments() + Types()) +
       Iterate("while"));
  EXPECT_THAT(Drain(), ElementsAre(1, 2));
}

TEST_F(FunctionDatasetTest, LeavesOutWhatWasThereBefore) {
  const auto types = [](const std::string& type) {
    return Attr("output_types", "list { type: " + type + " }") +
           Attr("output_shapes", "list { shape {} }");
  };
  const auto cast = [](const std::string& name, const std::string& from, const std::string& to) {
    return OneResult(name, "input_arg { name: 'x' type: " + from + " }", to, "cast:y:0",
                     BodyNode("cast", "Cast", {"x"},
                              Attr("SrcT", "type: " + from) + Attr("DstT", "type: " + to)));
  };
  Open(cast("whole", "DT_FLOAT", "DT_INT64") + cast("back", "DT_INT64", "DT_FLOAT") +
       Numbers({3, 1, 3, 3, 2, 1, 5}) +
       GraphNode("ints", "MapDataset", {"numbers"},
                 Func("f", "whole") + NoArguments() + types("DT_INT64")) +
       GraphNode("unique", "UniqueDataset", {"ints"}, types("DT_INT64")) +
       GraphNode("floats", "MapDataset", {"unique"},
                 Func("f", "back") + NoArguments() + types("DT_FLOAT")) +
       Iterate("floats"));
  EXPECT_THAT(Drain(), ElementsAre(3, 1, 2, 5));
}

TEST_F(FunctionDatasetTest, ScansWithAStateThatItStartsFrom) {
  const std::string step =
      "library { function { signature { name: 'step' input_arg { name: 's' type: DT_FLOAT } "
      "input_arg { name: 'x' type: DT_FLOAT } output_arg { name: 'next' type: DT_FLOAT } "
      "output_arg { name: 'y' type: DT_FLOAT } }\n" +
      BodyNode("sum", "AddV2", {"s", "x"}, FloatT()) +
      BodyNode("twice", "AddV2", {"sum:z:0", "sum:z:0"}, FloatT()) +
      "ret { key: 'next' value: 'sum:z:0' } ret { key: 'y' value: 'twice:z:0' } } }\n";
  Open(step + Numbers({1, 2, 3}) + FloatConst("node", "first", 10) +
       GraphNode("scan", "ScanDataset", {"numbers", "first"},
                 Func("f", "step") + Attr("Tstate", "list { type: DT_FLOAT }") + NoArguments() +
                     Types()) +
       Iterate("scan"));
  EXPECT_THAT(Drain(), ElementsAre(22, 26, 32));
}

// The elements of all windows, one window after the other.
std::string WindowsOf(int64_t size, int64_t shift, int64_t stride, bool drop) {
  return OneResult("inner", "input_arg { name: 'd' type: DT_VARIANT }", "DT_VARIANT", "d", "") +
         IntConst("size", size) + IntConst("shift", shift) + IntConst("stride", stride) +
         GraphNode("drop", "Const", {},
                   Attr("dtype", "type: DT_BOOL") +
                       Attr("value", StrCat("tensor { dtype: DT_BOOL tensor_shape {} bool_val: ",
                                            drop ? "true" : "false", " }"))) +
         GraphNode("windows", "WindowDataset", {"numbers", "size", "shift", "stride", "drop"},
                   Attr("output_types", "list { type: DT_VARIANT }") +
                       Attr("output_shapes", "list { shape {} }")) +
         GraphNode("flat", "FlatMapDataset", {"windows"},
                   Func("f", "inner") + NoArguments() + Types()) +
         Iterate("flat");
}

TEST_F(FunctionDatasetTest, GivesWindowsAsDataSets) {
  Open(Numbers({1, 2, 3, 4, 5}) + WindowsOf(3, 2, 1, false));
  EXPECT_THAT(Drain(), ElementsAre(1, 2, 3, 3, 4, 5, 5));
}

TEST_F(FunctionDatasetTest, GivesWholeWindowsOnly) {
  Open(Numbers({1, 2, 3, 4, 5, 6, 7}) + WindowsOf(2, 3, 2, true));
  EXPECT_THAT(Drain(), ElementsAre(1, 3, 4, 6));
}

TEST_F(FunctionDatasetTest, ChoosesAmongDataSetsUntilAllHaveEnded) {
  const std::string choices =
      GraphNode("choices", "Const", {},
                Attr("dtype", "type: DT_INT64") +
                    Attr("value",
                         "tensor { dtype: DT_INT64 tensor_shape { dim { size: 6 } } "
                         "int64_val: [1, 0, 1, 1, 0, 0] }")) +
      GraphNode("selector", "TensorSliceDataset", {"choices"},
                Attr("Toutput_types", "list { type: DT_INT64 }") +
                    Attr("output_shapes", "list { shape {} }"));
  Open(choices + Numbers({1, 2, 3}) + FloatsConst("tens", {10, 20}) +
       GraphNode("more", "TensorSliceDataset", {"tens"}, Types("Toutput_types")) +
       GraphNode("directed", "DirectedInterleaveDataset", {"selector", "numbers", "more"},
                 Types() + Attr("N", "i: 2") + Attr("stop_on_empty_dataset", "b: false")) +
       Iterate("directed"));
  EXPECT_THAT(Drain(), ElementsAre(10, 1, 20, 2, 3));
}

TEST_F(FunctionDatasetTest, HasAsManyElementsAsWerePromised) {
  Open(Numbers({1, 2, 3}) + IntConst("two", 2) +
       GraphNode("checked", "AssertCardinalityDataset", {"numbers", "two"}, Types()) +
       Iterate("checked"));
  EXPECT_TRUE(Next().ok());
  EXPECT_TRUE(Next().ok());
  const Status status = Next().status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(status.ToString(), HasSubstr("expected to contain 2 elements"));
}

TEST_F(FunctionDatasetTest, KeepsTheOrderWhateverRunsAhead) {
  std::vector<float> values, twice;
  for (int i = 0; i < 50; ++i) {
    values.push_back(static_cast<float>(i));
    twice.push_back(static_cast<float>(2 * i));
  }
  Open(Double() + Numbers(values) + IntConst("calls", 4) + IntConst("buffer", 3) +
       GraphNode("map", "ParallelMapDatasetV2", {"numbers", "calls"},
                 Func("f", "double") + NoArguments() + Types()) +
       GraphNode("ahead", "PrefetchDataset", {"map", "buffer"}, Types()) + Iterate("ahead"));
  EXPECT_EQ(Drain(), twice);
}

// Each x becomes x, x + x.
std::string Pair() {
  return OneResult(
      "pair", kFloatArg, "DT_VARIANT", "rows:handle:0",
      BodyNode("sum", "AddV2", {"x", "x"}, FloatT()) +
          BodyNode("both", "Pack", {"x", "sum:z:0"}, FloatT() + Attr("N", "i: 2")) +
          BodyNode("rows", "TensorSliceDataset", {"both:output:0"}, Types("Toutput_types")));
}

TEST_F(FunctionDatasetTest, JoinsTheDataSetsThatAFunctionGives) {
  Open(Pair() + Numbers({1, 10, 100}) +
       GraphNode("flat", "FlatMapDataset", {"numbers"},
                 Func("f", "pair") + NoArguments() + Types()) +
       Iterate("flat"));
  EXPECT_THAT(Drain(), ElementsAre(1, 2, 10, 20, 100, 200));
}

TEST_F(FunctionDatasetTest, TakesTurnsAmongOpenDataSets) {
  const std::string inputs =
      Pair() + Numbers({1, 10, 100}) + IntConst("two", 2) + IntConst("one", 1);
  const std::string attrs = Func("f", "pair") + NoArguments() + Types();
  Open(inputs + GraphNode("turns", "InterleaveDataset", {"numbers", "two", "one"}, attrs) +
       Iterate("turns"));
  EXPECT_THAT(Drain(), ElementsAre(1, 10, 2, 20, 100, 200));
}

TEST_F(FunctionDatasetTest, WhatAFunctionGivesMustBeOfTheTypesThatTheNodeSays) {
  const auto number = [](const std::string& name, int64_t value) {
    return BodyNode(
        name, "Const", {},
        Attr("dtype", "type: DT_INT64") +
            Attr("value",
                 StrCat("tensor { dtype: DT_INT64 tensor_shape {} int64_val: ", value, " }")));
  };
  const std::string counts = OneResult(
      "counts", kFloatArg, "DT_VARIANT", "numbers:handle:0",
      number("zero", 0) + number("two", 2) + number("one", 1) +
          BodyNode("numbers", "RangeDataset", {"zero:output:0", "two:output:0", "one:output:0"},
                   Attr("output_types", "list { type: DT_INT64 }") +
                       Attr("output_shapes", "list { shape {} }")));
  Open(counts + Numbers({1, 10}) + IntConst("cycle", 2) + IntConst("block", 1) +
       GraphNode("turns", "InterleaveDataset", {"numbers", "cycle", "block"},
                 Func("f", "counts") + NoArguments() + Types()) +
       Iterate("turns"));
  EXPECT_THAT(std::string(Next().status().message()),
              HasSubstr("`f` gave a data set with elements of types (int64), where the attribute "
                        "output_types says (float): make the function's data set"));
}

TEST_F(FunctionDatasetTest, TakesTurnsInTheSameOrderWithThreads) {
  Open(Pair() + Numbers({1, 10, 100}) + IntConst("two", 2) + IntConst("one", 1) +
       GraphNode("turns", "ParallelInterleaveDatasetV4",
                 {"numbers", "two", "one", "two", "two", "two"},
                 Func("f", "pair") + NoArguments() + Types()) +
       Iterate("turns"));
  EXPECT_THAT(Drain(), ElementsAre(1, 10, 2, 20, 100, 200));
}

TEST_F(FunctionDatasetTest, AnErrorTakesTheElementsPlace) {
  const std::string checked =
      OneResult("checked", kFloatArg, "DT_FLOAT", "good:output:0",
                BodyNode("good", "CheckNumerics", {"x"},
                         FloatT() + Attr("message", "s: 'not a number here'")));
  Open(checked + FloatsConst("divisor", {1, 0, 4}) + FloatConst("node", "one", 1) +
       GraphNode("quotient", "RealDiv", {"one", "divisor"}, FloatT()) +
       GraphNode("numbers", "TensorSliceDataset", {"quotient"}, Types("Toutput_types")) +
       GraphNode("map", "MapDataset", {"numbers"}, Func("f", "checked") + NoArguments() + Types()) +
       Iterate("map"));
  EXPECT_TRUE(Next().ok());
  const Status status = Next().status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("not a number here"));
  EXPECT_THAT(Drain(), ElementsAre(0.25));
}

// The map waits for a queue that stays empty.
std::string WaitingMap(const std::string& op, const std::vector<std::string>& more) {
  const std::string wait = OneResult(
      "wait",
      "input_arg { name: 'x' type: DT_FLOAT } input_arg { name: 'queue' type: DT_RESOURCE }",
      "DT_FLOAT", "element:components:0",
      BodyNode("element", "QueueDequeueV2", {"queue"},
               Attr("component_types", "list { type: DT_FLOAT }")));
  std::vector<std::string> inputs = {"numbers", "queue"};
  inputs.insert(inputs.end(), more.begin(), more.end());
  return wait + Numbers({1, 2, 3}) + IntConst("two", 2) +
         GraphNode("queue", "FIFOQueueV2", {}, Attr("component_types", "list { type: DT_FLOAT }")) +
         GraphNode("map", op, inputs,
                   Func("f", "wait") + Attr("Targuments", "list { type: DT_RESOURCE }") + Types());
}

TEST_F(FunctionDatasetTest, WaitsNoLongerThanTheStep) {
  const RunOptions brief{.timeout = std::chrono::milliseconds(50)};
  Open(WaitingMap("MapDataset", {}) + Iterate("map"));
  EXPECT_EQ(Next(brief).status().code(), StatusCode::kDeadlineExceeded);
}

TEST_F(FunctionDatasetTest, WhatRunsAheadEndsWithItsSession) {
  const RunOptions brief{.timeout = std::chrono::milliseconds(50)};
  Open(WaitingMap("ParallelMapDatasetV2", {"two"}) +
       GraphNode("ahead", "PrefetchDataset", {"map", "two"}, Types()) + Iterate("ahead"));
  EXPECT_EQ(Next(brief).status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Next(brief).status().code(), StatusCode::kDeadlineExceeded);
  session_.reset();
}

// The map takes from a queue that holds two elements and is closed: the third call of its function
// ends with OutOfRange.
class EndedQueueTest : public FunctionDatasetTest {
 protected:
  void OpenMap(const std::string& op, const std::vector<std::string>& more, bool preserve) {
    const std::string map = WaitingMap(op, more);
    const std::string attr = Attr("preserve_cardinality", preserve ? "b: true" : "b: false");
    const std::string types = Attr("Tcomponents", "list { type: DT_FLOAT }");
    Open(map.substr(0, map.rfind('}')) + attr + "}\n" + FloatsConst("two_values", {5, 6}) +
         GraphNode("fill", "QueueEnqueueManyV2", {"queue", "two_values"}, types) +
         GraphNode("close", "QueueCloseV2", {"queue"}) + Iterate("map"));
    for (const char* op_name : {"fill", "close"}) {
      const Status done = session_->RunTargets({graph_.FindOperation(op_name)});
      ASSERT_TRUE(done.ok()) << done;
    }
  }
};

TEST_F(EndedQueueTest, AFunctionEndsTheDataWhereTheirNumberNeedNotStay) {
  OpenMap("MapDataset", {}, /*preserve=*/false);
  EXPECT_THAT(Drain(), ElementsAre(5, 6));
}

// With two calls under way any of them may be the one that finds the queue empty.
TEST_F(EndedQueueTest, OneOfSeveralCallsEndsTheData) {
  OpenMap("ParallelMapDatasetV2", {"two"}, /*preserve=*/false);
  EXPECT_LE(Drain().size(), 2u);
}

TEST_F(EndedQueueTest, TheEndOfAQueueIsAnErrorWhereTheirNumberStays) {
  OpenMap("MapDataset", {}, /*preserve=*/true);
  EXPECT_TRUE(Next().ok());
  EXPECT_TRUE(Next().ok());
  const Status status = Next().status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("Function invocation produced OutOfRangeError: "));
}

TEST(OneShotIteratorTest, StandsAtTheBeginningInEverySession) {
  const std::string make = OneResult(
      "make", "", "DT_VARIANT", "numbers:handle:0",
      FloatConst("node_def", "value", 7) +
          BodyNode("numbers", "TensorDataset", {"value:output:0"}, Types("Toutput_types")));
  pb::GraphDef def;
  ASSERT_TRUE(ParseGraph(
      make +
          GraphNode("iterator", "OneShotIterator", {}, Func("dataset_factory", "make") + Types()) +
          GraphNode("next", "IteratorGetNext", {"iterator"}, Types()),
      &def));
  Graph graph;
  ASSERT_TRUE(graph.ImportGraphDef(def.SerializeAsString()).ok());
  testing::InProcessCluster cluster(0, 1);
  for (int i = 0; i < 2; ++i) {
    auto session = Session::Create(graph, {.target = cluster.Target("worker", 0)});
    ASSERT_TRUE(session.ok()) << session.status();
    const Output next = graph.FindOperation("next").output(0);
    const auto first = session->Run({}, {next});
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_EQ((*first)[0].scalar<float>(), 7);
    EXPECT_EQ(session->Run({}, {next}).status().code(), StatusCode::kOutOfRange);
  }
}

}  // namespace
}  // namespace millrace
