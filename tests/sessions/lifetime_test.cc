// SPDX-License-Identifier: Apache-2.0
// Sessions, callables and graphs that end in any order, and options that cannot be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "millrace/core.h"
#include "tests/cluster/in_process_cluster.h"

namespace millrace {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

std::string Text(const Status& status) { return std::string(Message(status)); }

// In this process, and at a server.
class LifetimeTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (!GetParam()) return;
    cluster_ = std::make_unique<testing::InProcessCluster>(0, 1);
    options_.target = cluster_->Target("worker", 0);
  }
  std::unique_ptr<testing::InProcessCluster> cluster_;
  SessionOptions options_;
};

INSTANTIATE_TEST_SUITE_P(All, LifetimeTest, ::testing::Bool(), [](const auto& info) {
  return info.param ? "AtAServer" : "InThisProcess";
});

TEST_P(LifetimeTest, ASessionOutlivesItsGraph) {
  StatusOr<Session> session;
  Output c;
  {
    Graph graph;
    c = ops::Add(graph.root(), Constant(graph.root(), Tensor::Scalar(1.0f)), 2.0f);
    session = Session::Create(graph, options_);
    ASSERT_TRUE(session.ok()) << session.status();
  }
  const auto value = session->Eval(c);
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(value->scalar<float>(), 3);
  EXPECT_TRUE(session->MakeCallable({}, {{c}})->Run({}).ok());
}

TEST_P(LifetimeTest, AGraphMayBeMovedUnderItsSession) {
  Graph graph;
  const Output one = Constant(graph.root(), Tensor::Scalar(1.0f));
  auto session = Session::Create(graph, options_);
  ASSERT_TRUE(session.ok()) << session.status();
  Graph moved = std::move(graph);
  const Output two = ops::Add(moved.root(), one, one);
  const auto value = session->Eval(two);
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(value->scalar<float>(), 2);
  EXPECT_TRUE(errors::IsFailedPrecondition(Session::Create(graph, options_).status()));
}

TEST_P(LifetimeTest, ACallableOutlivesItsSession) {
  Graph graph;
  const Output x = Placeholder(graph.root(), kFloat, PartialShape({}));
  const Output y = ops::Neg(graph.root(), x);
  StatusOr<Callable> callable;
  {
    auto session = Session::Create(graph, options_);
    ASSERT_TRUE(session.ok()) << session.status();
    callable = session->MakeCallable({{x}}, {{y}});
    ASSERT_TRUE(callable.ok()) << callable.status();
    EXPECT_TRUE(callable->Run({{Tensor::Scalar(1.0f)}}).ok());
  }
  const Status status = callable->Run({{Tensor::Scalar(1.0f)}}).status();
  EXPECT_TRUE(errors::IsFailedPrecondition(status)) << status;
  EXPECT_EQ(Text(status), "Session is closed.");
}

TEST_P(LifetimeTest, AClosedSessionSaysSo) {
  Graph graph;
  const Output c = Constant(graph.root(), Tensor::Scalar(1.0f));
  auto session = Session::Create(graph, options_);
  ASSERT_TRUE(session.ok()) << session.status();
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(session->Eval(c).ok());  // known by now
  EXPECT_TRUE(session->Close().ok());
  EXPECT_TRUE(session->Close().ok()) << "a second one does nothing";
  for (const Status& status :
       {session->Eval(c).status(), session->Eval(ops::Neg(graph.root(), c)).status(),
        session->MakeCallable({}, {{c}}).status()}) {
    EXPECT_TRUE(errors::IsFailedPrecondition(status)) << status;
    EXPECT_EQ(Text(status), "Session is closed.");
  }
}

