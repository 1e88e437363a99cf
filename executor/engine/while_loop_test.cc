// SPDX-License-Identifier: Apache-2.0
// While loops as TensorFlow 1 writes them: Enter, Merge, LoopCond, Switch, NextIteration, Exit.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/errors.h"
#include "base/notification.h"
#include "executor/executor.h"
#include "executor/stats/running_nodes.h"
#include "executor/test_graph.h"
#include "gtest/gtest.h"
#include "rendezvous/rendezvous.h"

namespace millrace {
namespace {

using test::TestGraph;

class WhileLoopTest : public testing::TestWithParam<int> {
 protected:
  struct Loop {
    Node* merge = nullptr;
    Node* body_input = nullptr;  // the Switch; output 1 goes into the body
    Node* exit = nullptr;
  };

  Node* Value(float v) { return t_.Add("Value", {}, TestGraph::Attr("value", v)); }

  Node* Enter(Node* src, int output, const std::string& frame, bool constant, int parallel) {
    AttrMap attrs = TestGraph::Attr("T", kFloat);
    attrs.Set("frame_name", frame);
    attrs.Set("is_constant", constant);
    attrs.Set("parallel_iterations", parallel);
    Node* enter = t_.Add("Enter", {}, attrs);
    t_.Connect(src, output, enter, 0);
    return enter;
  }

  // x = start; while (x < limit) x = body(x); the value of the exit is x.
  Loop AddLoop(Node* start, int start_output, float limit, const std::string& frame, int parallel,
               const std::function<Node*(Node* x, int output)>& body) {
    Node* limit_in = Enter(Value(limit), 0, frame, true, parallel);
    Node* x_in = Enter(start, start_output, frame, false, parallel);
    Loop loop;
    AttrMap merge = TestGraph::Attr("T", kFloat);
    merge.Set("N", int64_t{2});
    loop.merge = t_.Add("Merge", {}, merge);
    t_.Connect(x_in, 0, loop.merge, 0);
    Node* cond = t_.Add("LoopCond", {t_.Add("Below", {loop.merge, limit_in})});
    loop.body_input = t_.Add("Switch", {loop.merge, cond}, TestGraph::Attr("T", kFloat));
    loop.exit = t_.Add("Exit", {loop.body_input}, TestGraph::Attr("T", kFloat));
    Node* next = t_.Add("NextIteration", {body(loop.body_input, 1)}, TestGraph::Attr("T", kFloat));
    t_.Connect(next, 0, loop.merge, 1);
    return loop;
  }
  Node* AddOne(Node* x, int output) {
    Node* node = t_.Add("InPlace");
    t_.Connect(x, output, node, 0);
    return node;
  }

  Status RunStep(const Tensor& arg = Tensor()) {
    auto rendezvous = NewLocalRendezvous();
    CancellationManager cancellation;
    StepEnv env;
    env.rendezvous = rendezvous.get();
    env.cancellation = &cancellation;
    Tensor args_of_call[] = {arg};
    env.call_args = args_of_call;
    ExecutorArgs args;
    args.env = &env;
    args.pool = &pool_;
    std::promise<void> ended;
    std::thread watchdog([&cancellation, end = ended.get_future()] {
      if (end.wait_for(std::chrono::seconds(30)) != std::future_status::ready) {
        cancellation.StartCancel(errors::DeadlineExceeded("the step stalled"));
      }
    });
    const Status status = Executor(compiled_.get()).Run(args);
    ended.set_value();
    watchdog.join();
    return status;
  }
  void Compile() {
    auto compiled = t_.Compile();
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    compiled_ = *std::move(compiled);
  }

