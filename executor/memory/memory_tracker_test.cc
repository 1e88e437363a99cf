// SPDX-License-Identifier: Apache-2.0
#include "executor/memory/memory_tracker.h"

#include <vector>

#include "base/errors.h"
#include "executor/executor.h"
#include "executor/test_graph.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

using test::TestGraph;
using ::testing::HasSubstr;

// A float has 4 bytes.
class MemoryTrackerTest : public testing::TestWithParam<int> {
 protected:
  Status Run(MemoryTracker* memory, StepStatsCollector* stats = nullptr) {
    if (compiled_ == nullptr) {
      auto compiled = t_.Compile();
      if (!compiled.ok()) return compiled.status();
      compiled_ = *std::move(compiled);
    }
    CancellationManager cancellation;
    StepEnv env;
    env.cancellation = &cancellation;
    ExecutorArgs args;
    args.env = &env;
    args.pool = &pool_;
    args.memory = memory;
    args.stats = stats;
    return Executor(compiled_.get()).Run(args);
  }
  int64_t Peak() {
    auto tracker = MakeRef<MemoryTracker>(0);
    EXPECT_TRUE(Run(tracker.get()).ok());
    EXPECT_EQ(tracker->live_bytes(), 0);
    return tracker->peak_bytes();
  }
  Node* Value() { return t_.Add("Value", {}, TestGraph::Attr("value", 1.0f)); }
  Node* Sum(Node* a, Node* b) { return t_.Add("Sum", {a, b}, TestGraph::Attr("expensive", false)); }

  TestGraph t_;
  ThreadPool pool_{"test", GetParam()};
  std::unique_ptr<CompiledGraph> compiled_;
};

TEST_P(MemoryTrackerTest, AChainHasTwoTensorsAtATime) {
  Node* last = Value();
  for (int i = 0; i < 20; ++i) last = Sum(last, last);
  EXPECT_EQ(Peak(), 2 * 4);
}

TEST_P(MemoryTrackerTest, TensorsThatWaitForAReaderAddUp) {
  std::vector<Node*> values;
  for (int i = 0; i < 10; ++i) values.push_back(Value());
  Node* ready = t_.Add("Null");
  for (Node* value : values) t_.Control(value, ready);
  for (Node* value : values) t_.Control(ready, Sum(value, value));
  EXPECT_EQ(Peak(), (10 + 1) * 4);
}

TEST_P(MemoryTrackerTest, ATensorTakenOverIsNotCountedAgain) {
  Node* last = Value();
  for (int i = 0; i < 20; ++i) last = t_.Add("InPlace", {last});
  EXPECT_EQ(Peak(), 4);
}

TEST_P(MemoryTrackerTest, WhatIsKeptLivesAfterTheStep) {
  t_.kept.resize(1);
  t_.Add("Keep", {Value()}, TestGraph::Attr("index", 0));
  auto tracker = MakeRef<MemoryTracker>(0);
  ASSERT_TRUE(Run(tracker.get()).ok());
  EXPECT_EQ(tracker->live_bytes(), 4);
  t_.kept[0] = Tensor();
  EXPECT_EQ(tracker->live_bytes(), 0);
}

TEST_P(MemoryTrackerTest, AStepMayTakeItsLimitAndNoMore) {
  Node* value = Value();
  Sum(value, value);
  EXPECT_TRUE(Run(MakeRef<MemoryTracker>(8).get()).ok());
  EXPECT_TRUE(errors::IsResourceExhausted(Run(MakeRef<MemoryTracker>(7).get())));
  EXPECT_TRUE(Run(MakeRef<MemoryTracker>(8).get()).ok()) << "a failed step leaves nothing";
}

TEST_P(MemoryTrackerTest, TheErrorNamesNodeDeviceBytesAndTheLargest) {
  Node* x = t_.AddNamed("x", "Value", {}, TestGraph::Attr("value", 1.0f));
  t_.AddNamed("sum", "Sum", {x, x}, TestGraph::Attr("expensive", false));
  const Status status = Run(MakeRef<MemoryTracker>(7).get());
  EXPECT_TRUE(errors::IsResourceExhausted(status));
  const std::string text(Message(status));
  EXPECT_THAT(text, HasSubstr("OOM when allocating tensor with shape[] and type float on " +
                              t_.device->name() + " by allocator host"));
  EXPECT_THAT(text, HasSubstr("[[{{node sum}}]]"));
  EXPECT_THAT(text, HasSubstr("{{node sum}} asked for 4 bytes"));
  EXPECT_THAT(text, HasSubstr("took 4 of their limit of 7 bytes. The largest of 1:"));
  EXPECT_THAT(text, HasSubstr("4 bytes of {{node x}}: float []"));
}

TEST_P(MemoryTrackerTest, StatisticsHaveThePeak) {
  std::vector<Node*> values;
  for (int i = 0; i < 4; ++i) values.push_back(Value());
  Node* ready = t_.Add("Null");
  for (Node* value : values) t_.Control(value, ready);
  Node* sum =
      t_.AddNamed("sum", "Sum", {values[0], values[1]}, TestGraph::Attr("expensive", false));
  t_.Control(ready, sum);
  for (Node* value : values) t_.Control(sum, t_.Add("Keep", {value}, TestGraph::Attr("index", 0)));
  t_.kept.resize(1);
  auto tracker = MakeRef<MemoryTracker>(0);
  StepStatsCollector collector("device");
  ASSERT_TRUE(Run(tracker.get(), &collector).ok());
  pb::StepStats stats;
  collector.MoveTo(&stats);
  EXPECT_EQ(PeakBytes(stats.dev_stats(0)), 5 * 4);
  EXPECT_EQ(tracker->peak_bytes(), 5 * 4);
  for (const pb::NodeExecStats& node : stats.dev_stats(0).node_stats()) {
    if (node.node_name() != "sum") continue;
    ASSERT_EQ(node.memory_size(), 1);
    EXPECT_EQ(node.memory(0).allocator_name(), "host");
    EXPECT_EQ(node.memory(0).total_bytes(), 4);
    EXPECT_EQ(node.memory(0).peak_bytes(), 4);
    EXPECT_EQ(node.memory(0).live_bytes(), 4);
    EXPECT_EQ(node.memory(0).allocator_bytes_in_use(), 20);
    EXPECT_EQ(node.output(0).tensor_description().allocation_description().allocator_name(),
              "host");
  }
}

TEST_P(MemoryTrackerTest, OthersDoNotSeeIt) {
  Sum(Value(), Value());
  EXPECT_TRUE(Run(nullptr).ok());
  EXPECT_EQ(MemoryTracker::Current(), nullptr);
}

INSTANTIATE_TEST_SUITE_P(Threads, MemoryTrackerTest, testing::Values(0, 2));

}  // namespace
}  // namespace millrace
