// SPDX-License-Identifier: Apache-2.0
// What is told of nodes within functions: in errors, and among the statistics of a step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/strings.h"
#include "millrace/core.h"
#include "millrace/ops.h"
#include "proto/graph.pb.h"
#include "proto/step_stats.pb.h"
#include "tests/functions/function_text.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;

constexpr char kCpu[] = "/job:localhost/replica:0/task:0/device:CPU:0";
const char kNoInline[] = " attr { key: '_noinline' value { b: true } }";

int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

std::string Placeholder() {
  return GraphNode("x", "Placeholder", {}, Attr("dtype", "type: DT_FLOAT"));
}

// Inner checks its argument and doubles it; Outer calls it.
std::string Functions() {
  return FunctionText("Inner", {"x"}, {{"y", "sum:z:0"}},
                      BodyNode("check", "CheckNumerics", {"x"},
                               FloatT() + Attr("message", "s: 'look here'")) +
                          BodyNode("sum", "AddV2", {"check:output:0", "check:output:0"}, FloatT()),
                      kNoInline) +
         FunctionText(
             "Outer", {"x"}, {{"y", "inner:output:0"}},
             BodyNode("inner", "PartitionedCall", {"x"}, FloatLists(1, 1) + Func("f", "Inner")),
             kNoInline);
}

class ReportsTest : public ::testing::Test {
 protected:
  void Open(const std::string& text) {
    pb::GraphDef def;
    ASSERT_TRUE(ParseGraph(text, &def)) << text;
    const Status imported = graph_.ImportGraphDef(def.SerializeAsString());
    ASSERT_TRUE(imported.ok()) << imported;
    Open();
  }
  void Open() {
    StatusOr<Session> session = Session::Create(graph_);
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = std::make_unique<Session>(*std::move(session));
  }
  StatusOr<std::vector<Tensor>> Run(const std::string& fetch, float x, RunMetadata* metadata) {
    const Feed feeds[] = {{graph_.FindOperation("x").output(0), Tensor::Scalar<float>(x)}};
    const Output fetches[] = {graph_.FindOperation(fetch).output(0)};
    RunOptions options;
    options.trace = metadata != nullptr;
    return session_->Run(feeds, fetches, {}, options, metadata);
  }

  Graph graph_;
  std::unique_ptr<Session> session_;
};

TEST_F(ReportsTest, AnErrorNamesTheNodeItsOpItsDeviceAndTheCallsOnce) {
  Open(Functions() + Placeholder() +
       GraphNode("outer", "PartitionedCall", {"x"}, FloatLists(1, 1) + Func("f", "Outer")));
  const auto result = Run("outer", std::numeric_limits<float>::quiet_NaN(), nullptr);
  ASSERT_FALSE(result.ok());
  const std::string text(result.status().message());
  for (const std::string node : {"check", "inner", "outer"}) {
    EXPECT_EQ(Count(text, StrCat("[[{{node ", node, "}}]]")), 1) << text;
  }
  EXPECT_EQ(Count(text, StrCat("(op CheckNumerics on ", kCpu, ")")), 1) << text;
  EXPECT_EQ(Count(text, "look here"), 1) << text;
  EXPECT_EQ(Count(text, "(op "), 1) << text;
}

TEST_F(ReportsTest, AnErrorNamesTheLineThatMadeTheNode) {
  const Scope root = graph_.root();
  const Output x = millrace::Placeholder(root.WithOpName("x"), kFloat, {});
  const int line = __LINE__ - 1;
  const Output y = ops::Neg(root.WithOpName("y"), x);
  Open();
  const Output fetches[] = {y};
  const auto result = session_->Run({}, fetches, {}, {}, nullptr);
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(std::string(result.status().message()),
              HasSubstr(StrCat("[[{{node x}}]]\n\t (op Placeholder on ", kCpu,
                               ", made at reports_test.cc:", line, ")")));
}