  TestGraph t_;
  ThreadPool pool_{"test", GetParam()};
  std::unique_ptr<CompiledGraph> compiled_;
};

TEST_P(WhileLoopTest, ALoopRunsUntilItsConditionIsFalse) {
  for (int parallel : {1, 2, 10}) {
    SCOPED_TRACE(parallel);
    const int index = parallel == 10 ? 0 : parallel;
    Loop loop = AddLoop(Value(0), 0, 100, "loop" + std::to_string(parallel), parallel,
                        [this](Node* x, int output) { return AddOne(x, output); });
    t_.Add("Keep", {loop.exit}, TestGraph::Attr("index", index));
  }
  Compile();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(RunStep().ok());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(t_.kept[i].scalar<float>(), 100);
  EXPECT_EQ(t_.kept_runs, 9);
}

// On one thread: what else is scheduled there has its turn, and the loop goes on afterwards.
void RunBesideAnEndlessLoop(const CompiledGraph& graph) {
  ThreadPool pool("one", 1);
  auto rendezvous = NewLocalRendezvous();
  CancellationManager cancellation;
  StepEnv env;
  env.rendezvous = rendezvous.get();
  env.cancellation = &cancellation;
  ExecutorArgs args;
  args.env = &env;
  args.pool = &pool;
  args.caller_runs = false;
  args.may_yield = true;
  Notification ended;
  Executor(&graph).RunAsync(args, {[](void* arg, Status status) {
                                     EXPECT_FALSE(status.ok());
                                     static_cast<Notification*>(arg)->Notify();
                                   },
                                   &ended});
  for (int i = 0; i < 3; ++i) {
    Notification ran;
    pool.Schedule([&ran] { ran.Notify(); });
    EXPECT_TRUE(ran.WaitUntil(DeadlineAfter(std::chrono::seconds(60))));
    EXPECT_FALSE(ended.HasBeenNotified());
  }
  cancellation.StartCancel(errors::Cancelled("enough"));
  EXPECT_TRUE(ended.WaitUntil(DeadlineAfter(std::chrono::seconds(60))));
}

// Adding one to 2^24 changes nothing: the limit is never reached.
constexpr float kNever = 1e9f;

TEST_P(WhileLoopTest, AnEndlessLoopLetsOthersHaveTheirTurn) {
  AddLoop(Value(0), 0, kNever, "loop", 10,
          [this](Node* x, int output) { return AddOne(x, output); });
  Compile();
  ASSERT_NE(compiled_->sequential(), nullptr);
  RunBesideAnEndlessLoop(*compiled_);
}

TEST_P(WhileLoopTest, AnEndlessLoopOfManyThreadsLetsOthersHaveTheirTurn) {
  AddLoop(Value(0), 0, kNever, "loop", 10, [this](Node* x, int output) {
    return t_.Add("Now", {AddOne(x, output)});  // one thread alone cannot run it
  });
  Compile();
  ASSERT_EQ(compiled_->sequential(), nullptr);
  RunBesideAnEndlessLoop(*compiled_);
}

TEST_P(WhileLoopTest, ALoopThatIsOverAtOnceGivesItsStart) {
  Loop loop = AddLoop(Value(5), 0, 3, "loop", 10,
                      [this](Node* x, int output) { return AddOne(x, output); });
  t_.Add("Keep", {loop.exit});
  Compile();
  ASSERT_TRUE(RunStep().ok());
  EXPECT_EQ(t_.kept[0].scalar<float>(), 5);
}

TEST_P(WhileLoopTest, ABodyMayWaitForOtherThreads) {
  Loop loop = AddLoop(Value(0), 0, 50, "loop", 4, [this](Node* x, int output) {
    return t_.Add("Later", {t_.Add("Now", {AddOne(x, output)})});
  });
  t_.Add("Keep", {loop.exit});
  Compile();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(RunStep().ok());
  EXPECT_EQ(t_.kept[0].scalar<float>(), 50);
}

// Of every iteration one node counts up and another one, which nothing waits for, counts down; the
// latter stand until as many iterations have begun as may run at once.
class ParallelIterationsTest : public WhileLoopTest {
 protected:
  void CheckIterations(int parallel) {
    constexpr int kIterations = 20;
    std::mutex mu;
    std::condition_variable changed;
    int begun = 0, running = 0, most = 0;
    bool stalled = false;
    t_.hook = [&](const std::string& node) {
      std::unique_lock lock(mu);
      if (node == "begin") {
        ++begun;
        most = std::max(most, ++running);
        changed.notify_all();
      } else if (node == "end") {
        const auto enough = [&] { return begun >= parallel; };
        stalled = !changed.wait_for(lock, std::chrono::seconds(20), enough) || stalled;
        --running;
      }
    };
    AddLoop(Value(0), 0, kIterations, "loop", parallel, [this](Node* x, int output) {
      Node* next = AddOne(x, output);
      t_.Control(next, t_.AddNamed("begin", "Work", {}, TestGraph::Attr("expensive", false)));
      t_.AddNamed("end", "Later", {next});
      return next;
    });
    Compile();
    for (int step = 0; step < 3; ++step) {
      begun = running = most = 0;
      ASSERT_TRUE(RunStep().ok());
      EXPECT_FALSE(stalled) << "fewer ran at once than asked";
      EXPECT_EQ(begun, kIterations);
      EXPECT_EQ(running, 0);
      EXPECT_EQ(most, parallel);
    }
  }
};

TEST_P(ParallelIterationsTest, OneByOne) { CheckIterations(1); }
TEST_P(ParallelIterationsTest, Two) { CheckIterations(2); }
TEST_P(ParallelIterationsTest, Five) { CheckIterations(5); }

TEST_P(WhileLoopTest, LoopsNest) {
  // Every outer iteration adds one, then counts up to 10 in an inner loop, then goes on with
  // the sum of the two: 0 -> 11 -> 22 -> 33 -> 44.
  Loop outer = AddLoop(Value(0), 0, 40, "outer", 10, [this](Node* x, int output) {
    Node* plus_one = AddOne(x, output);
    // The inner limit enters the outer frame first.
    Node* zero = Enter(Value(0), 0, "outer", true, 10);
    Node* ten = Enter(Value(10), 0, "outer", true, 10);
    Node* ten_in = Enter(ten, 0, "inner", true, 10);
    Node* zero_in = Enter(zero, 0, "inner", false, 10);
    AttrMap merge_attrs = TestGraph::Attr("T", kFloat);
    merge_attrs.Set("N", int64_t{2});
    Node* merge = t_.Add("Merge", {}, merge_attrs);
    t_.Connect(zero_in, 0, merge, 0);
    Node* cond = t_.Add("LoopCond", {t_.Add("Below", {merge, ten_in})});
    Node* branch = t_.Add("Switch", {merge, cond}, TestGraph::Attr("T", kFloat));
    Node* exit = t_.Add("Exit", {branch}, TestGraph::Attr("T", kFloat));
    Node* next = t_.Add("NextIteration", {AddOne(branch, 1)}, TestGraph::Attr("T", kFloat));
    t_.Connect(next, 0, merge, 1);
    Node* sum = t_.Add("Sum", {plus_one, exit}, TestGraph::Attr("expensive", true));
    return t_.Add("Sum", {sum, t_.Add("Sum", {Enter(Value(0), 0, "outer", true, 10), zero})});
  });
  t_.Add("Keep", {outer.exit});
  Compile();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(RunStep().ok());
  EXPECT_EQ(t_.kept[0].scalar<float>(), 44);
}

TEST_P(WhileLoopTest, ALoopInABranchThatIsNotTakenIsDeadAndTheStepEnds) {
  AttrMap arg = TestGraph::Attr("T", kBool);
  arg.Set("index", int64_t{0});
  Node* branch =
      t_.Add("Switch", {Value(1), t_.Add("_Arg", {}, arg)}, TestGraph::Attr("T", kFloat));
  Loop loop =
      AddLoop(branch, 1, 20, "loop", 10, [this](Node* x, int output) { return AddOne(x, output); });
  AttrMap merge = TestGraph::Attr("T", kFloat);
  merge.Set("N", int64_t{2});
  Node* result = t_.Add("Merge", {}, merge);
  t_.Connect(branch, 0, result, 0);
  t_.Connect(loop.exit, 0, result, 1);
  t_.Add("Keep", {result});
  t_.Add("Keep", {loop.exit}, TestGraph::Attr("index", 1));
  Compile();
  for (int i = 0; i < 3; ++i) {
    t_.kept[1] = Tensor();
    ASSERT_TRUE(RunStep(Tensor::Scalar<bool>(false)).ok());
    EXPECT_EQ(t_.kept[0].scalar<float>(), 1);
    EXPECT_FALSE(t_.kept[1].IsInitialized());
    ASSERT_TRUE(RunStep(Tensor::Scalar<bool>(true)).ok());
    EXPECT_EQ(t_.kept[0].scalar<float>(), 20);
    EXPECT_EQ(t_.kept[1].scalar<float>(), 20);
  }
}

// The counter is alive, what it counts for is dead from the start: so is all that is made of it,
// in every iteration, and whoever waits for that is told.
TEST_P(WhileLoopTest, AVariableThatIsDeadWhileItsLoopRunsIsDeadInEveryIterationAndAfterwards) {
  AttrMap arg = TestGraph::Attr("T", kBool);
  arg.Set("index", int64_t{0});
  Node* branch =
      t_.Add("Switch", {Value(1), t_.Add("_Arg", {}, arg)}, TestGraph::Attr("T", kFloat));
  AttrMap merge_attrs = TestGraph::Attr("T", kFloat);
  merge_attrs.Set("N", int64_t{2});
  constexpr int kLoops = 3;
  for (int k = 0; k < kLoops; ++k) {
    const int parallel = k == 0 ? 1 : 5 * k;
    const std::string frame = "loop" + std::to_string(parallel);
    Node* variable = t_.Add("Merge", {}, merge_attrs);
    Node* enter = Enter(branch, 1, frame, false, parallel);
    t_.Connect(enter, 0, variable, 0);
    Node* inside = nullptr;
    Loop loop = AddLoop(Value(0), 0, 5, frame, parallel, [&](Node* x, int output) {
      Node* counted = AddOne(x, output);
      inside = t_.Add("Sum", {counted, variable});
      t_.Add("_Send", {inside}, TestGraph::Edge(frame + "/inside", false));
      Node* received = t_.Add("_Recv", {}, TestGraph::Edge(frame + "/inside", true));
      t_.Control(x, received);
      t_.Control(t_.Add("InPlace", {received}), t_.Add("Work"));
      return counted;
    });
    Node* cond = loop.body_input->input_edge(1)->src;
    Node* branch_of_variable = t_.Add("Switch", {variable, cond}, TestGraph::Attr("T", kFloat));
    Node* exit = t_.Add("Exit", {branch_of_variable}, TestGraph::Attr("T", kFloat));
    Node* same = t_.Add("InPlace");
    t_.Connect(branch_of_variable, 1, same, 0);
    Node* next = t_.Add("NextIteration", {same}, TestGraph::Attr("T", kFloat));
    t_.Connect(next, 0, variable, 1);
    t_.Add("_Send", {exit}, TestGraph::Edge(frame, false));
    t_.Add("Keep", {t_.Add("_Recv", {}, TestGraph::Edge(frame, true))},
           TestGraph::Attr("index", k));
    t_.Add("Keep", {loop.exit}, TestGraph::Attr("index", kLoops + k));
  }
  Compile();
  for (int i = 0; i < 3; ++i) {
    t_.runs = 0;
    t_.kept.assign(2 * kLoops, Tensor());
    ASSERT_TRUE(RunStep(Tensor::Scalar<bool>(false)).ok());
    EXPECT_EQ(t_.runs, 0);
    for (int k = 0; k < kLoops; ++k) {
      EXPECT_FALSE(t_.kept[k].IsInitialized());
      EXPECT_EQ(t_.kept[kLoops + k].scalar<float>(), 5);
    }
    t_.runs = 0;
    ASSERT_TRUE(RunStep(Tensor::Scalar<bool>(true)).ok());
    EXPECT_EQ(t_.runs, kLoops * 5);  // one in each iteration
    for (int k = 0; k < kLoops; ++k) EXPECT_EQ(t_.kept[k].scalar<float>(), 6);
  }
}

TEST_P(WhileLoopTest, EveryIterationSendsAndReceivesUnderItsOwnKey) {
  Loop loop = AddLoop(Value(0), 0, 20, "loop", 10, [this](Node* x, int output) {
    Node* sum = AddOne(x, output);
    t_.Add("_Send", {sum}, TestGraph::Edge("e", false));
    Node* received = t_.Add("_Recv", {}, TestGraph::Edge("e", true));
    t_.Control(x, received);  // every receive runs in an iteration, as the partitioner sees to
    return received;
  });
  t_.Add("Keep", {loop.exit});
  Compile();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(RunStep().ok());
  EXPECT_EQ(t_.kept[0].scalar<float>(), 20);
}

TEST_P(WhileLoopTest, AnErrorInTheBodyEndsTheStepAndTheNextOneStartsClean) {
  Loop loop = AddLoop(Value(0), 0, 20, "loop", 10, [this](Node* x, int output) {
    Node* sum = AddOne(x, output);
    Node* variable = Enter(Value(0), 0, "loop", true, 10);
    Node* v = t_.AddNamed("v", "Variable");
    t_.Control(variable, v);
    return t_.Add("Sum", {sum, v});
  });
  t_.Add("Keep", {loop.exit});
  Compile();
  for (int i = 0; i < 2; ++i) {
    {
      MutexLock lock(&t_.variable_mu);
      t_.variable = Tensor();
    }
    EXPECT_TRUE(errors::IsFailedPrecondition(RunStep()));
    {
      MutexLock lock(&t_.variable_mu);
      t_.variable = Tensor::Scalar<float>(0);
    }
    ASSERT_TRUE(RunStep().ok());
    EXPECT_EQ(t_.kept[0].scalar<float>(), 20);
  }
}

TEST_P(WhileLoopTest, AnExitOutsideOfALoopIsRefused) {
  t_.AddNamed("lost", "Exit", {Value(1)}, TestGraph::Attr("T", kFloat));
  auto compiled = t_.Compile();
  ASSERT_FALSE(compiled.ok());
  EXPECT_TRUE(errors::IsInvalidArgument(compiled.status()));
}

// Also one of which no node takes long, on whatever thread it goes round.
TEST_P(WhileLoopTest, ALoopThatDoesNotEndIsToldWithHowOftenItHasGoneRound) {
  AddLoop(Value(0), 0, 1e30f, "rounds", 2,
          [this](Node* x, int output) { return AddOne(x, output); });
  Compile();
  CancellationManager cancellation;
  std::thread step([&] {
    StepEnv env;
    env.cancellation = &cancellation;
    ExecutorArgs args;
    args.env = &env;
    args.pool = &pool_;
    EXPECT_FALSE(Executor(compiled_.get()).Run(args).ok());
  });
  const Deadline limit = DeadlineAfter(std::chrono::seconds(60));
  RunningNode told;
  while (told.rounds < 10 && SteadyClock::now() < limit) {
    for (const RunningNode& node : FindRunningNodes(&cancellation)) {
      if (!node.loop.empty()) told = node;
    }
  }
  EXPECT_EQ(told.loop, "rounds");
  EXPECT_GE(told.rounds, 10);
  EXPECT_GT(told.loop_elapsed.count(), 0);
  cancellation.StartCancel(errors::Cancelled("enough"));
  step.join();
}

INSTANTIATE_TEST_SUITE_P(Threads, WhileLoopTest, testing::Values(0, 1, 2, 8));
INSTANTIATE_TEST_SUITE_P(Threads, ParallelIterationsTest, testing::Values(0, 1, 2, 8));

}  // namespace
}  // namespace millrace