TEST_P(LifetimeTest, WhatWasMovedFromSaysSo) {
  Graph graph;
  const Output c = Constant(graph.root(), Tensor::Scalar(1.0f));
  auto session = Session::Create(graph, options_);
  ASSERT_TRUE(session.ok()) << session.status();
  auto callable = session->MakeCallable({}, {{c}});
  ASSERT_TRUE(callable.ok()) << callable.status();
  const Callable other_callable = *std::move(callable);
  Session other = *std::move(session);
  for (const Status& status :
       {session->Eval(c).status(), session->RunTargets({c.op()}),
        session->MakeCallable({}, {{c}}).status(), session->Close(), callable->Run({}).status()}) {
    EXPECT_TRUE(errors::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(Text(status), HasSubstr("was moved from"));
  }
  EXPECT_TRUE(other.Eval(c).ok());
  EXPECT_TRUE(other_callable.Run({}).ok());
}

TEST(SessionOptionsTest, WhatCannotBeIsRefusedByName) {
  Graph graph;
  const Output c = Constant(graph.root(), Tensor::Scalar(1.0f));
  const auto refused = [&](const SessionOptions& options, const char* name) {
    const Status status = Session::Create(graph, options).status();
    EXPECT_TRUE(errors::IsInvalidArgument(status)) << status;
    EXPECT_THAT(Text(status), HasSubstr(name));
  };
  refused({.num_cpu_devices = 0}, "SessionOptions.num_cpu_devices is 0");
  refused({.inter_op_threads = -7}, "SessionOptions.inter_op_threads is -7");
  refused({.intra_op_threads = -2}, "SessionOptions.intra_op_threads is -2");
  refused({.inter_op_pools = {{.threads = -3}, {}}}, "SessionOptions.inter_op_pools");
  refused({.step_memory_limit = -5}, "SessionOptions.step_memory_limit (bytes) is -5");
  refused({.start_timeout = milliseconds(-1)}, "SessionOptions.start_timeout");
  refused({.step_timeout = milliseconds(-1)}, "SessionOptions.step_timeout");

  auto session = Session::Create(graph);
  ASSERT_TRUE(session.ok()) << session.status();
  for (const RunOptions& options :
       {RunOptions{.timeout = milliseconds(-1)}, RunOptions{.inter_op_pool = -2}}) {
    const Status run = session->Run({}, {c}, {}, options).status();
    EXPECT_TRUE(errors::IsInvalidArgument(run)) << run;
    EXPECT_THAT(Text(run), HasSubstr("RunOptions."));
    EXPECT_TRUE(errors::IsInvalidArgument(session->MakeCallable({}, {{c}}, {}, options).status()));
  }
}

TEST(SessionOptionsTest, ARunTakesOptionsInBraces) {
  Graph graph;
  const Output x = Placeholder(graph.root(), kFloat, PartialShape({}));
  auto session = Session::Create(graph);
  ASSERT_TRUE(session.ok()) << session.status();
  RunMetadata metadata;
  const auto out = session->Run({{x, Tensor::Scalar(1.0f)}}, {ops::Neg(graph.root(), x)}, {},
                                {.trace = true}, &metadata);
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ((*out)[0].scalar<float>(), -1);
  EXPECT_FALSE(metadata.step_stats.empty());
  const Output one = Constant(graph.root(), Tensor::Scalar(1.0f));
  EXPECT_TRUE(session->Run({}, {one}, {one.op()}, {.timeout = milliseconds(60'000)}).ok());
}

// More than a message may have, in one buffer.
TEST(BigGraphTest, RunsInThisProcessAndIsRefusedForAServer) {
  Graph graph;
  const Tensor shared(kUint8, Shape({64 << 20}));
  for (int i = 0; i < 33; ++i) Constant(graph.root().WithOpName("big"), shared);
  const Status status =
      Session::Create(graph, {.target = "grpc://127.0.0.1:1", .start_timeout = milliseconds(100)})
          .status();
  EXPECT_TRUE(errors::IsInvalidArgument(status)) << status;
  EXPECT_THAT(Text(status), HasSubstr("'big"));
  EXPECT_THAT(Text(status), HasSubstr("lifetime_test.cc"));
}

// Each with one field named: no warning, which would be an error here.
TEST(OptionsTest, FieldsMayBeNamedAlone) {
  (void)SessionOptions{.target = ""};
  (void)InterOpPool{.threads = 1};
  (void)RunOptions{.trace = true};
  (void)ServerOptions{.task_index = 0};
  (void)ReplicaDeviceSetterOptions{.ps_tasks = 1};
  (void)ReplicaDeviceSetterOptions{.worker_device = "/job:worker", .strategy = RoundRobin(1)};
  (void)SupervisedSessionOptions{.is_chief = true};
  (void)VariableOptions{.trainable = false};
  (void)RandomOptions{.mean = 1};
  (void)WhileOptions{.parallel_iterations = 1};
  (void)GpuOptions{.count = 0};
  (void)SyncReplicasOptions{.replicas_to_aggregate = 1};
  (void)GradientDescentOptions{.learning_rate = 1};
  (void)MomentumOptions{.momentum = 1};
  (void)AdagradOptions{.learning_rate = 1};
  (void)RmsPropOptions{.decay = 1};
  (void)AdamOptions{.beta1 = 1};
  (void)SyntheticDigitsOptions{.seed = 1};
}

}  // namespace
}  // namespace millrace
