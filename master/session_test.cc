// SPDX-License-Identifier: Apache-2.0
// What a session does, as its client sees it.
#include <atomic>
#include <chrono>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "master/session_test_util.h"
#include "session/async_join.h"

namespace millrace {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Tensor F(float value) { return Tensor::Scalar(value); }

std::vector<float> Values(const StatusOr<std::vector<Tensor>>& tensors) {
  std::vector<float> values;
  if (!tensors.ok()) {
    ADD_FAILURE() << tensors.status();
    return values;
  }
  for (const Tensor& tensor : *tensors) values.push_back(tensor.scalar<float>());
  return values;
}

#define EXPECT_ERROR(result, code_, text)                       \
  do {                                                          \
    const Status mr_got = (result).status();                    \
    EXPECT_EQ(mr_got.code(), StatusCode::code_) << mr_got;      \
    EXPECT_THAT(std::string(Message(mr_got)), HasSubstr(text)); \
  } while (0)

// x (a placeholder) + one = y, y + y = z
TestGraph SmallGraph() {
  TestGraph graph;
  graph.Placeholder("x");
  graph.Const("one", 1);
  graph.Sum("y", "x", "one");
  graph.Sum("z", "y", "y");
  return graph;
}

class SessionTest : public ::testing::Test {
 protected:
  TestCluster cluster_;
};

TEST_F(SessionTest, ComputesAFetchFromAFeed) {
  auto session = cluster_.NewSession(SmallGraph().def());
  EXPECT_THAT(Values(session->Run({{"x", F(2)}}, {"z"})), ElementsAre(6));
}

TEST_F(SessionTest, RunsTheSameSignatureAgainWithOtherValues) {
  auto session = cluster_.NewSession(SmallGraph().def());
  for (int i = 0; i < 5; ++i) {
    EXPECT_THAT(Values(session->Run({{"x:0", F(i)}}, {"y:0"})), ElementsAre(i + 1));
  }
}

TEST_F(SessionTest, ANameWithoutIndexMeansItsFirstOutput) {
  auto session = cluster_.NewSession(SmallGraph().def());
  EXPECT_THAT(Values(session->Run({{"x:0", F(1)}}, {"y", "y:0"})), ElementsAre(2, 2));
  EXPECT_THAT(Values(session->Run({{"x", F(1)}}, {"y:0"})), ElementsAre(2));
}

TEST_F(SessionTest, FetchesComeInTheOrderOfTheRequestAndMayRepeat) {
  auto session = cluster_.NewSession(SmallGraph().def());
  EXPECT_THAT(Values(session->Run({{"x", F(1)}}, {"z", "y", "z", "one"})), ElementsAre(4, 2, 4, 1));
  EXPECT_THAT(Values(session->Run({{"x", F(1)}}, {"one", "z", "y"})), ElementsAre(1, 4, 2));
}

TEST_F(SessionTest, AnIntermediateValueCanBeFed) {
  auto session = cluster_.NewSession(SmallGraph().def());
  EXPECT_THAT(Values(session->Run({{"y", F(10)}}, {"z"})), ElementsAre(20));
}

TEST_F(SessionTest, TargetsRunWithoutBeingFetched) {
  TestGraph graph;
  graph.Counter("count");
  auto session = cluster_.NewSession(graph.def());
  EXPECT_TRUE(session->Run({}, {}, {"count"}).ok());
  EXPECT_TRUE(session->Run({}, {}, {"count"}).ok());
  EXPECT_THAT(Values(session->Run({}, {"count"})), ElementsAre(3));
}

TEST_F(SessionTest, WhatIsNotNeededDoesNotRun) {
  TestGraph graph = SmallGraph();
  graph.Fail("broken");
  auto session = cluster_.NewSession(graph.def());
  EXPECT_THAT(Values(session->Run({{"x", F(0)}}, {"y"})), ElementsAre(1));
}

TEST_F(SessionTest, AControlInputRunsFirst) {
  TestGraph graph;
  graph.Counter("count");
  graph.Const("one", 1)->add_input("^count");
  auto session = cluster_.NewSession(graph.def());
  EXPECT_THAT(Values(session->Run({}, {"one"})), ElementsAre(1));
  EXPECT_THAT(Values(session->Run({}, {"count"})), ElementsAre(2));
}

TEST_F(SessionTest, SaysWhatIsWrongWithARequest) {
  auto session = cluster_.NewSession(SmallGraph().def());
  EXPECT_ERROR(session->Run({}, {}), kInvalidArgument, "Must specify at least one target");
  EXPECT_ERROR(session->Run({{"x", F(1)}, {"x:0", F(1)}}, {"y"}), kInvalidArgument,
               "Endpoint \"x:0\" fed more than once.");
  EXPECT_ERROR(session->Run({{"x", F(1)}}, {"x"}), kInvalidArgument, "both fed and fetched");
  EXPECT_ERROR(session->Run({{"nope", F(1)}}, {"y"}), kNotFound,
               "FeedInputs: unable to find feed output nope:0");
  EXPECT_ERROR(session->Run({{"x:3", F(1)}}, {"y"}), kInvalidArgument, "output index < 1");
  EXPECT_ERROR(session->Run({{"x", F(1)}}, {"nope"}), kNotFound,
               "FetchOutputs node nope:0: not found");
  EXPECT_ERROR(session->Run({{"x", F(1)}}, {"y:1"}), kInvalidArgument, "output index too large");
  EXPECT_ERROR(session->Run({{"x", F(1)}}, {"y"}, {"nope", "never"}), kNotFound,
               "PruneForTargets: Some target nodes not found: never nope");
  // None of it harms the session.
  EXPECT_THAT(Values(session->Run({{"x", F(1)}}, {"y"})), ElementsAre(2));
}

TEST_F(SessionTest, AFailingKernelEndsTheStepWithItsErrorNodeAndTask) {
  TestGraph graph;
  graph.Fail("broken");
  graph.Const("fine", 1);
  auto session = cluster_.NewSession(graph.def());
  const auto result = session->Run({}, {"broken"});
  EXPECT_ERROR(result, kInvalidArgument, "From /job:worker/replica:0/task:0:\nbad luck");
  EXPECT_ERROR(result, kInvalidArgument, "{{node broken}}");
  EXPECT_THAT(Values(session->Run({}, {"fine"})), ElementsAre(1));
}

TEST_F(SessionTest, AFailureEndsWhatIsBlockedAndIsTheErrorThatIsTold) {
  TestGraph graph;
  graph.Block("blocked");
  graph.Fail("broken");
  auto session = cluster_.NewSession(graph.def());
  EXPECT_ERROR(session->Run({}, {"blocked", "broken"}), kInvalidArgument, "bad luck");
}

TEST_F(SessionTest, AnUnfedPlaceholderIsAnError) {
  auto session = cluster_.NewSession(SmallGraph().def());
  EXPECT_ERROR(session->Run({}, {"y"}), kInvalidArgument, "You must feed a value");
}

TEST_F(SessionTest, ABadGraphDoesNotOpenASession) {
  TestGraph unknown_op;
  unknown_op.Add("a", "NoSuchOp");
  EXPECT_ERROR(ClientSession::Create(cluster_.master(), unknown_op.def(), {}), kNotFound,
               "Op type not registered 'NoSuchOp'");
  TestGraph unknown_device;
  unknown_device.Const("a", 1, "/job:nowhere/task:7");
  EXPECT_ERROR(ClientSession::Create(cluster_.master(), unknown_device.def(), {}), kInvalidArgument,
               "Cannot assign a device for operation a");
  ClientSession::Options options;
  options.config.add_device_filters("/job:/nonsense");
  EXPECT_ERROR(ClientSession::Create(cluster_.master(), SmallGraph().def(), options),
               kInvalidArgument, "filter");
}

TEST_F(SessionTest, GrowsByExtend) {
  auto session = cluster_.NewSession(TestGraph().def());
  ASSERT_TRUE(session->Extend(SmallGraph().def()).ok());
  EXPECT_THAT(Values(session->Run({{"x", F(1)}}, {"y"})), ElementsAre(2));
  TestGraph more;
  more.Sum("w", "z", "y");
  ASSERT_TRUE(session->Extend(more.def()).ok());
  EXPECT_THAT(Values(session->Run({{"x", F(1)}}, {"w", "y"})), ElementsAre(6, 2));
}

TEST_F(SessionTest, AFailedExtendLeavesTheOldGraph) {
  auto session = cluster_.NewSession(SmallGraph().def());
  TestGraph again;
  again.Const("new", 1);
  again.Const("one", 2);
  const Status repeated = session->Extend(again.def());
  EXPECT_EQ(repeated.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(Message(repeated)),
              HasSubstr("node 'one', which was created by a previous call to Create or Extend"));
  TestGraph dangling;
  dangling.Const("new", 1);
  dangling.Identity("copy", "not_there");
  EXPECT_EQ(session->Extend(dangling.def()).code(), StatusCode::kInvalidArgument);

  EXPECT_ERROR(session->Run({}, {"new"}), kNotFound, "new:0");
  EXPECT_THAT(Values(session->Run({{"x", F(1)}}, {"y"})), ElementsAre(2));
  TestGraph good;
  good.Const("new", 7);
  ASSERT_TRUE(session->Extend(good.def()).ok());
  EXPECT_THAT(Values(session->Run({}, {"new"})), ElementsAre(7));
}

TEST_F(SessionTest, ExtendWithAStaleVersionIsAborted) {
  auto session = cluster_.NewSession(SmallGraph().def());
  ExtendSessionArgs args;
  args.session_handle = session->handle();
  args.current_graph_version = 7;
  int64_t version = 0;
  const Status status = Await([&](auto done) {
    cluster_.master()->ExtendSessionAsync({}, std::move(args), &version, done);
  });
  EXPECT_EQ(status.code(), StatusCode::kAborted);
  EXPECT_THAT(std::string(Message(status)),
              HasSubstr("Current version is 0 but caller expected 7."));
}

TEST_F(SessionTest, StateLivesInTheTaskAndIsSharedBySessions) {
  TestGraph graph;
  graph.Counter("count");
  auto first = cluster_.NewSession(graph.def());
  EXPECT_THAT(Values(first->Run({}, {"count"})), ElementsAre(1));
  auto second = cluster_.NewSession(graph.def());
  EXPECT_THAT(Values(second->Run({}, {"count"})), ElementsAre(2));
  ASSERT_TRUE(first->Close().ok());
  EXPECT_THAT(Values(second->Run({}, {"count"})), ElementsAre(3));
}

TEST_F(SessionTest, AnIsolatedSessionHasStateOfItsOwn) {
  TestGraph graph;
  graph.Counter("count");
  auto shared = cluster_.NewSession(graph.def());
  EXPECT_THAT(Values(shared->Run({}, {"count"})), ElementsAre(1));
  ClientSession::Options options;
  options.config.set_isolate_session_state(true);
  auto isolated = cluster_.NewSession(graph.def(), options);
  EXPECT_THAT(Values(isolated->Run({}, {"count"})), ElementsAre(1));
  EXPECT_THAT(Values(shared->Run({}, {"count"})), ElementsAre(2));
}

TEST_F(SessionTest, ResetClosesSessionsAndClearsState) {
  TestGraph graph;
  graph.Counter("count");
  auto session = cluster_.NewSession(graph.def());
  EXPECT_THAT(Values(session->Run({}, {"count"})), ElementsAre(1));
  ASSERT_TRUE(Await([&](auto done) { cluster_.master()->ResetAsync({}, {}, {}, done); }).ok());
  EXPECT_ERROR(session->Run({}, {"count"}), kAborted,
               "Session " + session->handle() + " is not found.");
  auto fresh = cluster_.NewSession(graph.def());
  EXPECT_THAT(Values(fresh->Run({}, {"count"})), ElementsAre(1));
}

TEST_F(SessionTest, CloseCancelsABlockedRun) {
  TestGraph graph;
  graph.Block("blocked");
  auto session = cluster_.NewSession(graph.def());
  std::thread runner(
      [&] { EXPECT_ERROR(session->Run({}, {"blocked"}), kCancelled, "Session::Close()"); });
  EXPECT_TRUE(cluster_.WaitUntilBlocked(1));
  EXPECT_TRUE(session->Close().ok());
  runner.join();
  EXPECT_TRUE(cluster_.WaitUntilBlocked(0));
}

TEST_F(SessionTest, AClosedSessionIsNotFound) {
  auto session = cluster_.NewSession(SmallGraph().def());
  ASSERT_TRUE(session->Close().ok());
  ASSERT_TRUE(session->Close().ok());
  const std::string text = "Session " + session->handle() + " is not found.";
  EXPECT_ERROR(session->Run({{"x", F(1)}}, {"y"}), kAborted, text);
  EXPECT_ERROR(session->ListDevices(), kInvalidArgument, text);
  const Status again =
      Await([&](auto done) { cluster_.master()->CloseSessionAsync({}, session->handle(), done); });
  EXPECT_THAT(std::string(Message(again)),
              HasSubstr(text + " Possibly, this master has restarted."));
}

TEST_F(SessionTest, ATimeoutEndsTheRunAndNamesWhatItWaitedFor) {
  TestGraph graph;
  graph.Block("blocked");
  graph.Const("fine", 1);
  auto session = cluster_.NewSession(graph.def());
  ClientSession::RunRequest request;
  request.fetches = {"blocked"};
  request.options.set_timeout_in_ms(3'000);
  const auto result = session->Run(std::move(request));
  EXPECT_ERROR(result, kDeadlineExceeded, "3000 ms");
  EXPECT_ERROR(result, kDeadlineExceeded, "{{node blocked}}");
  EXPECT_ERROR(result, kDeadlineExceeded, "/job:worker/replica:0/task:0");
  EXPECT_TRUE(cluster_.WaitUntilBlocked(0));
  EXPECT_THAT(Values(session->Run({}, {"fine"})), ElementsAre(1));
}

TEST_F(SessionTest, TheTimeoutOfTheSessionHoldsForRunsThatNameNone) {
  TestGraph graph;
  graph.Block("blocked");
  ClientSession::Options options;
  options.step_timeout = milliseconds(3'000);
  auto session = cluster_.NewSession(graph.def(), options);
  EXPECT_ERROR(session->Run({}, {"blocked"}), kDeadlineExceeded, "3000 ms");
  options.step_timeout = milliseconds(0);
  options.config.set_operation_timeout_in_ms(3'500);
  auto stock = cluster_.NewSession(graph.def(), options);
  EXPECT_ERROR(stock->Run({}, {"blocked"}), kDeadlineExceeded, "3500 ms");
}

TEST_F(SessionTest, ACallerCanCancelItsRun) {
  TestGraph graph;
  graph.Block("blocked");
  auto session = cluster_.NewSession(graph.def());
  CancellationManager cancellation;
  std::thread runner([&] {
    ClientSession::RunRequest request;
    request.fetches = {"blocked"};
    EXPECT_ERROR(session->Run(std::move(request), nullptr, &cancellation), kCancelled,
                 "cancelled by its caller");
  });
  EXPECT_TRUE(cluster_.WaitUntilBlocked(1));
  cancellation.StartCancel(errors::Cancelled("enough"));
  runner.join();
  ClientSession::RunRequest late;
  late.fetches = {"blocked"};
  EXPECT_ERROR(session->Run(std::move(late), nullptr, &cancellation), kCancelled, "cancelled");
}

TEST_F(SessionTest, ManyRunsAtOnceDoNotDisturbEachOther) {
  auto session = cluster_.NewSession(SmallGraph().def());
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        const float x = static_cast<float>(1000 * t + i);
        const bool deep = i % 2 == 0;
        auto result = session->Run({{"x", F(x)}}, {deep ? "z" : "y"});
        const float expected = deep ? 2 * (x + 1) : x + 1;
        if (!result.ok() || (*result)[0].scalar<float>() != expected) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(SessionTest, ManySessionsOpenRunAndCloseAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10; ++i) {
        auto session = cluster_.NewSession(SmallGraph().def());
        EXPECT_THAT(Values(session->Run({{"x", F(1)}}, {"y"})), ElementsAre(2));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(SessionTest, ACallableTakesItsFeedsByPosition) {
  TestGraph graph;
  graph.Placeholder("b");
  graph.Placeholder("a");
  graph.Sum("double_b", "b", "b");
  graph.Sum("sum", "a", "double_b");
  auto session = cluster_.NewSession(graph.def());
  pb::CallableOptions options;
  options.add_feed("b");
  options.add_feed("a:0");
  options.add_fetch("sum:0");
  options.add_fetch("double_b");
  const auto callable = session->MakeCallable(options);
  ASSERT_TRUE(callable.ok()) << callable.status();
  EXPECT_EQ(*callable, 0);
  EXPECT_THAT(Values(session->RunCallable(*callable, {F(10), F(1)})), ElementsAre(21, 20));
  EXPECT_THAT(Values(session->RunCallable(*callable, {F(20), F(2)})), ElementsAre(42, 40));
  EXPECT_ERROR(session->RunCallable(*callable, {F(20)}), kInvalidArgument,
               "Expected 2 feed tensors, but got 1");
  EXPECT_ERROR(session->RunCallable(5, {}), kInvalidArgument, "No such callable handle: 5");
  EXPECT_TRUE(session->ReleaseCallable(*callable).ok());
  EXPECT_ERROR(session->RunCallable(*callable, {F(10), F(1)}), kInvalidArgument,
               "Attempted to run callable after handle was released: 0");
  EXPECT_EQ(session->ReleaseCallable(5).code(), StatusCode::kInvalidArgument);
}

TEST_F(SessionTest, ACallableCanConnectOneTensorToAnother) {
  TestGraph graph = SmallGraph();
  graph.Const("five", 5);
  auto session = cluster_.NewSession(graph.def());
  const auto connect = [&](std::string from, std::string to) {
    pb::CallableOptions options;
    options.add_fetch("z");
    options.add_feed("x");
    options.add_tensor_connection()->set_from_tensor(from);
    options.mutable_tensor_connection(0)->set_to_tensor(to);
    return session->MakeCallable(options);
  };
  const auto callable = connect("five:0", "one:0");
  ASSERT_TRUE(callable.ok()) << callable.status();
  EXPECT_THAT(Values(session->RunCallable(*callable, {F(1)})), ElementsAre(12));
  EXPECT_ERROR(connect("nope:0", "one:0"), kInvalidArgument, "unknown node");
  EXPECT_ERROR(connect("five:1", "one:0"), kInvalidArgument, "unknown edge");
  EXPECT_ERROR(connect("five:0", "nope:0"), kNotFound, "unable to find feed output");
  EXPECT_ERROR(connect("z:0", "one:0"), kInvalidArgument, "would create a cycle");
  EXPECT_ERROR(connect("five:0", "x:0"), kInvalidArgument, "fed more than once");
}

TEST_F(SessionTest, APartialRunIsFedAndFetchedInSeveralCalls) {
  TestGraph graph;
  graph.Placeholder("a");
  graph.Placeholder("b");
  graph.Sum("two_a", "a", "a");
  graph.Sum("sum", "two_a", "b");
  auto session = cluster_.NewSession(graph.def());
  for (int i = 1; i <= 2; ++i) {
    const auto handle = session->PartialRunSetup({"a", "b:0"}, {"two_a:0", "sum"}, {});
    ASSERT_TRUE(handle.ok()) << handle.status();
    EXPECT_ERROR(session->PartialRun(*handle, {{"a", F(i)}}, {"sum"}), kInvalidArgument,
                 "can't be computed from the feeds that have been fed so far.");
    EXPECT_THAT(Values(session->PartialRun(*handle, {{"a:0", F(i)}}, {"two_a"})),
                ElementsAre(2 * i));
    EXPECT_ERROR(session->PartialRun(*handle, {{"a", F(1)}}, {}), kInvalidArgument,
                 "has already been fed.");
    EXPECT_ERROR(session->PartialRun(*handle, {{"c", F(1)}}, {}), kInvalidArgument,
                 "was not specified in partial_run_setup.");
    EXPECT_ERROR(session->PartialRun(*handle, {}, {"two_a"}), kInvalidArgument,
                 "has already been fetched.");
    EXPECT_THAT(Values(session->PartialRun(*handle, {{"b", F(100)}}, {"sum"})),
                ElementsAre(100 + 2 * i));
    EXPECT_ERROR(session->PartialRun(*handle, {}, {"sum"}), kInvalidArgument, "PartialRunSetup");
  }
}

TEST_F(SessionTest, ASessionWithAnUnfinishedPartialRunCanBeClosed) {
  TestGraph graph = SmallGraph();
  auto session = cluster_.NewSession(graph.def());
  const auto handle = session->PartialRunSetup({"x"}, {"y", "one"}, {});
  ASSERT_TRUE(handle.ok()) << handle.status();
  EXPECT_THAT(Values(session->PartialRun(*handle, {}, {"one"})), ElementsAre(1));
  EXPECT_TRUE(session->Close().ok());
}

TEST_F(SessionTest, ListsItsDevices) {
  auto session = cluster_.NewSession(SmallGraph().def());
  const auto devices = session->ListDevices();
  ASSERT_TRUE(devices.ok());
  ASSERT_EQ(devices->local_devices.size(), 1u);
  EXPECT_EQ(devices->local_devices[0].name(), "/job:worker/replica:0/task:0/device:CPU:0");
  EXPECT_EQ(devices->local_devices[0].incarnation(), cluster_.device()->incarnation());
  EXPECT_TRUE(devices->remote_devices.empty());
}

TEST_F(SessionTest, ReportsPartitionGraphsAndTimesOnlyIfAsked) {
  auto session = cluster_.NewSession(SmallGraph().def());
  ClientSession::RunRequest request;
  request.feeds = {{"x", F(1)}};
  request.fetches = {"y"};
  pb::RunMetadata metadata;
  ASSERT_TRUE(session->Run(request, &metadata).ok());
  EXPECT_EQ(metadata.partition_graphs_size(), 0);
  EXPECT_FALSE(metadata.has_step_stats());
  request.options.set_output_partition_graphs(true);
  request.options.set_trace_level(pb::RunOptions::SOFTWARE_TRACE);
  ASSERT_TRUE(session->Run(request, &metadata).ok());
  ASSERT_EQ(metadata.partition_graphs_size(), 1);
  std::vector<std::string> names;
  for (const auto& node : metadata.partition_graphs(0).node()) names.push_back(node.name());
  EXPECT_THAT(names, ::testing::UnorderedElementsAre("one", "y", "_recv_x_0", "_send_y_0"));
  ASSERT_EQ(metadata.step_stats().dev_stats_size(), 1);
  EXPECT_EQ(metadata.step_stats().dev_stats(0).device(),
            "/job:worker/replica:0/task:0/device:CPU:0");
  EXPECT_GE(metadata.step_stats().dev_stats(0).node_stats_size(), 3);
}

TEST_F(SessionTest, TellsCostsOfEveryThirdStepAfterTwoIfAsked) {
  ClientSession::Options options;
  options.config.mutable_graph_options()->set_build_cost_model(3);
  options.config.mutable_graph_options()->set_build_cost_model_after(2);
  auto session = cluster_.NewSession(SmallGraph().def(), options);
  ClientSession::RunRequest request;
  request.feeds = {{"x", F(1)}};
  request.fetches = {"y"};
  for (int step = 0; step < 9; ++step) {
    pb::RunMetadata metadata;
    ASSERT_TRUE(session->Run(request, &metadata).ok());
    EXPECT_EQ(metadata.has_cost_graph(), step == 4 || step == 7) << step;
    EXPECT_FALSE(metadata.has_step_stats());
    EXPECT_EQ(metadata.partition_graphs_size(), 0);
    if (!metadata.has_cost_graph()) continue;
    std::map<std::string, pb::CostGraphDef::Node> nodes;
    for (const auto& node : metadata.cost_graph().node()) nodes[node.name()] = node;
    ASSERT_EQ(nodes.size(), 6u);  // _SOURCE, _SINK, one, y, _recv_x_0, _send_y_0
    const pb::CostGraphDef::Node& y = nodes["y"];
    EXPECT_EQ(y.device(), "/job:worker/replica:0/task:0/device:CPU:0");
    ASSERT_EQ(y.input_info_size(), 2);
    EXPECT_EQ(y.input_info(0).preceding_node(), nodes["_recv_x_0"].id());
    EXPECT_EQ(y.input_info(1).preceding_node(), nodes["one"].id());
    ASSERT_EQ(y.output_info_size(), 1);
    EXPECT_EQ(y.output_info(0).size(), 4);
    EXPECT_EQ(y.output_info(0).dtype(), pb::DT_FLOAT);
    EXPECT_GE(y.compute_cost(), 0);
    EXPECT_TRUE(nodes["_send_y_0"].is_final());
    EXPECT_FALSE(y.is_final());
  }
}

TEST(TwoDevicesTest, ValuesAndControlCrossDevices) {
  TestCluster cluster({.num_cpus = 2});
  TestGraph graph;
  graph.Placeholder("x");
  graph.Counter("count", "/device:CPU:1");
  graph.Sum("y", "x", "x", "/device:CPU:1");
  graph.Sum("z", "y", "x", "/device:CPU:0")->add_input("^count");
  auto session = cluster.NewSession(graph.def());
  for (int i = 1; i <= 3; ++i) {
    EXPECT_THAT(Values(session->Run({{"x", F(2)}}, {"z", "y"})), ElementsAre(6, 4));
  }
  EXPECT_THAT(Values(session->Run({}, {"count"})), ElementsAre(4));
}

TEST(TwoDevicesTest, AFailureOnOneEndsWhatWaitsOnTheOther) {
  TestCluster cluster({.num_cpus = 2});
  TestGraph graph;
  graph.Fail("broken", "/device:CPU:1");
  graph.Identity("after", "broken", "/device:CPU:0");
  graph.Block("blocked", "/device:CPU:0");
  auto session = cluster.NewSession(graph.def());
  EXPECT_ERROR(session->Run({}, {"after", "blocked"}), kInvalidArgument, "bad luck");
}

class TwoTasksTest : public ::testing::Test {
 protected:
  TestCluster cluster_{{.num_tasks = 2}};
};

TEST_F(TwoTasksTest, AStepSpansTasks) {
  TestGraph graph;
  graph.Placeholder("x");
  graph.Sum("y", "x", "x", "/job:worker/task:1");
  graph.Sum("z", "y", "x", "/job:worker/task:0");
  for (int task = 0; task < 2; ++task) {
    auto session = cluster_.NewSession(graph.def(), {}, task);
    for (int i = 1; i <= 3; ++i) {
      EXPECT_THAT(Values(session->Run({{"x", F(i)}}, {"z", "y"})), ElementsAre(3 * i, 2 * i));
    }
  }
}

TEST_F(TwoTasksTest, AFailureElsewhereEndsTheStepAndNamesItsTask) {
  TestGraph graph;
  graph.Fail("broken", "/job:worker/task:1");
  graph.Block("blocked", "/job:worker/task:0");
  graph.Identity("after", "broken", "/job:worker/task:0");
  auto session = cluster_.NewSession(graph.def());
  EXPECT_ERROR(session->Run({}, {"after", "blocked"}), kInvalidArgument,
               "From /job:worker/replica:0/task:1:\nbad luck");
}

TEST_F(TwoTasksTest, ATimeoutEndsAllTasks) {
  TestGraph graph;
  graph.Block("here", "/job:worker/task:0");
  graph.Block("there", "/job:worker/task:1");
  auto session = cluster_.NewSession(graph.def());
  ClientSession::RunRequest request;
  request.targets = {"here", "there"};
  request.options.set_timeout_in_ms(1'000);
  const auto result = session->Run(std::move(request));
  EXPECT_ERROR(result, kDeadlineExceeded, "{{node here}}");
  EXPECT_ERROR(result, kDeadlineExceeded, "{{node there}}");
  EXPECT_TRUE(cluster_.WaitUntilBlocked(0));
}

TEST_F(TwoTasksTest, DeviceFiltersHideOtherTasks) {
  TestGraph graph;
  graph.Const("far", 1, "/job:worker/task:1");
  ClientSession::Options options;
  options.config.add_device_filters("/job:worker/task:0");
  EXPECT_ERROR(ClientSession::Create(cluster_.master(), graph.def(), options), kInvalidArgument,
               "Cannot assign a device for operation far");
  TestGraph empty;
  auto session = cluster_.NewSession(empty.def(), options);
  const auto devices = session->ListDevices();
  ASSERT_TRUE(devices.ok());
  EXPECT_EQ(devices->local_devices.size(), 1u);
}

TEST_F(TwoTasksTest, AWorkerThatForgotTheSessionSaysSo) {
  TestGraph graph;
  graph.Const("far", 1, "/job:worker/task:1");
  auto session = cluster_.NewSession(graph.def());
  EXPECT_THAT(Values(session->Run({}, {"far"})), ElementsAre(1));
  ASSERT_TRUE(Await([&](auto done) {
                cluster_.worker(1).DeleteSessionAsync({}, session->handle(), done);
              }).ok());
  const auto result = session->Run({}, {"far"});
  EXPECT_ERROR(result, kAborted,
               "Session handle is not found: " + session->handle() +
                   ". Possibly this worker (\"/job:worker/replica:0/task:1\") just restarted.");
  EXPECT_TRUE(result.status().GetPayload(kWorkerRestartedPayload).has_value());
}

TEST_F(TwoTasksTest, PartialRunsSpanTasks) {
  TestGraph graph;
  graph.Placeholder("a");
  graph.Placeholder("b");
  graph.Sum("two_a", "a", "a", "/job:worker/task:1");
  graph.Sum("sum", "two_a", "b", "/job:worker/task:1");
  auto session = cluster_.NewSession(graph.def());
  const auto handle = session->PartialRunSetup({"a", "b"}, {"two_a", "sum"}, {});
  ASSERT_TRUE(handle.ok()) << handle.status();
  EXPECT_THAT(Values(session->PartialRun(*handle, {{"a", F(1)}}, {"two_a"})), ElementsAre(2));
  EXPECT_THAT(Values(session->PartialRun(*handle, {{"b", F(5)}}, {"sum"})), ElementsAre(7));
}

TEST(CallersThreadTest, EverythingRunsInItWithoutAPool) {
  TestCluster cluster({.num_tasks = 2, .num_cpus = 2, .num_threads = 0});
  TestGraph graph;
  graph.Placeholder("x");
  graph.Sum("y", "x", "x", "/job:worker/task:1/device:CPU:1");
  graph.Sum("z", "y", "x", "/job:worker/task:0/device:CPU:1");
  auto session = cluster.NewSession(graph.def());
  EXPECT_THAT(Values(session->Run({{"x", F(1)}}, {"z"})), ElementsAre(3));
}

}  // namespace
}  // namespace millrace
