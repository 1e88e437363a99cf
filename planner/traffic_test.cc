// SPDX-License-Identifier: Apache-2.0
#include "planner/traffic.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "base/errors.h"
#include "base/strings.h"
#include "graph/graph_def_io.h"
#include "ops/all_ops.h"
#include "planner/memory.h"
#include "planner/plan_report.h"
#include "planner/what_if.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kPs0[] = "/job:ps/replica:0/task:0/device:CPU:0";
constexpr char kPs1[] = "/job:ps/replica:0/task:1/device:CPU:0";
constexpr char kWorker[] = "/job:worker/replica:0/task:0/device:CPU:0";

class TrafficTest : public testing::Test {
 protected:
  TrafficTest() : graph_(&ops_) { EXPECT_TRUE(RegisterAllOps(ops_).ok()); }

  // In `text`, PS, P1 and WK stand for the devices, OF_FLOATS and DTYPE for attributes.
  void Import(std::string text) {
    const auto replace = [&text](const std::string& from, const std::string& to) {
      for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
        text.replace(at, from.size(), to);
      }
    };
    replace("PS", StrCat("device: '", kPs0, "'"));
    replace("P1", StrCat("device: '", kPs1, "'"));
    replace("WK", StrCat("device: '", kWorker, "'"));
    replace("OF_FLOATS", "attr { key: 'T' value { type: DT_FLOAT } }");
    replace("DTYPE", "attr { key: 'dtype' value { type: DT_FLOAT } }");
    pb::GraphDef def;
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &def));
    const Status status = ImportGraphDef({.devices_are_assigned = true}, def, &graph_);
    ASSERT_TRUE(status.ok()) << status;
  }

  std::vector<Transfer> Predict(RunRequest request = {}) {
    request.client_device = kWorker;
    StatusOr<PlannedRun> run = PrepareRun(graph_, request);
    EXPECT_TRUE(run.ok()) << run.status();
    if (!run.ok()) return {};
    run_ = std::make_unique<PlannedRun>(*std::move(run));
    return PredictTransfers(*run_);
  }

  OpRegistry ops_;
  DataflowGraph graph_;
  std::unique_ptr<PlannedRun> run_;
};

std::string Line(const Transfer& t) {
  const auto job = [](const std::string& device) {
    return device == kClient ? device : device.substr(5, device.find("/replica") - 5);
  };
  return StrCat(t.tensor, " ", job(t.from), ">", job(t.to), " ", ToText(t.bytes),
                t.why.empty() ? "" : StrCat(", ", t.why));
}

std::vector<std::string> Lines(const std::vector<Transfer>& transfers) {
  std::vector<std::string> lines;
  for (const Transfer& transfer : transfers) lines.push_back(Line(transfer));
  return lines;
}

constexpr char kLinear[] = R"(
  node { name: 'w' op: 'VariableV2' PS DTYPE
         attr { key: 'shape' value { shape { dim { size: 3 } dim { size: 2 } } } } }
  node { name: 'x' op: 'Placeholder' WK DTYPE
         attr { key: 'shape' value { shape { dim { size: -1 } dim { size: 3 } } } } }
  node { name: 'y' op: 'MatMul' input: 'x' input: 'w' WK OF_FLOATS }
  node { name: 'z' op: 'Identity' input: 'y' PS OF_FLOATS })";

TEST_F(TrafficTest, StaticShapesGiveExactBytesAndOpenOnesBounds) {
  Import(kLinear);
  EXPECT_THAT(Lines(Predict({.feeds = {"x"}, .targets = {"z"}})),
              ElementsAre("w:0 ps>worker 24", "y:0 worker>ps at least 0, its shape is [?,2]",
                          "x:0 client>worker at least 0, its shape is [?,3]"));
}

TEST_F(TrafficTest, AShapeGivenForAFeedIsPropagated) {
  Import(kLinear);
  RunRequest request{.feeds = {"x"}, .fetches = {"y"}, .targets = {"z"}};
  request.shapes["x:0"] = PartialShape({5, 3});
  EXPECT_THAT(Lines(Predict(request)), ElementsAre("w:0 ps>worker 24", "y:0 worker>ps 40",
                                                   "y:0 worker>client 40", "x:0 client>worker 60"));
  request.shapes["x:0"] = PartialShape({5, 4});
  request.client_device = kWorker;
  EXPECT_EQ(PrepareRun(graph_, request).status().code(), StatusCode::kInvalidArgument);
  request.feeds.clear();
  EXPECT_THAT(std::string(Message(PrepareRun(graph_, request).status())),
              HasSubstr("a shape is given for x:0, which is not fed"));
}

