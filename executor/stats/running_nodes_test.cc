// SPDX-License-Identifier: Apache-2.0
#include "executor/stats/running_nodes.h"

#include <pthread.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/cancellation.h"
#include "base/thread_pool.h"
#include "executor/executor.h"
#include "executor/test_graph.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

using test::TestGraph;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> NamesOf(const std::vector<RunningNode>& nodes) {
  std::vector<std::string> names;
  for (const RunningNode& node : nodes) names.push_back(node.node);
  return names;
}

// A chain of two nodes that may be expensive, with or without what makes a step take one of the
// other ways. Every node looks who runs.
class RunningNodesTest : public testing::Test {
 protected:
  void Run(ThreadPool* pool) {
    auto compiled = t_.Compile();
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    t_.hook = [this](const std::string& name) {
      const std::vector<RunningNode> nodes = FindRunningNodes(&cancellation_);
      EXPECT_THAT(NamesOf(nodes), ElementsAre(name));
      if (nodes.size() == 1) {
        EXPECT_EQ(nodes[0].op, "Work");
        EXPECT_EQ(nodes[0].device, t_.device->name());
        EXPECT_GT(nodes[0].thread_id, 0);
      }
      EXPECT_THAT(FindRunningNodes(&other_), IsEmpty());
      EXPECT_THAT(FindRunningNodes(nullptr), IsEmpty());
      ++looked_;
    };
    StepEnv env;
    env.cancellation = &cancellation_;
    ExecutorArgs args;
    args.env = &env;
    args.pool = pool;
    ASSERT_TRUE(Executor(compiled->get()).Run(args).ok());
    EXPECT_EQ(looked_, 2);
    EXPECT_THAT(FindRunningNodes(&cancellation_), IsEmpty());
  }

  TestGraph t_;
  CancellationManager cancellation_, other_;
  int looked_ = 0;
};

AttrMap Expensive() { return TestGraph::Attr("expensive", true); }

TEST_F(RunningNodesTest, AStepOnOneThreadTells) {
  t_.Control(t_.AddNamed("a", "Work", {}, Expensive()), t_.AddNamed("b", "Work", {}, Expensive()));
  Run(nullptr);
}

TEST_F(RunningNodesTest, AStepOnSeveralThreadsTells) {
  t_.Control(t_.AddNamed("a", "Work", {}, Expensive()), t_.AddNamed("b", "Work", {}, Expensive()));
  ThreadPool pool("pool", 2);
  Run(&pool);
}

TEST_F(RunningNodesTest, WhatFollowsAnAsynchronousNodeIsToldWhereverItRuns) {
  Node* const later = t_.Add("Later", {t_.Add("Value", {}, TestGraph::Attr("value", 1.0f))});
  t_.hook = nullptr;
  Node* const a = t_.AddNamed("a", "Work", {}, Expensive());
  t_.Control(later, a);
  ThreadPool pool("pool", 2);
  auto compiled = t_.Compile();
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  std::vector<RunningNode> seen;
  char thread[16] = "";  // the caller's, if the other node has ended soon enough
  t_.hook = [&](const std::string& name) {
    if (name != "a") return;
    seen = FindRunningNodes(&cancellation_);
    pthread_getname_np(pthread_self(), thread, sizeof(thread));
  };
  StepEnv env;
  env.cancellation = &cancellation_;
  ExecutorArgs args;
  args.env = &env;
  args.pool = &pool;
  ASSERT_TRUE(Executor(compiled->get()).Run(args).ok());
  ASSERT_THAT(NamesOf(seen), ElementsAre("a"));
  EXPECT_EQ(seen[0].thread, thread);
  EXPECT_GE(seen[0].elapsed.count(), 0);
}

// What a thread ran before is told again when the inner step, of a function say, has ended.
TEST_F(RunningNodesTest, TheInnermostNodeIsTold) {
  TestGraph inner;
  inner.AddNamed("inside", "Work", {}, Expensive());
  auto body = inner.Compile();
  ASSERT_TRUE(body.ok()) << body.status();
  TestGraph outer;
  outer.AddNamed("outside", "Work", {}, Expensive());
  auto caller = outer.Compile();
  ASSERT_TRUE(caller.ok()) << caller.status();
  StepEnv env;
  env.cancellation = &cancellation_;
  ExecutorArgs args;
  args.env = &env;
  std::vector<std::string> seen, callers;
  const auto look = [&](const std::string&) {
    for (const RunningNode& node : FindRunningNodes(&cancellation_)) {
      seen.push_back(node.node);
      callers.push_back(node.caller);
      EXPECT_EQ(node.caller_op, node.caller.empty() ? "" : "Work");
    }
  };
  inner.hook = look;
  outer.hook = [&](const std::string& name) {
    look(name);
    ASSERT_TRUE(Executor(body->get()).Run(args).ok());
    look(name);
  };
  ASSERT_TRUE(Executor(caller->get()).Run(args).ok());
  EXPECT_THAT(seen, ElementsAre("outside", "inside", "outside"));
  EXPECT_THAT(callers, ElementsAre("", "outside", ""));
}

TEST_F(RunningNodesTest, AThreadThatHasEndedIsForgotten) {
  t_.AddNamed("a", "Work", {}, Expensive());
  auto compiled = t_.Compile();
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  std::thread([&] {
    StepEnv env;
    env.cancellation = &cancellation_;
    ExecutorArgs args;
    args.env = &env;
    EXPECT_TRUE(Executor(compiled->get()).Run(args).ok());
  }).join();
  EXPECT_THAT(FindRunningNodes(&cancellation_), IsEmpty());
}

}  // namespace
}  // namespace millrace
