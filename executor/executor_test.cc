// SPDX-License-Identifier: Apache-2.0
#include "executor/executor.h"

#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "base/notification.h"
#include "executor/test_graph.h"
#include "gtest/gtest.h"
#include "rendezvous/rendezvous.h"

namespace millrace {
namespace {

using test::TestGraph;

constexpr std::chrono::seconds kPatience{60};

// Everything must hold whatever the number of threads; 0 is the caller alone.
class ExecutorTest : public testing::TestWithParam<int> {
 protected:
  void Compile() {
    auto compiled = t_.Compile();
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    compiled_ = *std::move(compiled);
  }

  // One step with a rendezvous and a cancellation of its own.
  Status RunStep(bool caller_runs = true) {
    auto rendezvous = NewLocalRendezvous();
    CancellationManager cancellation;
    return RunStepIn(rendezvous.get(), &cancellation, caller_runs);
  }
  Status RunStepIn(Rendezvous* rendezvous, CancellationManager* cancellation,
                   bool caller_runs = true) {
    StepEnv env;
    env.rendezvous = rendezvous;
    env.cancellation = cancellation;
    ExecutorArgs args;
    args.env = &env;
    args.pool = &pool_;
    args.stats = stats_;
    args.caller_runs = caller_runs;
    struct Waiter {
      Notification done;
      Status status = errors::DeadlineExceeded("the step did not end");
    } waiter;
    Executor(compiled_.get())
        .RunAsync(args, {[](void* arg, Status status) {
                           auto* w = static_cast<Waiter*>(arg);
                           w->status = std::move(status);
                           w->done.Notify();
                         },
                         &waiter});
    // Gone too early the waiter would be used after its end: better stop here than there.
    if (!waiter.done.WaitUntil(DeadlineAfter(kPatience))) {
      ADD_FAILURE() << "the step did not end";
      std::abort();
    }
    return waiter.status;
  }

  static AttrMap Value(float v) { return TestGraph::Attr("value", v); }