TEST_F(TrafficTest, WhatTheRunDoesNotNeedIsNotSent) {
  Import(kLinear);
  EXPECT_THAT(Lines(Predict({.targets = {"w"}})), IsEmpty());
}

TEST_F(TrafficTest, AValueIsSentOnceToEachTaskHoweverManyReadIt) {
  Import(R"(
    node { name: 'a' op: 'Placeholder' PS DTYPE attr { key: 'shape' value { shape { dim { size: 4 } } } } }
    node { name: 'b' op: 'Neg' input: 'a' WK OF_FLOATS }
    node { name: 'c' op: 'Abs' input: 'a' WK OF_FLOATS }
    node { name: 'd' op: 'Abs' input: 'a' P1 OF_FLOATS }
    node { name: 'e' op: 'NoOp' input: '^b' PS })");
  EXPECT_THAT(Lines(Predict()), ElementsAre("a:0 ps>ps 16", "a:0 ps>worker 16", "^b worker>ps 0"));
}

constexpr char kBranch[] = R"(
  node { name: 'p' op: 'Placeholder' WK attr { key: 'dtype' value { type: DT_BOOL } }
         attr { key: 'shape' value { shape { } } } }
  node { name: 'pred' op: 'Identity' input: 'p' WK attr { key: 'T' value { type: DT_BOOL } } }
  node { name: 'a' op: 'Placeholder' WK DTYPE attr { key: 'shape' value { shape { dim { size: 4 } } } } }
  node { name: 's' op: 'Switch' input: 'a' input: 'pred' WK OF_FLOATS }
  node { name: 'no' op: 'Neg' input: 's:0' PS OF_FLOATS }
  node { name: 'yes' op: 'Abs' input: 's:1' WK OF_FLOATS }
  node { name: 'm' op: 'Merge' input: 'no' input: 'yes' WK OF_FLOATS
         attr { key: 'N' value { i: 2 } } }
  node { name: 'after' op: 'Neg' input: 'm' PS OF_FLOATS })";

TEST_F(TrafficTest, ABranchDecidesWhetherBytesTravelAndMergedOutcomesAreCertain) {
  Import(kBranch);
  EXPECT_THAT(Lines(Predict({.feeds = {"a", "p"}, .targets = {"after"}})),
              ElementsAre("no:0 ps>worker 0 to 16, a branch decides", "m:0 worker>ps 16",
                          "s:0 worker>ps 0 to 16, a branch decides", "a:0 client>worker 16",
                          "p:0 client>worker 1"));
}

constexpr char kLoop[] = R"(
  node { name: 'a' op: 'Placeholder' WK DTYPE attr { key: 'shape' value { shape { } } } }
  node { name: 'enter' op: 'Enter' input: 'a' WK OF_FLOATS
         attr { key: 'frame_name' value { s: 'loop' } } }
  node { name: 'merge' op: 'Merge' input: 'enter' input: 'next' WK OF_FLOATS
         attr { key: 'N' value { i: 2 } } }
  node { name: 'less' op: 'Less' input: 'merge' input: 'merge' WK OF_FLOATS }
  node { name: 'cond' op: 'LoopCond' input: 'less' WK }
  node { name: 's' op: 'Switch' input: 'merge' input: 'cond' WK OF_FLOATS }
  node { name: 'body' op: 'Neg' input: 's:1' PS OF_FLOATS }
  node { name: 'next' op: 'NextIteration' input: 'body' WK OF_FLOATS }
  node { name: 'exit' op: 'Exit' input: 's:0' WK OF_FLOATS }
  node { name: 'after' op: 'ZerosLike' input: 'exit' PS OF_FLOATS })";

TEST_F(TrafficTest, WhatALoopSendsHasNoUpperBound) {
  Import(kLoop);
  for (const Transfer& t : Predict({.feeds = {"a"}, .targets = {"after"}})) {
    if (t.from == kClient || t.tensor.starts_with("^")) continue;
    if (t.tensor == "exit:0") {
      EXPECT_EQ(t.how_often, HowOften::kOnce);
      continue;
    }
    EXPECT_EQ(t.how_often, HowOften::kLoop) << t.tensor;
    EXPECT_EQ(t.bytes.most, kUnbounded) << t.tensor;
    EXPECT_THAT(t.why, HasSubstr("it is in a loop"));
  }
}

