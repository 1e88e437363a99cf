// SPDX-License-Identifier: Apache-2.0
// What is done again and again leaves nothing behind: no memory, thread or descriptor.
// MILLRACE_SOAK multiplies the numbers of steps, sessions and cycles; 1 without it.
#include <gtest/gtest.h>
#include <malloc.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "base/strings.h"
#include "millrace/core.h"
#include "millrace/local_cluster.h"
#include "observe/process.h"

namespace millrace {
namespace {

int64_t Scaled(int64_t number) {
  const char* const text = std::getenv("MILLRACE_SOAK");
  int64_t scale = 1;
  if (text != nullptr && !ParseInt64(text, &scale)) ADD_FAILURE() << "MILLRACE_SOAK=" << text;
  return number * scale;
}

ProcessStats Stats() {
  malloc_trim(0);  // what the allocator keeps for later was given back by us
  return ReadProcessStats();
}

// What a round of work added to the process.
struct Growth {
  ProcessStats before, after;

  // Two per cent of memory, and a megabyte for pages that are partly used, are not a leak.
  bool IsNothing() const {
    return after.threads <= before.threads && after.open_files <= before.open_files &&
           after.resident_bytes <= before.resident_bytes * 102 / 100 + (1 << 20);
  }
};

std::string Text(const ProcessStats& stats) {
  return StrCat(stats.resident_bytes, " bytes, ", stats.threads, " threads, ", stats.open_files,
                " descriptors");
}

Growth GrowthOf(int64_t count, const std::function<void()>& work) {
  Growth growth{Stats(), {}};
  for (int64_t i = 0; i < count && !::testing::Test::HasFailure(); ++i) work();
  growth.after = Stats();
  // Threads and descriptors that are on their way out.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!growth.IsNothing() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    growth.after = Stats();
  }
  return growth;
}

// Runs `work` `count` times after a tenth of that as a warm-up, and compares the process before and
// after. A pool may start a thread more the first time that the machine is slow: what leaves
// something behind does so in every round.
void ExpectNothingLeft(int64_t count, const std::function<void()>& work) {
  for (int64_t i = 0; i < count / 10 + 1 && !::testing::Test::HasFailure(); ++i) work();
  Growth growth;
  for (int round = 0; round < 4 && !::testing::Test::HasFailure(); ++round) {
    growth = GrowthOf(count, work);
    std::printf("%ld times: %s before; %s after\n", static_cast<long>(count),
                Text(growth.before).c_str(), Text(growth.after).c_str());
    if (growth.IsNothing()) return;
  }
  EXPECT_TRUE(growth.IsNothing()) << "every round of " << count << " leaves something";
}

// A counter on the ps that a worker adds to.
struct Counter {
  Graph graph;
  Variable count;
  Operation add;

  Counter() {
    const Scope ps = graph.root().WithDevice("/job:ps/task:0");
    count = MakeVariable(ps, "count", Zeros(ps, {}));
    const Scope worker = graph.root().WithDevice("/job:worker/task:0");
    add = AssignAdd(ps, count, ops::Mul(worker, count.read, 0.0f));
  }
};

std::unique_ptr<LocalCluster> StartCluster() {
  auto cluster = LocalCluster::Start({.workers = 1, .ps = 1});
  EXPECT_TRUE(cluster.ok()) << cluster.status();
  return cluster.ok() ? *std::move(cluster) : nullptr;
}

// A session at the worker that runs `steps` steps and is closed.
void TrainOnce(const LocalCluster& cluster, Counter& counter, int steps) {
  auto session = Session::Create(counter.graph, {.target = cluster.target("worker", 0)});
  ASSERT_TRUE(session.ok()) << session.status();
  Status status = session->RunTargets({counter.count.initializer});
  for (int i = 0; i < steps && status.ok(); ++i) status = session->RunTargets({counter.add});
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(session->Close().ok());
}

TEST(SoakTest, StepsLeaveNothing) {
  const auto cluster = StartCluster();
  ASSERT_NE(cluster, nullptr);
  Counter counter;
  ASSERT_TRUE(counter.graph.status().ok()) << counter.graph.status();
  auto session = Session::Create(counter.graph, {.target = cluster->target("worker", 0)});
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE(session->RunTargets({counter.count.initializer}).ok());
  ExpectNothingLeft(Scaled(20'000), [&] {
    const Status status = session->RunTargets({counter.add});
    ASSERT_TRUE(status.ok()) << status;
  });
}

TEST(SoakTest, SessionsLeaveNothing) {
  const auto cluster = StartCluster();
  ASSERT_NE(cluster, nullptr);
  Counter counter;
  ExpectNothingLeft(Scaled(300), [&] { TrainOnce(*cluster, counter, 3); });
}

TEST(SoakTest, ServersThatStopLeaveNothing) {
  Counter counter;
  ExpectNothingLeft(Scaled(20), [&] {
    const auto cluster = StartCluster();
    ASSERT_NE(cluster, nullptr);
    TrainOnce(*cluster, counter, 3);
  });
}

}  // namespace
}  // namespace millrace