  TestGraph t_;
  ThreadPool pool_{"test", GetParam()};
  StepStatsCollector* stats_ = nullptr;
  std::unique_ptr<CompiledGraph> compiled_;
};

TEST_P(ExecutorTest, AnEmptyGraphEndsAtOnce) {
  Compile();
  EXPECT_TRUE(RunStep().ok());
  EXPECT_TRUE(RunStep(false).ok());
}

TEST_P(ExecutorTest, ValuesFlowAlongEdges) {
  Node* sum = t_.Add("Sum", {t_.Add("Value", {}, Value(2)), t_.Add("Value", {}, Value(3))});
  t_.Add("Keep", {t_.Add("Sum", {sum, sum})});
  Compile();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(RunStep().ok());
  EXPECT_EQ(t_.kept[0].scalar<float>(), 10);
  EXPECT_EQ(t_.kept_runs, 3);
}

TEST_P(ExecutorTest, ControlEdgesOrderNodes) {
  constexpr int kNodes = 200;
  Node* last = nullptr;
  for (int i = 0; i < kNodes; ++i) {
    Node* node = t_.AddNamed("n" + std::to_string(1000 + i), "Work");
    if (last != nullptr) t_.Control(last, node);
    last = node;
  }
  std::vector<std::string> order;
  t_.hook = [&order](const std::string& name) { order.push_back(name); };
  Compile();
  ASSERT_TRUE(RunStep().ok());
  EXPECT_EQ(order.size(), kNodes);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST_P(ExecutorTest, EveryNodeOfAWideGraphRunsOncePerStep) {
  constexpr int kWide = 20, kDeep = 20;
  std::vector<Node*> layer;
  for (int d = 0; d < kDeep; ++d) {
    std::vector<Node*> next;
    for (int w = 0; w < kWide; ++w) {
      Node* node = t_.Add("Work", {}, TestGraph::Attr("expensive", w % 2 == 0));
      if (d > 0) {
        t_.Control(layer[w], node);
        t_.Control(layer[(w + 1) % kWide], node);
      }
      next.push_back(node);
    }
    layer = next;
  }
  Compile();
  for (int step = 1; step <= 5; ++step) {
    ASSERT_TRUE(RunStep(step % 2 == 0).ok());
    EXPECT_EQ(t_.runs, step * kWide * kDeep);
  }
}

TEST_P(ExecutorTest, JoinsOfExpensiveBranchesSeeBothValues) {
  std::vector<Node*> leaves;
  for (int i = 0; i < 64; ++i) leaves.push_back(t_.Add("Value", {}, Value(1)));
  while (leaves.size() > 1) {
    std::vector<Node*> sums;
    for (std::size_t i = 0; i < leaves.size(); i += 2) {
      sums.push_back(t_.Add("Sum", {leaves[i], leaves[i + 1]}, TestGraph::Attr("expensive", true)));
    }
    leaves = sums;
  }
  t_.Add("Keep", {leaves[0]});
  Compile();
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(RunStep().ok());
    EXPECT_EQ(t_.kept[0].scalar<float>(), 64);
  }
}

TEST_P(ExecutorTest, StepsOfOneGraphRunAtTheSameTime) {
  Node* value = t_.Add("Value", {}, Value(1));
  for (int i = 0; i < 50; ++i) {
    value = t_.Add("Sum", {value, value}, TestGraph::Attr("expensive", i % 3 == 0));
    value = t_.Add("Later", {value});
    value = t_.Add("Sum", {value, t_.Add("Value", {}, Value(0))});
  }
  Compile();
  std::atomic<int> ok{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int step = 0; step < 5; ++step) ok += RunStep().ok() ? 1 : 0;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(ok, 20);
}

TEST_P(ExecutorTest, AsynchronousNodesMayCompleteAtOnceOrOnAnyThread) {
  Node* value = t_.Add("Value", {}, Value(7));
  // Long enough to overflow the stack if completions nested.
  for (int i = 0; i < 20000; ++i) value = t_.Add("Now", {value});
  for (int i = 0; i < 20; ++i) value = t_.Add("Later", {value});
  t_.Add("Keep", {value});
  Compile();
  ASSERT_TRUE(RunStep().ok());
  ASSERT_TRUE(RunStep(false).ok());
  EXPECT_EQ(t_.kept[0].scalar<float>(), 7);
  EXPECT_EQ(t_.kept_runs, 2);
}

TEST_P(ExecutorTest, TheLastConsumerWorksInPlaceAndAnEarlierOneDoesNot) {
  Node* alone = t_.Add("InPlace", {t_.Add("Value", {}, Value(1))});
  t_.Add("Keep", {alone});
  Compile();
  ASSERT_TRUE(RunStep().ok());
  EXPECT_TRUE(t_.in_place_forwarded);
  EXPECT_EQ(t_.kept[0].scalar<float>(), 2);
}

TEST_P(ExecutorTest, AValueThatOthersStillReadIsNotOverwritten) {
  Node* value = t_.Add("Value", {}, Value(1));
  Node* in_place = t_.Add("InPlace", {value});
  Node* reader = t_.Add("Keep", {value}, TestGraph::Attr("index", 1));
  t_.Control(in_place, reader);
  t_.Add("Keep", {in_place});
  Compile();
  ASSERT_TRUE(RunStep().ok());
  EXPECT_FALSE(t_.in_place_forwarded);
  EXPECT_EQ(t_.kept[1].scalar<float>(), 1);
  EXPECT_EQ(t_.kept[0].scalar<float>(), 2);
}

TEST_P(ExecutorTest, TheFirstErrorNamesItsNodeAndEndsTheStep) {
  t_.AddNamed("bad", "Fail", {}, TestGraph::Attr("code", 3));
  t_.Add("Keep", {t_.Add("Later", {t_.Add("Value", {}, Value(1))})});
  t_.Add("Stuck");
  Node* after = t_.Add("Work");
  t_.Control(t_.graph.FindNode("bad"), after);
  Compile();
  auto rendezvous = NewLocalRendezvous();
  CancellationManager cancellation;
  const Status status = RunStepIn(rendezvous.get(), &cancellation);
  EXPECT_TRUE(errors::IsInvalidArgument(status)) << status;
  EXPECT_EQ(Message(status),
            StrCat("it broke\n\t [[{{node bad}}]]\n\t (op Fail on ", t_.device->name(), ")"));
  EXPECT_FALSE(IsDerived(status));
  EXPECT_TRUE(cancellation.IsCancelled());
  EXPECT_TRUE(errors::IsInvalidArgument(rendezvous->Send("k", Tensor(), false)));
  EXPECT_EQ(t_.runs, 0);
}

TEST_P(ExecutorTest, WhatKernelsThrowIsTheStepsErrorAndTheNextStepRuns) {
  t_.AddNamed("large", "Throw", {}, TestGraph::Attr("async", false));
  Compile();
  for (int step = 0; step < 3; ++step) {
    const Status status = RunStep();
    EXPECT_TRUE(errors::IsResourceExhausted(status)) << status;
    EXPECT_NE(Message(status).find("{{node large}}"), std::string::npos) << status;
    EXPECT_NE(Message(status).find("op Throw on " + t_.device->name()), std::string::npos)
        << status;
  }
}

TEST_P(ExecutorTest, WhatAsynchronousKernelsThrowEndsThem) {
  t_.AddNamed("large", "Throw", {}, TestGraph::Attr("async", true));
  t_.Add("Stuck");
  Compile();
  for (int step = 0; step < 3; ++step) {
    const Status status = RunStep();
    EXPECT_TRUE(errors::IsResourceExhausted(status)) << status;
    EXPECT_NE(Message(status).find("{{node large}}"), std::string::npos) << status;
  }
}

TEST_P(ExecutorTest, AStepAfterAFailedOneStartsClean) {
  Node* value = t_.Add("Value", {}, Value(1));
  Node* variable = t_.AddNamed("v", "Variable");
  Node* sum = t_.Add("Sum", {value, variable});
  t_.Add("Keep", {t_.Add("Sum", {sum, value})});
  Compile();
  for (int i = 0; i < 3; ++i) {
    {
      MutexLock lock(&t_.variable_mu);
      t_.variable = Tensor();
    }
    EXPECT_TRUE(errors::IsFailedPrecondition(RunStep()));
    {
      MutexLock lock(&t_.variable_mu);
      t_.variable = Tensor::Scalar<float>(5);
    }
    ASSERT_TRUE(RunStep().ok());
    EXPECT_EQ(t_.kept[0].scalar<float>(), 7);
  }
}

TEST_P(ExecutorTest, UnavailableFromAnOpThatDoesNotCommunicateBecomesInternal) {
  t_.Add("Fail", {}, TestGraph::Attr("code", static_cast<int>(StatusCode::kUnavailable)));
  Compile();
  EXPECT_TRUE(errors::IsInternal(RunStep()));
}

TEST_P(ExecutorTest, ACancellationFromOutsideEndsTheStepWithADerivedError) {
  t_.Add("Stuck");
  Compile();
  CancellationManager cancellation;
  auto rendezvous = NewLocalRendezvous();
  std::thread canceller([&] { cancellation.StartCancel(errors::Cancelled("closed")); });
  const Status status = RunStepIn(rendezvous.get(), &cancellation);
  canceller.join();
  EXPECT_TRUE(errors::IsCancelled(status)) << status;
  EXPECT_TRUE(IsDerived(status));
}

TEST_P(ExecutorTest, AnUninitialisedVariableIsNamedUnlessTheOpMayLook) {
  Node* variable = t_.AddNamed("weights", "Variable");
  t_.Add("Look", {variable});
  Compile();
  EXPECT_TRUE(RunStep().ok());
  t_.Add("Use", {variable});
  Compile();
  const Status status = RunStep();
  EXPECT_TRUE(errors::IsFailedPrecondition(status));
  EXPECT_NE(Message(status).find("Attempting to use uninitialized value weights"),
            std::string::npos)
      << status;
}

TEST_P(ExecutorTest, OutputsAreHeldToTheirDeclaration) {
  t_.AddNamed("wrong", "Wrong");
  Compile();
  Status status = RunStep();
  EXPECT_TRUE(errors::IsInternal(status));
  EXPECT_NE(Message(status).find(
                "Output 0 of type int32 does not match declared output type float for node"),
            std::string::npos)
      << status;
}

TEST_P(ExecutorTest, AMissingOutputIsAnError) {
  t_.AddNamed("silent", "Silent");
  Compile();
  Status status = RunStep();
  EXPECT_TRUE(errors::IsInternal(status));
  EXPECT_NE(Message(status).find("Missing 0-th output from {{node silent}}"), std::string::npos)
      << status;
}

TEST_P(ExecutorTest, SendsMeetReceivesOfTheSameStep) {
  t_.Add("_Send", {t_.Add("Value", {}, Value(4))}, TestGraph::Edge("e", false));
  t_.Add("Keep", {t_.Add("_Recv", {}, TestGraph::Edge("e", true))});
  Compile();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(RunStep(i % 2 == 0).ok());
  EXPECT_EQ(t_.kept[0].scalar<float>(), 4);
  EXPECT_EQ(t_.kept_runs, 5);
}

TEST_P(ExecutorTest, ALongChainOfSendsAndReceivesDoesNotNest) {
  Node* value = t_.Add("Value", {}, Value(4));
  for (int i = 0; i < 5000; ++i) {
    const std::string name = "e" + std::to_string(i);
    t_.Add("_Send", {value}, TestGraph::Edge(name, false));
    value = t_.Add("_Recv", {}, TestGraph::Edge(name, true));
  }
  t_.Add("Keep", {value});
  Compile();
  ASSERT_TRUE(RunStep().ok());
  EXPECT_EQ(t_.kept[0].scalar<float>(), 4);
}

// Ended the process where no switch was in the graph.
TEST_P(ExecutorTest, MergesWithoutASwitch) {
  AttrMap merge = TestGraph::Attr("T", kFloat);
  merge.Set("N", int64_t{1});
  t_.Add("Keep", {t_.Add("Merge", {t_.Add("Value", {}, Value(7))}, merge)});
  Compile();
  ASSERT_TRUE(RunStep().ok());
  EXPECT_EQ(t_.kept[0].scalar<float>(), 7);
}

// switch(7, pred) with one Keep on each side and a merge of both.
class BranchTest : public ExecutorTest {
 protected:
  void Build(bool pred) {
    Node* data = t_.Add("Value", {}, Value(7));
    Node* p = t_.Add("_Arg", {}, [] {
      AttrMap attrs;
      attrs.Set("T", kBool);
      attrs.Set("index", int64_t{0});
      return attrs;
    }());
    Node* branch = t_.Add("Switch", {data, p}, TestGraph::Attr("T", kFloat));
    Node* no = t_.Add("InPlace");
    t_.Connect(branch, 0, no, 0);
    Node* yes = t_.Add("Sum");
    t_.Connect(branch, 1, yes, 0);
    t_.Connect(branch, 1, yes, 1);
    t_.Add("Keep", {no}, TestGraph::Attr("index", 0));
    t_.Add("Keep", {yes}, TestGraph::Attr("index", 1));
    AttrMap merge = TestGraph::Attr("T", kFloat);
    merge.Set("N", int64_t{2});
    t_.Add("Keep", {t_.Add("Merge", {no, yes}, merge)}, TestGraph::Attr("index", 2));
    t_.Add("_Send", {no}, TestGraph::Edge("no", false));
    t_.Add("Keep", {t_.Add("_Recv", {}, TestGraph::Edge("no", true))}, TestGraph::Attr("index", 3));
    arg_ = Tensor::Scalar<bool>(pred);
  }
  Status RunBranch() {
    auto rendezvous = NewLocalRendezvous();
    CancellationManager cancellation;
    StepEnv env;
    env.rendezvous = rendezvous.get();
    env.cancellation = &cancellation;
    env.call_args = {&arg_, 1};
    ExecutorArgs args;
    args.env = &env;
    args.pool = &pool_;
    return Executor(compiled_.get()).Run(args);
  }
  Tensor arg_;
};

TEST_P(BranchTest, OnlyTheTakenBranchRunsAndDeadnessCrossesTheRendezvous) {
  Build(false);
  Compile();
  for (int round = 0; round < 3; ++round) {
    for (Tensor& kept : t_.kept) kept = Tensor();
    arg_ = Tensor::Scalar<bool>(false);
    ASSERT_TRUE(RunBranch().ok());
    EXPECT_EQ(t_.kept[0].scalar<float>(), 8);
    EXPECT_FALSE(t_.kept[1].IsInitialized());
    EXPECT_EQ(t_.kept[2].scalar<float>(), 8);
    EXPECT_EQ(t_.kept[3].scalar<float>(), 8);

    for (Tensor& kept : t_.kept) kept = Tensor();
    arg_ = Tensor::Scalar<bool>(true);
    ASSERT_TRUE(RunBranch().ok());
    EXPECT_FALSE(t_.kept[0].IsInitialized());
    EXPECT_EQ(t_.kept[1].scalar<float>(), 14);
    EXPECT_EQ(t_.kept[2].scalar<float>(), 14);
    EXPECT_FALSE(t_.kept[3].IsInitialized());
  }
}

TEST_P(ExecutorTest, StatisticsOrderTheTimesOfEveryNode) {
  Node* value = t_.AddNamed("value", "Value", {}, Value(1));
  t_.AddNamed("keep", "Keep", {t_.AddNamed("later", "Later", {value})});
  t_.AddNamed("nothing", "NoOp");
  Compile();
  StepStatsCollector stats(t_.device->name());
  stats_ = &stats;
  ASSERT_TRUE(RunStep().ok());
  pb::StepStats message;
  stats.MoveTo(&message);
  ASSERT_EQ(message.dev_stats_size(), 1);
  EXPECT_EQ(message.dev_stats(0).device(), t_.device->name());
  std::set<std::string> names;
  for (const pb::NodeExecStats& node : message.dev_stats(0).node_stats()) {
    names.insert(node.node_name());
    EXPECT_GT(node.scheduled_nanos(), 0);
    EXPECT_LE(node.scheduled_nanos(), node.all_start_nanos());
    EXPECT_GE(node.op_start_rel_nanos(), 0);
    EXPECT_LE(node.op_start_rel_nanos(), node.op_end_rel_nanos());
    EXPECT_LE(node.op_end_rel_nanos(), node.all_end_rel_nanos());
    if (node.node_name() == "value") {
      EXPECT_EQ(node.output(0).tensor_description().allocation_description().requested_bytes(), 4);
    }
  }
  EXPECT_EQ(names, (std::set<std::string>{"value", "later", "keep", "nothing"}));
}

TEST(ExecutorOrderTest, WithoutThreadsNodesRunInTheSameOrderInEveryStep) {
  TestGraph t;
  std::vector<Node*> layer;
  for (int d = 0; d < 6; ++d) {
    std::vector<Node*> next;
    for (int w = 0; w < 6; ++w) {
      next.push_back(t.Add("Work", {}, TestGraph::Attr("expensive", w % 2 == 0)));
      if (d > 0) t.Control(layer[(w * 5) % 6], next.back());
    }
    layer = next;
  }
  std::vector<std::string> order;
  t.hook = [&order](const std::string& name) { order.push_back(name); };
  auto compiled = t.Compile();
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  StepEnv env;
  ExecutorArgs args;
  args.env = &env;
  std::vector<std::string> first;
  for (int step = 0; step < 100; ++step) {
    order.clear();
    ASSERT_TRUE(Executor(compiled->get()).Run(args).ok());
    if (step == 0) first = order;
    ASSERT_EQ(order, first);
  }
  EXPECT_EQ(first.size(), 36);
}

TEST_P(ExecutorTest, AGraphWithAnOpenInputIsRefused) {
  t_.AddNamed("open", "InPlace");
  auto compiled = t_.Compile();
  ASSERT_FALSE(compiled.ok());
  EXPECT_TRUE(errors::IsInvalidArgument(compiled.status()));
  EXPECT_NE(Message(compiled.status()).find("{{node open}}"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Threads, ExecutorTest, testing::Values(0, 1, 2, 8));
INSTANTIATE_TEST_SUITE_P(Threads, BranchTest, testing::Values(0, 1, 2, 8));

}  // namespace
}  // namespace millrace