TEST_F(TrafficTest, MemoryIsVariablesAndTheValuesOfAStep) {
  Import(kLinear);
  RunRequest request{.feeds = {"x"}, .targets = {"z"}};
  request.shapes["x:0"] = PartialShape({5, 3});
  Predict(request);
  const std::vector<TaskMemory> memory = PredictMemory(graph_, *run_);
  ASSERT_EQ(memory.size(), 2u);
  EXPECT_EQ(memory[0].variables.task, "/job:ps/replica:0/task:0");
  EXPECT_EQ(memory[0].variables.bytes, (ByteRange{24, 24}));
  EXPECT_EQ(memory[0].in_order, 40);  // y, received; z shares its memory
  EXPECT_EQ(memory[1].variables.bytes, (ByteRange{0, 0}));
  EXPECT_EQ(memory[1].in_order, 60 + 40);  // x and y; w is a reference
  EXPECT_EQ(memory[1].step.most, 60 + 40);
}

// Variables of 400, 4, 400 and 4 bytes.
constexpr char kFour[] = R"(
  node { name: 'w1' op: 'VariableV2' PS DTYPE attr { key: 'shape' value { shape { dim { size: 100 } } } } }
  node { name: 'b1' op: 'VariableV2' P1 DTYPE attr { key: 'shape' value { shape { dim { size: 1 } } } } }
  node { name: 'w2' op: 'VariableV2' PS DTYPE attr { key: 'shape' value { shape { dim { size: 100 } } } } }
  node { name: 'b2' op: 'VariableV2' P1 DTYPE attr { key: 'shape' value { shape { dim { size: 1 } } } } }
  node { name: 'v' op: 'Placeholder' WK DTYPE attr { key: 'shape' value { shape { dim { size: 100 } } } } }
  node { name: 'set' op: 'Assign' input: 'w2' input: 'v' PS OF_FLOATS }
  node { name: 'read' op: 'Identity' input: 'w2' PS OF_FLOATS })";

TEST_F(TrafficTest, AHotSpotIsMeasuredAgainstTheMean) {
  Import(kFour);
  Predict();
  const PlanReport report = MakePlanReport(graph_, *run_);
  EXPECT_EQ(report.num_ps, 2);
  EXPECT_EQ(report.ps_variables.most, 800);
  EXPECT_NEAR(report.ps_variables.ratio, 800.0 / 404, 1e-9);
  EXPECT_NEAR(report.ps_traffic.ratio, 2, 1e-9);  // all of it
}

TEST_F(TrafficTest, SpreadingByBytesEvensOutAndKeepsTogetherWhatBelongsTogether) {
  Import(kFour);
  SpreadOverPs(2, PsSpread::kGreedyBytes, &graph_);
  const auto device = [&](const char* name) { return graph_.FindNode(name)->requested_device(); };
  EXPECT_EQ(device("w1"), kPs0);
  EXPECT_EQ(device("w2"), kPs1);
  EXPECT_EQ(device("set"), kPs1);
  EXPECT_EQ(device("read"), kPs1);
  EXPECT_EQ(device("b1"), kPs0);
  EXPECT_EQ(device("b2"), kPs1);
  EXPECT_EQ(device("v"), kWorker);
  SpreadOverPs(3, PsSpread::kRoundRobin, &graph_);
  EXPECT_EQ(device("w2"), "/job:ps/replica:0/task:2/device:CPU:0");
  EXPECT_EQ(device("b2"), kPs0);
}

TEST_F(TrafficTest, SendingALargeVariableForAGatherIsWarnedOf) {
  Import(R"(
    node { name: 'table' op: 'VariableV2' PS DTYPE
           attr { key: 'shape' value { shape { dim { size: 1000 } dim { size: 1000 } } } } }
    node { name: 'ids' op: 'Placeholder' WK attr { key: 'dtype' value { type: DT_INT32 } } }
    node { name: 'rows' op: 'Gather' input: 'table' input: 'ids' WK
           attr { key: 'Tparams' value { type: DT_FLOAT } }
           attr { key: 'Tindices' value { type: DT_INT32 } } })");
  Predict({.feeds = {"ids"}, .targets = {"rows"}});
  const std::string text = ReportToText(MakePlanReport(graph_, *run_));
  EXPECT_THAT(text, HasSubstr("warning: table:0 (4000000 bytes) is sent from ps:0 to worker:0 for "
                              "rows, which reads only rows of it"));
}

}  // namespace
}  // namespace millrace
