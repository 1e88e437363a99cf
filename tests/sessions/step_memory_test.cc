// SPDX-License-Identifier: Apache-2.0
// What a step says of its memory and its time, and what happens at a limit.
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/strings.h"
#include "gmock/gmock.h"
#include "graph/graph_def_io.h"
#include "gtest/gtest.h"
#include "millrace/core.h"
#include "millrace/ops.h"
#include "millrace/step_trace.h"
#include "planner/memory.h"
#include "proto/step_stats.pb.h"
#include "runtime/registries.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr char kDevice[] = "/job:localhost/replica:0/task:0/device:CPU:0";

// Products of matrices: nothing is computed in place, and there is only one order.
struct Products {
  Products() {
    const Scope s = graph.root();
    const Output a =
        ops::RandomUniform(s.WithOpName("a"), Tensor::FromValues<int32_t>({64, 32}), kFloat);
    const Output b = ops::MatMul(s.WithOpName("b"), a, a, {.transpose_b = true});
    const Output c = ops::MatMul(s.WithOpName("c"), b, b);
    d = ops::MatMul(s.WithOpName("d"), c, a);
  }
  // When c is made: a, b and c.
  static constexpr int64_t kPeak = (64 * 32 + 2 * 64 * 64) * 4;
  Graph graph;
  Output d;
};

class StepMemoryTest : public testing::TestWithParam<int> {
 protected:
  Session Open(Graph& graph) {
    auto session = Session::Create(graph, {.inter_op_threads = GetParam(), .intra_op_threads = 1});
    EXPECT_TRUE(session.ok()) << session.status();
    return *std::move(session);
  }
  std::string Stats(Session& session, const Output& fetch) {
    RunOptions options;
    options.trace = true;
    RunMetadata metadata;
    const Output fetches[] = {fetch};
    const auto out = session.Run({}, fetches, {}, options, &metadata);
    EXPECT_TRUE(out.ok()) << out.status();
    return metadata.step_stats;
  }
};

class ScopedLimit {
 public:
  explicit ScopedLimit(int64_t bytes) {
    setenv("MILLRACE_STEP_MEMORY_LIMIT", StrCat(bytes).c_str(), 1);
  }
  ~ScopedLimit() { unsetenv("MILLRACE_STEP_MEMORY_LIMIT"); }
};

TEST_P(StepMemoryTest, ThePeakIsWhatThePlanSays) {
  Products products;
  Session session = Open(products.graph);
  const auto peak = StepPeakBytes(Stats(session, products.d));
  ASSERT_TRUE(peak.ok()) << peak.status();
  EXPECT_EQ(*peak, Products::kPeak);

  pb::GraphDef def;
  ASSERT_TRUE(def.ParseFromString(*products.graph.ToGraphDef()));
  DataflowGraph graph(&AllOps());
  ASSERT_TRUE(ImportGraphDef({}, def, &graph).ok());
  for (Node* node : graph.OpNodes()) node->set_assigned_device(kDevice);
  const auto run = PrepareRun(graph, {.fetches = {"d"}, .client_device = kDevice});
  ASSERT_TRUE(run.ok()) << run.status();
  const std::vector<TaskMemory> memory = PredictMemory(graph, *run);
  ASSERT_EQ(memory.size(), 1u);
  EXPECT_EQ(memory[0].unknown_values, 0);
  EXPECT_EQ(memory[0].in_order, *peak);
  EXPECT_LE(memory[0].step.least, *peak);
  EXPECT_GE(memory[0].step.most, *peak);
}

TEST_P(StepMemoryTest, AStepWithinItsLimitRuns) {
  Products products;
  const ScopedLimit limit(Products::kPeak);
  Session session = Open(products.graph);
  for (int i = 0; i < 30; ++i) {
    const auto out = session.Eval(products.d);
    ASSERT_TRUE(out.ok()) << out.status();
  }
}

