// SPDX-License-Identifier: Apache-2.0
#include "distributed_runtime/pages/cluster_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/strings.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr char kPs[] = "/job:ps/replica:0/task:0", kWorker[] = "/job:worker/replica:0/task:0",
               kOther[] = "/job:worker/replica:0/task:1";
constexpr int64_t kEpoch = 1'700'000'000'000'000'000, kMs = 1'000'000, kSecond = 1'000'000'000;

pb::NodeExecStats* AddNode(pb::TracedPart* part, const std::string& name, const std::string& op,
                           int64_t start, int64_t end) {
  if (part->stats().dev_stats().empty()) {
    part->mutable_stats()->add_dev_stats()->set_device(part->task() + "/device:CPU:0");
  }
  pb::NodeExecStats* const node = part->mutable_stats()->mutable_dev_stats(0)->add_node_stats();
  node->set_node_name(name);
  node->set_timeline_label(name + " = " + op + "()");
  node->set_all_start_nanos(start);
  node->set_scheduled_nanos(start);
  node->set_all_end_rel_nanos(end - start);
  return node;
}

pb::TracedPart* AddPart(pb::TracedStep* step, const std::string& task, int64_t sent,
                        int64_t answered) {
  pb::TracedPart* const part = step->add_part();
  part->set_task(task);
  part->set_sent_nanos(sent);
  part->set_answered_nanos(answered);
  return part;
}

