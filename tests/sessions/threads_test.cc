// SPDX-License-Identifier: Apache-2.0
// A session has the threads that it was asked to have, and no others.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "millrace/core.h"
#include "millrace/ops.h"

namespace millrace {
namespace {

// Threads of this process whose names begin so.
int CountThreads(const std::string& prefix) {
  int count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream comm(task.path() / "comm");
    std::string name;
    std::getline(comm, name);
    if (name.starts_with(prefix)) ++count;
  }
  return count;
}

// A thread gives itself its name, some time after it was made: waits until there are this many, or
// for a minute.
int CountThreadsUpTo(const std::string& prefix, int expected) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  int count = CountThreads(prefix);
  while (count < expected && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    count = CountThreads(prefix);
  }
  return count;
}

// Wide enough to make use of any number of threads, run often enough to have learnt its costs.
void RunSomething(int inter_op_threads, int intra_op_threads) {
  Graph graph;
  const Scope s = graph.root();
  const Output x = Placeholder(s, kFloat, {64, 64});
  std::vector<Input> products;
  for (int i = 0; i < 8; ++i) products.push_back(ops::MatMul(s, x, x));
  const Output sum = ops::AddN(s, products);
  auto session = Session::Create(graph, {.inter_op_threads = inter_op_threads,
                                         .intra_op_threads = intra_op_threads,
                                         .rewrite_graph = false});
  ASSERT_TRUE(session.ok()) << session.status();
  const Tensor value = Tensor::FromValues<float>(std::vector<float>(64 * 64, 1), Shape({64, 64}));
  for (int i = 0; i < 20; ++i) {
    const auto result = session->Run({{x, value}}, {sum});
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_EQ((*result)[0].data<float>()[0], 8 * 64);
  }
}

TEST(ThreadsTest, ASessionInTheCallersThreadStartsNone) {
  RunSomething(-1, -1);
  EXPECT_EQ(CountThreads("mr-inter"), 0);
  EXPECT_EQ(CountThreads("mr-intra"), 0);
  // Whatever else there is: the test's thread, and the one that watches deadlines.
  EXPECT_LE(CountThreads(""), 2);
}

TEST(ThreadsTest, PoolsHaveTheSizeThatWasAskedFor) {
  const int inter = CountThreads("mr-inter"), intra = CountThreads("mr-intra");
  RunSomething(5, 3);
  EXPECT_EQ(CountThreadsUpTo("mr-inter", inter + 5) - inter, 5);
  EXPECT_EQ(CountThreadsUpTo("mr-intra", intra + 3) - intra, 3);
}

TEST(ThreadsTest, SessionsOfOneSizeShareTheirThreads) {
  RunSomething(4, 2);
  const int all = CountThreads("");
  RunSomething(4, 2);
  EXPECT_EQ(CountThreads(""), all);
}

using Pools = std::vector<InterOpPool>;

// A session over a graph wide enough for any number of threads; the run's options choose a pool.
struct PooledSession {
  explicit PooledSession(const Pools& pools) {
    const Scope s = graph.root();
    x = Placeholder(s, kFloat, {64, 64});
    std::vector<Input> products;
    for (int i = 0; i < 8; ++i) products.push_back(ops::MatMul(s, x, x));
    sum = ops::AddN(s, products);
    opened = Session::Create(graph, {.inter_op_threads = 1,
                                     .intra_op_threads = -1,
                                     .inter_op_pools = pools,
                                     .rewrite_graph = false});
  }
  Status Run(int pool) {
    const Feed feed{x, Tensor::FromValues<float>(std::vector<float>(64 * 64, 1), Shape({64, 64}))};
    for (int i = 0; i < 20; ++i) {
      const auto result = opened->Run({&feed, 1}, {&sum, 1}, {}, {.inter_op_pool = pool});
      if (!result.ok()) return result.status();
      if ((*result)[0].data<float>()[0] != 8 * 64)
        return Status(StatusCode::kDataLoss, "a wrong sum");
    }
    return OkStatus();
  }

  Graph graph;
  Output x, sum;
  StatusOr<Session> opened = Status(StatusCode::kUnknown, "not opened");
};

TEST(ThreadsTest, ARunChoosesOneOfTheSessionsPools) {
  PooledSession session(Pools{{.threads = 2, .name = "small"}, {.threads = 6, .name = "large"}});
  ASSERT_TRUE(session.opened.ok()) << session.opened.status();
  EXPECT_EQ(CountThreadsUpTo("mr-inter-small", 2), 2);
  EXPECT_EQ(CountThreadsUpTo("mr-inter-large", 6), 6);
  for (const int pool : {0, 1, -1}) {
    const Status run = session.Run(pool);
    EXPECT_TRUE(run.ok()) << run;
  }
  const Status refused = session.Run(2);
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(refused.message().find("Invalid inter_op_thread_pool: 2"), std::string::npos)
      << refused;
  EXPECT_EQ(session.Run(-2).code(), StatusCode::kInvalidArgument);
}

TEST(ThreadsTest, ANamedPoolIsSharedAndItsSizeIsSettled) {
  PooledSession first(Pools{{.threads = 3, .name = "both"}});
  PooledSession second(Pools{{.threads = 3, .name = "both"}});
  ASSERT_TRUE(first.opened.ok() && second.opened.ok());
  EXPECT_TRUE(first.Run(0).ok());
  EXPECT_TRUE(second.Run(0).ok());
  EXPECT_EQ(CountThreadsUpTo("mr-inter-both", 3), 3);
  PooledSession third(Pools{{.threads = 4, .name = "both"}});
  EXPECT_EQ(third.opened.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(third.opened.status().message().find("'both' exists with 3 threads"), std::string::npos)
      << third.opened.status();
}

TEST(ThreadsTest, PoolsOfASessionsOwnAreUsedAgainWhenItIsGone) {
  const int before = CountThreads("mr-inter");
  {
    PooledSession first(Pools{{.threads = 7}}), second(Pools{{.threads = 7}});
    ASSERT_TRUE(first.opened.ok() && second.opened.ok());
    EXPECT_TRUE(first.Run(0).ok());
    EXPECT_TRUE(second.Run(0).ok());
    EXPECT_EQ(CountThreadsUpTo("mr-inter", before + 14), before + 14);
  }
  PooledSession third(Pools{{.threads = 7}});
  ASSERT_TRUE(third.opened.ok());
  EXPECT_TRUE(third.Run(0).ok());
  EXPECT_EQ(CountThreads("mr-inter"), before + 14);
}

}  // namespace
}  // namespace millrace