TEST_F(ReportsTest, StatisticsHaveTheNodesOfFunctionsUnderTheCall) {
  Open(Functions() + Placeholder() +
       GraphNode("outer", "PartitionedCall", {"x"}, FloatLists(1, 1) + Func("f", "Outer")) +
       GraphNode("again", "PartitionedCall", {"outer"}, FloatLists(1, 1) + Func("f", "Inner")));
  for (int i = 0; i < 2; ++i) {  // functions that are warm, too
    RunMetadata metadata;
    const auto result = Run("again", 1, &metadata);
    ASSERT_TRUE(result.ok()) << result.status();
    pb::StepStats stats;
    ASSERT_TRUE(stats.ParseFromString(metadata.step_stats));
    ASSERT_EQ(stats.dev_stats_size(), 1);
    EXPECT_EQ(stats.dev_stats(0).device(), kCpu);
    std::multiset<std::string> names;
    for (const pb::NodeExecStats& node : stats.dev_stats(0).node_stats()) {
      names.insert(node.node_name());
      EXPECT_TRUE(stats.dev_stats(0).thread_names().contains(node.thread_id()));
      EXPECT_GE(node.op_end_rel_nanos(), node.op_start_rel_nanos());
    }
    EXPECT_THAT(names, IsSupersetOf({"outer", "outer/inner", "outer/inner/check", "outer/inner/sum",
                                     "again", "again/check", "again/sum"}));
    EXPECT_EQ(names.count("outer/inner/sum"), 1u);
  }
  ASSERT_TRUE(Run("again", 1, nullptr).ok());  // and without
}

TEST_F(ReportsTest, EveryIterationOfALoopIsThere) {
  const std::string goes =
      "library { function { signature { name: 'Goes' input_arg { name: 'x' type: DT_FLOAT }"
      " output_arg { name: 'y' type: DT_BOOL } }" +
      FloatConst("node_def", "limit", 8) +
      BodyNode("less", "Less", {"x", "limit:output:0"}, FloatT()) +
      " ret { key: 'y' value: 'less:z:0' } } }\n";
  Open(goes + Functions() + Placeholder() +
       GraphNode("loop", "While", {"x"},
                 Attr("T", "list { type: DT_FLOAT }") + Func("cond", "Goes") +
                     Func("body", "Inner") + Attr("_lower_using_switch_merge", "b: false")));
  RunMetadata metadata;
  const auto result = Run("loop", 1, &metadata);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ((*result)[0].scalar<float>(), 8);
  pb::StepStats stats;
  ASSERT_TRUE(stats.ParseFromString(metadata.step_stats));
  std::multiset<std::string> names;
  for (const auto& device : stats.dev_stats()) {
    for (const pb::NodeExecStats& node : device.node_stats()) names.insert(node.node_name());
  }
  EXPECT_EQ(names.count("loop"), 1u);
  EXPECT_EQ(names.count("loop/sum"), 3u);
  EXPECT_EQ(names.count("loop/less"), 4u);
}

// Clients look for these words.
TEST_F(ReportsTest, FunctionsThatDoNotFitTheirNodesAreNamedAsTensorFlowDoes) {
  const std::string two = FunctionText("Two", {"x"}, {{"y", "sum:z:0"}, {"z", "sum:z:0"}},
                                       BodyNode("sum", "AddV2", {"x", "x"}, FloatT()));
  const std::string goes =
      "library { function { signature { name: 'Goes' input_arg { name: 'x' type: DT_FLOAT }"
      " output_arg { name: 'y' type: DT_BOOL } }" +
      BodyNode("less", "Less", {"x", "x"}, FloatT()) + " ret { key: 'y' value: 'less:z:0' } } }\n";
  const auto loop = [](const std::string& name, const std::string& condition,
                       const std::string& body) {
    return GraphNode(name, "While", {"x"},
                     Attr("T", "list { type: DT_FLOAT }") + Func("cond", condition) +
                         Func("body", body) + Attr("_lower_using_switch_merge", "b: false"));
  };
  Open(
      two + goes + Functions() + Placeholder() + loop("condition", "Two", "Inner") +
      loop("body", "Goes", "Two") +
      FunctionText("Given", {"x", "dy"}, {{"y", "sum:z:0"}, {"z", "sum:z:0"}},
                   BodyNode("sum", "AddV2", {"x", "dy"}, FloatT())) +
      "library { gradient { function_name: 'Inner' gradient_func: 'Given' } }\n" +
      GraphNode("gradient", "SymbolicGradient", {"x", "x"}, FloatLists(2, 1) + Func("f", "Inner")));
  const std::pair<const char*, const char*> cases[] = {
      {"condition", "Expected a single scalar return value from WhileOp cond, got 2 tensors."},
      {"body", "While loop body returned 2 arguments. Expected: 1."},
      {"gradient", "SymGrad expects to return 1 tensor(s), but get 2 tensor(s) instead."}};
  for (const auto& [node, text] : cases) {
    const auto result = Run(node, 1, nullptr);
    EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument) << node;
    EXPECT_THAT(std::string(result.status().message()), HasSubstr(text));
  }
}

}  // namespace
}  // namespace millrace
