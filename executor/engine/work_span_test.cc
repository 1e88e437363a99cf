// SPDX-License-Identifier: Apache-2.0
#include "executor/engine/work_span.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/notification.h"
#include "executor/executor.h"
#include "executor/test_graph.h"

namespace millrace {
namespace {

using test::TestGraph;

constexpr int kWide = 40;

Node* Work(TestGraph* t) { return t->Add("Work", {}, TestGraph::Attr("expensive", true)); }

// Nodes that nothing orders.
std::unique_ptr<CompiledGraph> Wide(TestGraph* t) {
  for (int i = 0; i < kWide; ++i) Work(t);
  return *t->Compile();
}

// One after the other.
std::unique_ptr<CompiledGraph> Chain(TestGraph* t) {
  Node* last = nullptr;
  for (int i = 0; i < kWide; ++i) {
    Node* const node = Work(t);
    if (last != nullptr) t->Control(last, node);
    last = node;
  }
  return *t->Compile();
}

// As if every node had been measured so, in all of the steps that learn.
void Learn(const CompiledGraph& graph, uint64_t cycles) {
  for (int step = 0; step < 20; ++step) (void)graph.MayUseThreads();
  for (int32_t i = 0; i < kWide; ++i) graph.RecordCost(i, cycles);
  graph.CostsChanged();
}

TEST(WorkSpanTest, CountsAllNodesAndTheLongestPath) {
  TestGraph wide, chain;
  const auto w = Wide(&wide), c = Chain(&chain);
  Learn(*w, 5'000);
  Learn(*c, 5'000);
  const WorkSpan of_wide = EstimateWorkSpan(*w), of_chain = EstimateWorkSpan(*c);
  EXPECT_GE(of_wide.alone, kWide * 5'000u);
  EXPECT_EQ(of_wide.alone, of_chain.alone);
  EXPECT_EQ(of_wide.work, of_chain.work);
  EXPECT_EQ(of_chain.span, of_chain.work);
  EXPECT_EQ(of_wide.span * kWide, of_wide.work);
}

TEST(WorkSpanTest, NodesThatWereNeverMeasuredCostNothing) {
  TestGraph t;
  EXPECT_LT(EstimateWorkSpan(*Wide(&t)).alone, kWide * 1'000u);
}

TEST(MayUseThreadsTest, WhereCheapNodesAddUpButNotInAChain) {
  TestGraph wide, chain, small, tiny;
  const auto w = Wide(&wide), c = Chain(&chain), s = Wide(&small), n = Wide(&tiny);
  Learn(*w, CompiledGraph::kExpensiveCycles);
  Learn(*c, CompiledGraph::kExpensiveCycles);
  Learn(*s, 3'000);  // all together not worth waking a thread
  Learn(*n, 300);    // handing one over costs more than it does
  EXPECT_TRUE(w->MayUseThreads());
  EXPECT_FALSE(c->MayUseThreads());
  EXPECT_FALSE(s->MayUseThreads());
  EXPECT_FALSE(n->MayUseThreads());
}

TEST(MayUseThreadsTest, FollowsCosts) {
  TestGraph t;
  const auto graph = Wide(&t);
  Learn(*graph, 10'000);
  EXPECT_TRUE(graph->MayUseThreads());
  for (int i = 0; i < 20; ++i) Learn(*graph, 100);
  EXPECT_FALSE(graph->MayUseThreads());
}

// Cheap nodes that are ready at the same time reach another thread: each waits for one of those.
TEST(SharedListTest, GoesToOtherThreadsInHalves) {
  TestGraph t;
  const auto graph = Wide(&t);
  Learn(*graph, CompiledGraph::kExpensiveCycles);
  ASSERT_TRUE(graph->MayUseThreads());
  Notification two;
  Mutex mu;
  std::vector<std::thread::id> threads;
  bool in_time = true;
  t.hook = [&](const std::string&) {
    {
      MutexLock lock(&mu);
      const auto self = std::this_thread::get_id();
      if (std::find(threads.begin(), threads.end(), self) == threads.end()) {
        threads.push_back(self);
        if (threads.size() == 2) two.Notify();
      }
    }
    if (!two.WaitUntil(DeadlineAfter(std::chrono::seconds(30)))) in_time = false;
  };
  ThreadPool pool("pool", 2);
  StepEnv env;
  ExecutorArgs args;
  args.env = &env;
  args.pool = &pool;
  ASSERT_TRUE(Executor(graph.get()).Run(args).ok());
  EXPECT_EQ(t.runs.load(), kWide);
  EXPECT_TRUE(in_time);
}

}  // namespace
}  // namespace millrace
