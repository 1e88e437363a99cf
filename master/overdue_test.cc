// SPDX-License-Identifier: Apache-2.0
// Kernels that do not return: their callers are answered, and what they use stays.
#include "worker/overdue.h"

#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "master/session_test_util.h"
#include "session/async_join.h"

namespace millrace {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kCpu0[] = "/job:worker/replica:0/task:0/device:CPU:0";
// The deadline of steps that do not meet it: enough to plan them and to come to the gate.
constexpr int kLateMs = 3'000;

ClientSession::RunRequest Request(std::vector<std::string> fetches) {
  ClientSession::RunRequest request;
  request.feeds = {{"x", Tensor::Scalar<float>(2)}};
  request.fetches = std::move(fetches);
  request.options.set_timeout_in_ms(kLateMs);
  return request;
}

// gate, in the pool, after hop; late = gate + x; fine = x + x
TestGraph GatedGraph(std::string_view device = "") {
  TestGraph graph;
  graph.Placeholder("x");
  graph.Hop("hop", device);
  graph.Gate("gate", device)->add_input("^hop");
  graph.Sum("late", "gate", "x");
  graph.Sum("fine", "x", "x");
  return graph;
}

void ExpectToldOfGate(const Status& status, std::string_view device = kCpu0) {
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(std::string(Message(status)),
              AllOf(HasSubstr(StrCat("did not end within ", kLateMs, " ms")),
                    HasSubstr("/job:worker/replica:0/task:0: it still runs {{node gate}}, op "
                              "TestGate on " +
                              std::string(device) + ", in thread inter_op")));
}

// Opens what still blocks before its devices, which wait for it, go.
struct GatedCluster : TestCluster {
  using TestCluster::TestCluster;
  ~GatedCluster() { OpenGates(); }
};

class OverdueTest : public testing::Test {
 protected:
  ~OverdueTest() override { EXPECT_TRUE(WaitUntilGatesBlock(0)); }
};

TEST_F(OverdueTest, TheCallIsAnsweredAndTheSessionGoesOn) {
  GatedCluster cluster;
  auto session = cluster.NewSession(GatedGraph().def());
  ExpectToldOfGate(session->Run(Request({"late"})).status());
  EXPECT_TRUE(WaitUntilGatesBlock(1));
  const auto fine = session->Run(Request({"fine"}));
  ASSERT_TRUE(fine.ok()) << fine.status();
  EXPECT_EQ((*fine)[0].scalar<float>(), 4);
  OpenGates();
  EXPECT_TRUE(WaitUntilGatesBlock(0));
}

TEST_F(OverdueTest, APreparedCallIsAnsweredWhileItsFeedsAndFetchesStay) {
  GatedCluster cluster;
  auto session = cluster.NewSession(GatedGraph().def());
  pb::CallableOptions options;
  options.add_feed("x");
  options.add_fetch("late");
  options.mutable_run_options()->set_timeout_in_ms(kLateMs);
  const StatusOr<int64_t> callable = session->MakeCallable(options);
  ASSERT_TRUE(callable.ok()) << callable.status();
  auto prepared = session->Prepare(*callable);
  ASSERT_NE(prepared, nullptr);
  for (int i = 1; i <= 2; ++i) {  // each call has a step of its own
    const Tensor feed = Tensor::Scalar<float>(3);
    std::vector<Tensor> fetches;
    ExpectToldOfGate(prepared->Run(milliseconds(0), std::span(&feed, 1), &fetches));
    EXPECT_TRUE(fetches.empty());
    EXPECT_TRUE(WaitUntilGatesBlock(i));
  }
}

TEST_F(OverdueTest, ASessionClosesWhileItsStepGoesOn) {
  GatedCluster cluster;
  auto session = cluster.NewSession(GatedGraph().def());
  ExpectToldOfGate(session->Run(Request({"late"})).status());
  EXPECT_TRUE(session->Close().ok());
  session.reset();
  EXPECT_TRUE(WaitUntilGatesBlock(1));
  OpenGates();
}

TEST_F(OverdueTest, DevicesAreThereUntilTheKernelReturns) {
  std::thread opener;
  {
    TestCluster cluster;
    auto session = cluster.NewSession(GatedGraph().def());
    ExpectToldOfGate(session->Run(Request({"late"})).status());
    opener = std::thread([] {
      std::this_thread::sleep_for(milliseconds(20));  // the cluster waits by now, or comes later
      OpenGates();
    });
  }
  EXPECT_TRUE(WaitUntilGatesBlock(0));
  opener.join();
}

TEST_F(OverdueTest, AStepOfAWorkerIsAnsweredAndItsDevicesNamed) {
  GatedCluster cluster({.num_cpus = 2});
  const std::string device = "/job:worker/replica:0/task:0/device:CPU:1";
  auto session = cluster.NewSession(GatedGraph(device).def());
  ExpectToldOfGate(session->Run(Request({"late"})).status(), device);
  EXPECT_TRUE(WaitUntilGatesBlock(1));
  OpenGates();
  EXPECT_TRUE(WaitUntilGatesBlock(0));
  EXPECT_TRUE(session->Run(Request({"fine"})).ok());
}

TEST_F(OverdueTest, ARunGraphWithADeadlineOfItsOwnIsAnswered) {
  GatedCluster cluster({.num_tasks = 2});
  auto session = cluster.NewSession(GatedGraph("/job:worker/task:1").def());
  const Status status = session->Run(Request({"late"})).status();
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(std::string(Message(status)),
              HasSubstr("/job:worker/replica:0/task:1: it still runs {{node gate}}"));
}

// A call whose own thread is in the kernel cannot return; but whoever is told by callback is.
class CallersThreadTest : public OverdueTest {
 protected:
  // One run on a thread of its own; what it is told before the gate is opened.
  Status ToldBeforeTheGateOpens(ClientSession* session, TestCluster* cluster) {
    RunStepArgs args;
    args.session_handle = session->handle();
    args.feeds = {{"x", Tensor::Scalar<float>(2)}};
    args.fetches = {"late"};
    args.options.set_timeout_in_ms(kLateMs);
    RunStepResult result;
    Notification told;
    Status status;
    std::thread caller([&] {
      cluster->master()->RunStepAsync({}, &args, &result, [&](Status given) {
        status = std::move(given);
        told.Notify();
      });
    });
    EXPECT_TRUE(told.WaitUntil(DeadlineAfter(std::chrono::seconds(60))));
    EXPECT_TRUE(WaitUntilGatesBlock(1));
    OpenGates();
    caller.join();
    return status;
  }
  // Without hop: there is no pool to go to.
  static TestGraph Graph(std::string_view device) {
    TestGraph graph;
    graph.Placeholder("x");
    graph.Gate("gate", device);
    graph.Sum("late", "gate", "x", "/job:worker/task:0");
    return graph;
  }
};

TEST_F(CallersThreadTest, ADirectStepIsTold) {
  GatedCluster cluster({.num_threads = 0});
  auto session = cluster.NewSession(Graph("").def());
  const Status status = ToldBeforeTheGateOpens(session.get(), &cluster);
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr("it still runs {{node gate}}, op TestGate"));
}