// One step of the worker, as it is by a perfect clock: the ps reads a variable (1 ms) and sends it,
// the worker waits for it, multiplies (4 ms) and ends.
pb::TracedStep MakeStep(const std::string& worker, int64_t begin, int64_t ps_ahead,
                        int64_t worker_ahead) {
  pb::TracedStep step;
  step.set_session("s");
  step.set_step_id(begin);
  pb::TracedPart* const ps =
      AddPart(&step, kPs, begin + worker_ahead, begin + 3 * kMs + worker_ahead);
  const int64_t at_ps = begin + ps_ahead;
  AddNode(ps, "w", "VariableV2", at_ps + 1 * kMs, at_ps + 2 * kMs);
  AddNode(ps, "w_S3", "_Send", at_ps + 2 * kMs, at_ps + 2 * kMs + 1000);
  pb::TracedPart* const own =
      AddPart(&step, worker, begin + worker_ahead, begin + 8 * kMs + worker_ahead);
  const int64_t here = begin + worker_ahead;
  AddNode(own, "w_S4", "_Recv", here + 500'000, here + 3 * kMs);
  AddNode(own, "product", "MatMul", here + 3 * kMs, here + 7 * kMs);
  return step;
}

TEST(ClusterTraceTest, SkewOfFiveSecondsIsRecoveredAndNoArrowRunsBackwards) {
  for (const int64_t skew : {-5 * kSecond, -3 * kMs, int64_t{0}, 40 * kMs, 5 * kSecond}) {
    std::vector<pb::TraceResponse> traces(2);
    traces[0].set_task(kWorker);
    traces[1].set_task(kOther);
    for (int i = 0; i < 5; ++i) {
      *traces[0].add_step() = MakeStep(kWorker, kEpoch + i * 10 * kMs, skew, 0);
      // A second master, whose clock differs from both.
      *traces[1].add_step() = MakeStep(kOther, kEpoch + i * 10 * kMs + kMs, skew, -skew / 2);
    }
    const auto ahead = AlignClocks(traces);
    EXPECT_EQ(ahead.at(kWorker), 0);
    EXPECT_NEAR(static_cast<double>(ahead.at(kPs)), static_cast<double>(skew), 2.0 * kMs);
    EXPECT_NEAR(static_cast<double>(ahead.at(kOther)), static_cast<double>(-skew / 2), 3.0 * kMs);
    SetClocks(ahead, &traces);
    int arrows = 0;
    for (const pb::TraceResponse& trace : traces) {
      for (const pb::TracedStep& step : trace.step()) {
        for (const TracedTransfer& transfer : FindTransfers(step)) {
          ++arrows;
          EXPECT_EQ(transfer.from_task, kPs);
          EXPECT_EQ(transfer.to_task, trace.task());
          EXPECT_LE(transfer.send->all_start_nanos(),
                    transfer.receive->all_start_nanos() + transfer.receive->all_end_rel_nanos());
        }
        for (const pb::TracedPart& part : step.part()) {
          for (const pb::NodeExecStats& node : part.stats().dev_stats(0).node_stats()) {
            EXPECT_GE(node.all_start_nanos(), part.sent_nanos());
            EXPECT_LE(node.all_start_nanos() + node.all_end_rel_nanos(), part.answered_nanos());
          }
        }
      }
    }
    EXPECT_EQ(arrows, 10);
  }
}

TEST(ClusterTraceTest, AReceiveIsJoinedToTheSendRightBeforeItOfTheSameNode) {
  pb::TracedStep step;
  pb::TracedPart* const ps = AddPart(&step, kPs, 0, 10);
  AddNode(ps, "a_S1", "_Send", 1, 2);
  AddNode(ps, "a_S3", "_HostSend", 1, 2);
  AddNode(ps, "b_S5", "_Send", 1, 2);
  AddNode(ps, "c", "Identity", 1, 2);
  pb::TracedPart* const worker = AddPart(&step, kWorker, 0, 10);
  AddNode(worker, "a_S4", "_HostRecv", 2, 3);
  AddNode(worker, "x_S9", "_Recv", 2, 3);  // of the client
  AddNode(worker, "b_S2", "_Recv", 2, 3);
  AddNode(worker, "plain", "_Recv", 2, 3);
  const std::vector<TracedTransfer> transfers = FindTransfers(step);
  ASSERT_EQ(transfers.size(), 1u);
  EXPECT_EQ(transfers[0].send->node_name(), "a_S3");
  EXPECT_EQ(transfers[0].receive->node_name(), "a_S4");
}

TEST(ClusterTraceTest, TimeIsSharedByWhatRanAndTheAdviceNamesTheLargestShare) {
  std::vector<pb::TraceResponse> traces(1);
  traces[0].set_task(kWorker);
  *traces[0].add_step() = MakeStep(kWorker, kEpoch, 0, 0);
  const std::vector<TimeShares> shares = ShareTime(traces);
  ASSERT_EQ(shares.size(), 2u);
  EXPECT_EQ(shares[0].task, kPs);
  EXPECT_NEAR(shares[0].compute, 1.001 / 8, 1e-6);
  EXPECT_EQ(shares[1].task, kWorker);
  EXPECT_NEAR(shares[1].seconds, 8e-3, 1e-9);
  EXPECT_NEAR(shares[1].wait, 1.5 / 8, 1e-6) << "until it was sent";
  EXPECT_NEAR(shares[1].transfer, 1.0 / 8, 1e-6);
  EXPECT_NEAR(shares[1].compute, 4.0 / 8, 1e-6);
  EXPECT_NEAR(shares[1].rest(), 1.5 / 8, 1e-6);
  EXPECT_THAT(Advice(shares[1]), HasSubstr("compute dominates"));
  EXPECT_THAT(Advice(shares[0]), HasSubstr("time between nodes dominates"));
  EXPECT_THAT(Advice({"t", 1, 0.1, 0.5, 0.1, 0.1}), HasSubstr("reading data dominates"));
  EXPECT_THAT(Advice({"t", 1, 0.1, 0.1, 0.5, 0.1}), HasSubstr("transfer dominates"));
  EXPECT_THAT(Advice({"t", 1, 0.1, 0.1, 0.1, 0.5}), HasSubstr("waiting for other tasks"));
}

TEST(ClusterTraceTest, CollectivesWaitForTheLastMemberAndAreNoWork) {
  // Each worker is the master of its own step. The first one joins at 1 ms, the second at 4 ms.
  std::vector<pb::TraceResponse> traces(2);
  const std::string workers[] = {kWorker, kOther};
  for (int i = 0; i < 2; ++i) {
    traces[i].set_task(workers[i]);
    pb::TracedStep* const step = traces[i].add_step();
    pb::TracedPart* const part = AddPart(step, workers[i], kEpoch, kEpoch + 8 * kMs);
    AddNode(part, "sum", "CollectiveReduceV2", kEpoch + (i == 0 ? 1 : 4) * kMs, kEpoch + 6 * kMs);
    // Another one of this op, whose namesake is earlier on the other task.
    AddNode(part, "mean", "CollectiveReduceV2", kEpoch + (i == 0 ? 6 : 5) * kMs, kEpoch + 7 * kMs);
  }
  std::vector<TimeShares> shares = ShareTime(traces);
  ASSERT_EQ(shares.size(), 2u);
  for (const TimeShares& of_task : shares) EXPECT_EQ(of_task.compute, 0) << of_task.task;
  EXPECT_NEAR(shares[0].wait, 3.0 / 8, 1e-6);
  EXPECT_NEAR(shares[0].transfer, 3.0 / 8, 1e-6);
  // While one is on its way nothing is idle, whoever the other one waits for.
  EXPECT_NEAR(shares[1].transfer, 3.0 / 8, 1e-6);
  EXPECT_NEAR(shares[1].wait, 0, 1e-6);
  EXPECT_THAT(Advice(shares[1]), HasSubstr("time between nodes"));
  // Of its others nothing is known.
  traces.pop_back();
  shares = ShareTime(traces);
  ASSERT_EQ(shares.size(), 1u);
  EXPECT_NEAR(shares[0].wait, 6.0 / 8, 1e-6);
  // Members of one session have names of their own.
  pb::TracedStep* const step = traces[0].mutable_step(0);
  AddNode(AddPart(step, kOther, kEpoch, kEpoch + 8 * kMs), "sum_1", "CollectiveReduceV2",
          kEpoch + 3 * kMs, kEpoch + 6 * kMs);
  shares = ShareTime(traces);
  ASSERT_EQ(shares.size(), 2u);
  EXPECT_NEAR(shares[0].wait, 2.0 / 8, 1e-6);
  EXPECT_NEAR(shares[0].transfer, 4.0 / 8, 1e-6);
  EXPECT_NEAR(shares[1].transfer, 3.0 / 8, 1e-6) << "it was the last one";
}

TEST(ClusterTraceTest, TheStragglerAndTheCriticalPathAreNamed) {
  const pb::TracedStep step = MakeStep(kWorker, kEpoch, 0, 0);
  int64_t cost = 0;
  EXPECT_EQ(Straggler(step, &cost), kWorker);
  // Its product and the time until it had answered, beyond the variable and what was before that.
  EXPECT_EQ(cost, (4 + 1) * kMs - (2 * kMs + 1000));
  std::vector<std::string> names;
  for (const CriticalNode& critical : CriticalPath(step))
    names.push_back(critical.node->node_name());
  EXPECT_THAT(names, ::testing::ElementsAre("w", "w_S3", "w_S4", "product"));
  pb::TracedStep alone;
  AddPart(&alone, kWorker, 0, 10);
  EXPECT_EQ(Straggler(alone, &cost), "");
  EXPECT_TRUE(CriticalPath(alone).empty());
}

// One step of a ps that waits for the gradients of two workers, which take so long.
pb::TracedStep MakeGradientStep(int64_t first, int64_t second, int64_t at_ps) {
  pb::TracedStep step;
  const int64_t last = std::max(first, second), end = 2 * kMs + last + at_ps;
  pb::TracedPart* const ps = AddPart(&step, kPs, kEpoch, kEpoch + end + 5 * kMs);
  int number = 1;
  for (const auto& [worker, nanos] : {std::pair(kWorker, first), std::pair(kOther, second)}) {
    pb::TracedPart* const part = AddPart(&step, worker, kEpoch, kEpoch + nanos + 2 * kMs);
    const std::string name = StrCat("gradient_", number);
    AddNode(part, name, "MatMul", kEpoch + kMs, kEpoch + kMs + nanos);
    // Its record ends after the value has come.
    AddNode(part, StrCat(name, "_S", 2 * number), "_Send", kEpoch + kMs + nanos,
            kEpoch + kMs + nanos + 900'000);
    AddNode(ps, StrCat(name, "_S", 2 * number + 1), "_Recv", kEpoch,
            kEpoch + kMs + nanos + 500'000);
    ++number;
  }
  AddNode(ps, "sum", "AddN", kEpoch + 2 * kMs + last, kEpoch + end);
  return step;
}

TEST(ClusterTraceTest, TheSlowTaskIsTheStragglerAndNotTheOneThatWaitedForIt) {
  int64_t cost = 0;
  EXPECT_EQ(Straggler(MakeGradientStep(20 * kMs, 500 * kMs, kMs), &cost), kOther);
  EXPECT_NEAR(static_cast<double>(cost), 480.0 * kMs, 2.0 * kMs) << "beyond the other worker";
  EXPECT_EQ(Straggler(MakeGradientStep(500 * kMs, 20 * kMs, kMs), &cost), kWorker);
  EXPECT_NEAR(static_cast<double>(cost), 480.0 * kMs, 2.0 * kMs);
  EXPECT_EQ(Straggler(MakeGradientStep(20 * kMs, 20 * kMs, 500 * kMs), &cost), kPs);
  EXPECT_NEAR(static_cast<double>(cost), 485.0 * kMs, 2.0 * kMs);
}

TEST(ClusterTraceTest, WhoStandsStillBetweenTwoNodesIsTheStraggler) {
  pb::TracedStep step = MakeGradientStep(20 * kMs, 20 * kMs, kMs);
  pb::TracedPart* const part = step.mutable_part(2);
  ASSERT_EQ(part->task(), kOther);
  // Between its gradient and the send it was stopped.
  pb::NodeExecStats* const send =
      part->mutable_stats()->mutable_dev_stats(0)->mutable_node_stats(1);
  send->set_all_start_nanos(send->all_start_nanos() + kSecond);
  pb::DeviceStepStats* const ps = step.mutable_part(0)->mutable_stats()->mutable_dev_stats(0);
  ps->mutable_node_stats(1)->set_all_end_rel_nanos(ps->node_stats(1).all_end_rel_nanos() + kSecond);
  ps->mutable_node_stats(2)->set_all_start_nanos(ps->node_stats(2).all_start_nanos() + kSecond);
  step.mutable_part(0)->set_answered_nanos(step.part(0).answered_nanos() + kSecond);
  int64_t cost = 0;
  EXPECT_EQ(Straggler(step, &cost), kOther);
  EXPECT_NEAR(static_cast<double>(cost), 1000.0 * kMs, 5.0 * kMs);
}

TEST(ClusterTraceTest, WhatWaitsInAQueueOrForAnAccumulatorIsNoWork) {
  for (const char* op :
       {"_Recv", "_HostRecv", "QueueDequeueV2", "QueueDequeueManyV2", "QueueEnqueueV2",
        "AccumulatorTakeGradient", "SparseAccumulatorTakeGradient",
        "ResourceAccumulatorTakeGradient", "BarrierTakeMany", "Unstage", "MutexLock",
        "_StalenessEnter", "RemoteCall"}) {
    std::vector<pb::TraceResponse> traces(1);
    traces[0].set_task(kWorker);
    pb::TracedStep* const step = traces[0].add_step();
    pb::TracedPart* const ps = AddPart(step, kPs, kEpoch, kEpoch + 100 * kMs);
    AddNode(ps, "waits", op, kEpoch, kEpoch + 99 * kMs);
    // A branch takes as long as what is in it.
    AddNode(ps, "branch", "If", kEpoch, kEpoch + 99 * kMs);
    AddNode(ps, "branch/waits", op, kEpoch, kEpoch + 99 * kMs);
    pb::TracedPart* const worker = AddPart(step, kWorker, kEpoch, kEpoch + 40 * kMs);
    AddNode(worker, "product", "MatMul", kEpoch, kEpoch + 40 * kMs);
    const std::vector<TimeShares> shares = ShareTime(traces);
    ASSERT_EQ(shares.size(), 2u);
    EXPECT_EQ(shares[0].compute, 0) << op;
    EXPECT_EQ(shares[0].input, 0) << op;
    EXPECT_NEAR(shares[0].wait, 0.99, 1e-6) << op;
    EXPECT_THAT(Advice(shares[0]), HasSubstr("waiting for other tasks")) << op;
    const std::vector<NodeTime> nodes = TopNodes(traces, 10);
    ASSERT_EQ(nodes.size(), 3u) << op;
    EXPECT_EQ(nodes[0].node, "product") << op;
    EXPECT_FALSE(nodes[0].waits);
    EXPECT_TRUE(nodes[1].waits) << op;
    EXPECT_TRUE(nodes[2].waits) << op;
  }
}

TEST(ClusterTraceTest, TheLongestNodesComeFirst) {
  std::vector<pb::TraceResponse> traces(1);
  for (int i = 0; i < 3; ++i) *traces[0].add_step() = MakeStep(kWorker, kEpoch + i, 0, 0);
  const std::vector<NodeTime> nodes = TopNodes(traces, 2);
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_EQ(nodes[0].node, "product");
  EXPECT_EQ(nodes[0].op, "MatMul");
  EXPECT_EQ(nodes[0].calls, 3);
  EXPECT_NEAR(nodes[0].seconds, 12e-3, 1e-9);
  EXPECT_EQ(nodes[1].node, "w") << "its receive was longer, and only waited";
}

TEST(ClusterTraceTest, ThePictureHasSlicesArrowsAndSteps) {
  std::vector<pb::TraceResponse> traces(1);
  traces[0].set_task(kWorker);
  *traces[0].add_step() = MakeStep(kWorker, kEpoch, 0, 0);
  *traces[0].add_step() = MakeStep(kWorker, kEpoch + 10 * kMs, 0, 0);
  const Json trace = Json::parse(ClusterTrace(traces));
  std::map<std::string, int> kinds;
  std::map<int, double> begins;
  for (const Json& event : trace["traceEvents"]) {
    const std::string phase = event["ph"];
    ++kinds[event.contains("cat") ? StrCat(phase, " ", event["cat"].get<std::string>()) : phase];
    if (phase == "s") begins[event["id"]] = event["ts"];
    if (phase == "f") {
      EXPECT_GE(event["ts"].get<double>(), begins.at(event["id"]));
    }
    if (phase == "X" && event["cat"] == "step") {
      EXPECT_EQ(event["args"]["straggler"], kWorker);
      EXPECT_EQ(event["args"]["straggler_cost"], "3 ms");
      EXPECT_NEAR(event["args"]["straggler_share"].get<double>(), 100.0 * 2.999 / 8, 1e-6);
    }
  }
  EXPECT_EQ(kinds["X op"], 8);
  EXPECT_EQ(kinds["s transfer"], 2);
  EXPECT_EQ(kinds["f transfer"], 2);
  EXPECT_EQ(kinds["X step"], 2);
  EXPECT_EQ(kinds["X critical path"], 8);
}

}  // namespace
}  // namespace millrace
