// SPDX-License-Identifier: Apache-2.0
// What one session may take of a server: whoever wants more is told, and nobody else notices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/strings.h"
#include "millrace/core.h"

namespace millrace {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kTask[] = "/job:local/replica:0/task:0";
// Longer than anything here takes.
constexpr milliseconds kPatience(60'000);

void ExpectRefused(const Status& status, const std::string& flag) {
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(Message(status)), AllOf(HasSubstr(kTask), HasSubstr(flag)));
}

class QuotasTest : public ::testing::Test {
 protected:
  void Start(const SessionQuotas& quotas) {
    ServerOptions options;
    options.cluster = *ClusterSpec::Parse("local|127.0.0.1:0");
    options.job_name = "local";
    options.inter_op_threads = 4;
    options.intra_op_threads = 1;
    options.quotas = quotas;
    auto server = Server::Create(options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    const Status started = server_->Start();
    ASSERT_TRUE(started.ok()) << started;
  }
  StatusOr<Session> Open(Graph& graph) const {
    SessionOptions options;
    options.target = server_->target();
    return Session::Create(graph, options);
  }

  std::unique_ptr<Server> server_;
};

// A chain of `nodes` nodes that begins with a placeholder.
struct Chain {
  Chain(const Scope& scope, int nodes) : x(Placeholder(scope, kFloat, PartialShape({}))), last(x) {
    for (int i = 1; i < nodes; ++i) last = ops::Neg(scope, last);
  }
  Output x, last;
};

Tensor Numbers(int count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  return Tensor::FromValues<float>(values, Shape({count}));
}

TEST_F(QuotasTest, NoMoreSessionsThanThatAreOpenAtOnce) {
  Start({.max_sessions = 2});
  Graph graph;
  const Chain chain(graph.root(), 2);
  StatusOr<Session> first = Open(graph), second = Open(graph);
  ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
  for (int i = 0; i < 3; ++i) {
    ExpectRefused(Open(graph).status(), "--max_sessions");
    EXPECT_TRUE(second->Close().ok());
    second = Open(graph);
    ASSERT_TRUE(second.ok()) << second.status();
  }
  const auto value = second->Run({{chain.x, Tensor::Scalar(1.0f)}}, {chain.last});
  EXPECT_TRUE(value.ok()) << value.status();
}

TEST_F(QuotasTest, GraphsGrowToTheirQuotaOfNodes) {
  Start({.max_graph_nodes = 10});
  {
    Graph large;
    const Chain chain(large.root(), 11);
    ExpectRefused(Open(large).status(), "--max_graph_nodes");
  }
  Graph graph;
  const Chain chain(graph.root(), 8);
  StatusOr<Session> session = Open(graph);
  ASSERT_TRUE(session.ok()) << session.status();
  const auto run = [&](const Output& fetched) {
    return session->Run({{chain.x, Tensor::Scalar(1.0f)}}, {fetched}).status();
  };
  const Output tenth = ops::Neg(graph.root(), ops::Neg(graph.root(), chain.last));
  EXPECT_TRUE(run(tenth).ok());
  ExpectRefused(run(ops::Neg(graph.root(), tenth)), "--max_graph_nodes");
}

TEST_F(QuotasTest, GraphsHaveTheirQuotaOfBytes) {
  Start({.max_graph_size = 64 << 10});
  Graph graph;
  Constant(graph.root(), Numbers(1 << 10));
  EXPECT_TRUE(Open(graph).ok());
  Constant(graph.root(), Numbers(32 << 10));
  ExpectRefused(Open(graph).status(), "--max_graph_size");
}

TEST_F(QuotasTest, ASessionRunsNoMoreStepsThanThatAtOnce) {
  Start({.max_steps = 2});
  Graph graph;
  const Scope root = graph.root();
  const Output x = Placeholder(root, kFloat, PartialShape({}));
  const Output queue = ops::FIFOQueueV2(root.WithOpName("queue"), {kFloat});
  const Operation put = ops::QueueEnqueueV2(root, queue, {x});
  const Output other_work = ops::Neg(root, x);
  const Output taken = ops::QueueDequeueV2(root, queue, {kFloat})[0];
  StatusOr<Session> opened = Open(graph), other = Open(graph);
  ASSERT_TRUE(opened.ok() && other.ok()) << opened.status() << other.status();
  Session& session = *opened;
  const std::vector<Output> fetches = {taken};
  std::vector<std::thread> threads;
  const auto limit = std::chrono::steady_clock::now() + kPatience;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      // The step of the loop below may be one of the two for a moment.
      Status status;
      do {
        status = session.Run(std::span<const Feed>(), fetches).status();
      } while (status.code() == StatusCode::kResourceExhausted &&
               std::chrono::steady_clock::now() < limit);
      EXPECT_TRUE(status.ok()) << status;
    });
  }
  Status refused;
  while (refused.ok() && std::chrono::steady_clock::now() < limit) {
    refused = session.Run({{x, Tensor::Scalar(1.0f)}}, {other_work}).status();
  }
  ExpectRefused(refused, "--max_steps");
  // Other sessions have steps of their own.
  EXPECT_TRUE(other->Run({{x, Tensor::Scalar(1.0f)}}, {other_work}).ok());
  for (int i = 0; i < 2; ++i) {
    const Status status = other->Run({{x, Tensor::Scalar(1.0f)}}, {}, {put}).status();
    EXPECT_TRUE(status.ok()) << status;
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(session.Run({{x, Tensor::Scalar(1.0f)}}, {other_work}).ok());
}