TEST_F(CallersThreadTest, AStepOfSeveralTasksIsToldThoughItsOtherPartsWereNotStarted) {
  for (const std::string device : {"/job:worker/task:0", "/job:worker/task:1"}) {
    GatedCluster cluster({.num_tasks = 2, .num_threads = 0});
    TestGraph graph = Graph(device);
    graph.Sum("far", "x", "x", "/job:worker/task:1");
    graph.Sum("late2", "late", "far", "/job:worker/task:0");
    auto session = cluster.NewSession(graph.def());
    const Status status = ToldBeforeTheGateOpens(session.get(), &cluster);
    EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status;
    EXPECT_THAT(std::string(Message(status)), HasSubstr("it still runs {{node gate}}"));
  }
}

TEST_F(OverdueTest, ThePartialRunThatEndsAStepIsAnswered) {
  GatedCluster cluster;
  TestGraph graph = GatedGraph();
  auto session = cluster.NewSession(graph.def());
  const auto handle = session->PartialRunSetup({"x"}, {"fine"}, {"gate"});
  ASSERT_TRUE(handle.ok()) << handle.status();
  RunStepArgs args;
  args.session_handle = session->handle();
  args.partial_run_handle = *handle;
  args.feeds = {{"x", Tensor::Scalar<float>(2)}};
  args.fetches = {"fine"};
  args.options.set_timeout_in_ms(kLateMs);
  RunStepResult result;
  const Status status =
      Await([&](auto done) { cluster.master()->RunStepAsync({}, &args, &result, done); });
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr("it still runs {{node gate}}"));
  EXPECT_TRUE(WaitUntilGatesBlock(1));
}

TEST_F(OverdueTest, NobodyIsNamedWhereNobodyRuns) {
  const CancellationManager nothing;
  EXPECT_THAT(DescribeOverdue(&nothing), HasSubstr("no thread runs a kernel of it"));
}

}  // namespace
}  // namespace millrace