TEST_P(StepMemoryTest, WhatGoesBeyondTheLimitFailsWithAllThereIsToSay) {
  Products products;
  const ScopedLimit limit(Products::kPeak - 1);
  Session session = Open(products.graph);
  for (int i = 0; i < 30; ++i) {
    const Status status = session.Eval(products.d).status();
    ASSERT_TRUE(errors::IsResourceExhausted(status)) << status;
    const std::string text(Message(status));
    EXPECT_THAT(text, HasSubstr(StrCat("OOM when allocating tensor with shape[64,64] and type "
                                       "float on ",
                                       kDevice, " by allocator host")));
    EXPECT_THAT(text, HasSubstr("[[{{node c}}]]"));
    EXPECT_THAT(text, HasSubstr("{{node c}} asked for 16384 bytes, where the tensors of the step "
                                "took 24576 of their limit of 40959 bytes. The largest of 2:"));
    EXPECT_THAT(text, HasSubstr("16384 bytes of {{node b}}: float [64,64]"));
    EXPECT_THAT(text, HasSubstr("8192 bytes of {{node a}}: float [64,32]"));
  }
}

TEST_P(StepMemoryTest, ALimitThatIsNoNumberIsRefused) {
  Products products;
  setenv("MILLRACE_STEP_MEMORY_LIMIT", "plenty", 1);
  const Status status = Session::Create(products.graph).status();
  unsetenv("MILLRACE_STEP_MEMORY_LIMIT");
  EXPECT_TRUE(errors::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr("plenty"));
}

TEST_P(StepMemoryTest, ATraceHasOneSliceForEachNodeThatRan) {
  Products products;
  Session session = Open(products.graph);
  const std::string serialized = Stats(session, products.d);
  pb::StepStats stats;
  ASSERT_TRUE(stats.ParseFromString(serialized));
  const std::string file = testing::TempDir() + "/step.json";
  const Status written = WriteStepTrace(serialized, file);
  ASSERT_TRUE(written.ok()) << written;
  std::ifstream in(file);
  const Json trace = Json::parse(in);

  std::map<std::string, Json> slices;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    const std::string node = event["args"]["node"];
    EXPECT_TRUE(slices.emplace(node, event).second) << node << " ran once";
  }
  ASSERT_EQ(stats.dev_stats_size(), 1);
  EXPECT_EQ(slices.size(), static_cast<std::size_t>(stats.dev_stats(0).node_stats_size()));
  for (const pb::NodeExecStats& node : stats.dev_stats(0).node_stats()) {
    ASSERT_TRUE(slices.contains(node.node_name())) << node.node_name();
    EXPECT_EQ(slices[node.node_name()]["tid"], node.thread_id());
  }
  ASSERT_TRUE(slices.contains("c"));
  EXPECT_EQ(slices["c"]["name"], "MatMul");
  EXPECT_EQ(slices["c"]["args"]["outputs"], "float [64,64]");
  EXPECT_EQ(slices["c"]["args"]["bytes"], 64 * 64 * 4);
}

TEST_P(StepMemoryTest, ATraceTellsWhatVariablesHold) {
  Graph graph;
  const Variable v = MakeVariable(graph.root(), "v", Zeros(graph.root(), {3, 2}));
  Session session = Open(graph);
  ASSERT_TRUE(session.RunTargets({v.initializer}).ok());
  const auto trace = StepTrace(Stats(session, v.read));
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->find("INVALID"), std::string::npos) << *trace;
  const Json events = Json::parse(*trace)["traceEvents"];
  const auto of_v = std::find_if(events.begin(), events.end(), [](const Json& event) {
    return event["ph"] == "X" && event["args"]["node"] == "v";
  });
  ASSERT_NE(of_v, events.end());
  EXPECT_EQ((*of_v)["args"]["outputs"], "float [3,2]");
  EXPECT_EQ((*of_v)["args"]["output_bytes"], 24);
}

TEST_P(StepMemoryTest, WhatIsNoStatisticsIsSaid) {
  EXPECT_TRUE(errors::IsInvalidArgument(StepTrace("\xff\xff\xff").status()));
  EXPECT_TRUE(errors::IsInvalidArgument(StepPeakBytes("\xff\xff\xff").status()));
  const Status written = WriteStepTrace("", "/no/such/folder/step.json");
  EXPECT_TRUE(errors::IsNotFound(written)) << written;
  EXPECT_THAT(std::string(Message(written)), HasSubstr("/no/such/folder/step.json"));
}

INSTANTIATE_TEST_SUITE_P(Threads, StepMemoryTest, testing::Values(-1, 2));

}  // namespace
}  // namespace millrace