TEST_F(QuotasTest, TheMemoryOfASessionIsWhatItsStepsHoldAndLeave) {
  Start({.session_memory_limit = 1 << 20});
  Graph graph;
  const Scope root = graph.root();
  const Output n = Placeholder(root, kInt32, PartialShape({1}));
  const Output filled =
      ops::Fill(root.WithOpName("filled"), n, Constant(root, Tensor::Scalar(2.0f)));
  const Output sum = ops::Sum(root, filled, Constant(root, Tensor::FromValues<int32_t>({0})));
  const Output queue = ops::FIFOQueueV2(root.WithOpName("queue"), {kFloat});
  const Operation put = ops::QueueEnqueueV2(root, queue, {filled});
  const Operation take = ops::QueueDequeueV2(root, queue, {kFloat})[0].op();
  StatusOr<Session> session = Open(graph), other = Open(graph);
  ASSERT_TRUE(session.ok() && other.ok()) << session.status() << other.status();
  const auto fill = [&](Session& in, int count) {
    return in.Run({{n, Tensor::FromValues<int32_t>({count})}}, {sum}).status();
  };
  const auto keep = [&](Session& in, int count) {
    return in.Run({{n, Tensor::FromValues<int32_t>({count})}}, {}, {put}).status();
  };
  constexpr int kThird = (1 << 20) / 3 / 4;
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(fill(*session, 2 * kThird).ok());
  // What stays in the queue counts until it is taken, and against nobody else.
  EXPECT_TRUE(keep(*session, kThird).ok());
  EXPECT_TRUE(keep(*session, kThird).ok());
  const Status refused = fill(*session, 2 * kThird);
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted) << refused;
  EXPECT_THAT(std::string(Message(refused)),
              AllOf(HasSubstr("{{node filled}}"), HasSubstr(kTask),
                    HasSubstr("its quota of 1048576 bytes (--session_memory_limit)")));
  EXPECT_TRUE(fill(*other, 2 * kThird).ok());
  EXPECT_TRUE(session->RunTargets({take}).ok());
  EXPECT_TRUE(session->RunTargets({take}).ok());
  EXPECT_TRUE(fill(*session, 2 * kThird).ok());
}

TEST_F(QuotasTest, WhatIsComputedBeforeAnyStepIsNotFreeEither) {
  Start({.session_memory_limit = 1 << 20});
  Graph graph;
  const Scope root = graph.root();
  const Output filled =
      ops::Fill(root.WithOpName("filled"), Constant(root, Tensor::FromValues<int32_t>({1 << 20})),
                Constant(root, Tensor::Scalar(2.0f)));
  const Output one = ops::GatherV2(root, filled, Constant(root, Tensor::FromValues<int32_t>({7})),
                                   Constant(root, Tensor::Scalar<int32_t>(0)));
  StatusOr<Session> session = Open(graph);
  ASSERT_TRUE(session.ok()) << session.status();
  const Status refused = session->Run({}, {one}).status();
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted) << refused;
}

}  // namespace
}  // namespace millrace
