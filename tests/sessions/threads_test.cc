// A session has the threads that it was asked to have, and no others.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "millrace/millrace.h"
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
// for ten seconds.
int CountThreadsUpTo(const std::string& prefix, int expected) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
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

}  // namespace
}  // namespace millrace
