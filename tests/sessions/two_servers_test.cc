// SPDX-License-Identifier: Apache-2.0
// Two servers of one process with options that differ: each keeps to its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "base/errors.h"
#include "base/strings.h"
#include "distributed_runtime/task_server.h"
#include "millrace/core.h"
#include "millrace/ops.h"
#include "proto/graph.pb.h"
#include "runtime/registries.h"
#include "tests/cluster/in_process_cluster.h"

namespace millrace::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

// A product whose step holds three matrices of 4 KiB.
struct Product {
  Product() {
    const Scope s = graph.root();
    x = Placeholder(s, kFloat, {32, 32});
    y = ops::MatMul(s, ops::Neg(s, x), ops::Square(s, x));
  }
  Graph graph;
  Output x, y;
};

Session Open(Graph& graph, const std::string& target) {
  auto session = Session::Create(graph, {.target = target});
  EXPECT_TRUE(session.ok()) << session.status();
  return *std::move(session);
}

TEST(TwoServersTest, EachHasItsOwnLimitOfAStepsMemory) {
  const InProcessCluster cluster(0, 2, [](ServerOptions* options) {
    options->step_memory_limit = options->task_index == 0 ? 4096 : 0;
  });
  Product product;
  const Tensor x(kFloat, {32, 32});
  Session limited = Open(product.graph, cluster.Target("worker", 0));
  const Status refused = limited.Run({{product.x, x}}, {product.y}).status();
  EXPECT_TRUE(errors::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(std::string(Message(refused)), HasSubstr("of their limit of 4096 bytes"));
  Session free = Open(product.graph, cluster.Target("worker", 1));
  const auto values = free.Run({{product.x, x}}, {product.y});
  EXPECT_TRUE(values.ok()) << values.status();
}

// Each server is a part of the step, or all of it.
TEST(TwoServersTest, ListsAreFetchedAndFed) {
  const InProcessCluster cluster(0, 2);
  for (const char* device : {"/job:worker/task:0", "/job:worker/task:1"}) {
    Graph graph;
    const Scope s = graph.root().WithDevice(device);
    const Output any = Constant(s, Tensor::Scalar<int32_t>(-1));
    const Output list = ops::TensorListPushBack(s, ops::EmptyTensorList(s, any, any, kFloat),
                                                Constant(s, Tensor::Scalar<float>(7)));
    const Output fed = Placeholder(s, kVariant, PartialShape({}));
    const Output length = ops::TensorListLength(s, fed);
    Session session = Open(graph, cluster.Target("worker", 0));
    const auto fetched = session.Run({}, {list});
    ASSERT_TRUE(fetched.ok()) << device << ": " << fetched.status();
    const auto counted = session.Run({{fed, (*fetched)[0]}}, {length});
    ASSERT_TRUE(counted.ok()) << device << ": " << counted.status();
    EXPECT_EQ((*counted)[0].scalar<int32_t>(), 1);
  }
}

// The limit of the environment is that of servers made while it is set, and yields to a field.
TEST(TwoServersTest, TheEnvironmentIsReadWhenAServerIsMade) {
  ASSERT_EQ(setenv("MILLRACE_STEP_MEMORY_LIMIT", "4096", 1), 0);
  const InProcessCluster cluster(0, 2, [](ServerOptions* options) {
    if (options->task_index == 1) options->step_memory_limit = 0;
  });
  ASSERT_EQ(unsetenv("MILLRACE_STEP_MEMORY_LIMIT"), 0);
  Product product;
  const Tensor x(kFloat, {32, 32});
  Session limited = Open(product.graph, cluster.Target("worker", 0));
  EXPECT_TRUE(errors::IsResourceExhausted(limited.Run({{product.x, x}}, {product.y}).status()));
  Session free = Open(product.graph, cluster.Target("worker", 1));
  EXPECT_TRUE(free.Run({{product.x, x}}, {product.y}).ok());
}

TEST(TwoServersTest, EachClosesIdleSessionsAfterItsOwnTime) {
  const InProcessCluster cluster(0, 2, [](ServerOptions* options) {
    options->session_idle_limit = milliseconds(options->task_index == 0 ? 50 : 0);
  });
  Product product;
  const Tensor x(kFloat, {32, 32});
  Session kept = Open(product.graph, cluster.Target("worker", 1));
  Session closed = Open(product.graph, cluster.Target("worker", 0));
  Status gone;
  // Longer pauses each time: a call counts as a sign of life.
  for (milliseconds pause(100); gone.ok() && pause < milliseconds(60'000); pause *= 2) {
    std::this_thread::sleep_for(pause);
    gone = closed.Run({{product.x, x}}, {product.y}).status();
  }
  EXPECT_TRUE(errors::IsAborted(gone)) << gone;
  const auto values = kept.Run({{product.x, x}}, {product.y});
  EXPECT_TRUE(values.ok()) << values.status();
}

TEST(TwoServersTest, OptionsThatCannotBeAreRefusedByName) {
  ServerOptions options;
  ASSERT_TRUE(options.cluster.AddJob("worker", {"127.0.0.1:0"}).ok());
  options.job_name = "worker";
  options.step_memory_limit = -2;
  EXPECT_THAT(std::string(Message(Server::Create(options).status())),
              HasSubstr("ServerOptions.step_memory_limit (bytes) is -2"));
  options.step_memory_limit = -1;
  options.session_idle_limit = milliseconds(-2);
  EXPECT_THAT(std::string(Message(Server::Create(options).status())),
              HasSubstr("ServerOptions.session_idle_limit (milliseconds) is -2"));
}

// How many nodes the only task of a cluster has put together.
int FusedNodes(bool fusion) {
  TaskServerOptions options;
  options.engine.fusion = fusion;
  EXPECT_TRUE(options.server.cluster.AddJob("worker", {"127.0.0.1:0"}).ok());
  options.server.job_name = "worker";
  options.ops = &AllOps();
  options.kernels = &AllKernels();
  auto server = TaskServer::Create(options);
  EXPECT_TRUE(server.ok()) << server.status();
  const Status started = (*server)->Start();
  EXPECT_TRUE(started.ok()) << started;
  Graph graph;
  const Output x = Placeholder(graph.root(), kFloat, {256});
  const Output y = ops::Exp(graph.root(), ops::Neg(graph.root(), ops::Square(graph.root(), x)));
  Session session = Open(graph, (*server)->target());
  RunMetadata metadata;
  const auto values = session.Run({{x, Tensor(kFloat, {256})}}, {y}, {},
                                  RunOptions{.partition_graphs = true}, &metadata);
  EXPECT_TRUE(values.ok()) << values.status();
  int fused = 0;
  for (const std::string& text : metadata.partition_graphs) {
    pb::GraphDef def;
    EXPECT_TRUE(def.ParseFromString(text));
    for (const auto& node : def.node()) fused += node.op() == "_Fused" ? 1 : 0;
  }
  return fused;
}

TEST(TwoServersTest, EachFusesOrNot) {
  EXPECT_EQ(FusedNodes(true), 1);
  EXPECT_EQ(FusedNodes(false), 0);
}

}  // namespace
}  // namespace millrace::testing
