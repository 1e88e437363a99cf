// SPDX-License-Identifier: Apache-2.0
#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <new>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "base/notification.h"

namespace millrace {
namespace {

constexpr double kCostly = 1e6;  // ns per unit: always worth sharing

class ThreadPoolTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, ::testing::Values(0, 1, 2, 8));

TEST_P(ThreadPoolTest, RunsEverythingThatWasScheduledBeforeItEnds) {
  constexpr int kTasks = 1000;
  std::atomic<int> ran{0};
  {
    ThreadPool pool("test", GetParam());
    EXPECT_EQ(pool.num_threads(), GetParam());
    for (int i = 0; i < kTasks; ++i) {
      if (i % 2 == 0) {
        pool.Schedule([&ran] { ++ran; });
      } else {
        pool.Schedule({[](void* arg) { ++*static_cast<std::atomic<int>*>(arg); }, &ran});
      }
    }
  }
  EXPECT_EQ(ran, kTasks);
}

TEST_P(ThreadPoolTest, WorkMayScheduleMoreWork) {
  std::atomic<int> ran{0};
  {
    ThreadPool pool("test", GetParam());
    for (int i = 0; i < 50; ++i) {
      pool.Schedule([&pool, &ran] {
        pool.Schedule([&ran] { ++ran; });
        ++ran;
      });
    }
  }
  EXPECT_EQ(ran, 100);
}

TEST_P(ThreadPoolTest, ParallelForVisitsEveryIndexOnce) {
  ThreadPool pool("test", GetParam());
  for (const int64_t n : {0, 1, 2, 7, 1000}) {
    std::vector<std::atomic<int>> visits(n);
    pool.ParallelFor(n, kCostly, [&visits](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ++visits[i];
    });
    for (const std::atomic<int>& count : visits) EXPECT_EQ(count, 1);
  }
}

TEST_P(ThreadPoolTest, ATaskThatThrowsLeavesItsThreadToOthers) {
  std::atomic<int> ran{0};
  {
    ThreadPool pool("test", GetParam());
    for (int i = 0; i < 20; ++i) {
      pool.Schedule([] { throw std::bad_alloc(); });
      pool.Schedule([&ran] { ++ran; });
    }
  }
  EXPECT_EQ(ran, 20);
}

TEST_P(ThreadPoolTest, ParallelForThrowsWhatItsBodyThrewAfterAllHaveLeftIt) {
  ThreadPool pool("test", GetParam());
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> inside{0};
    EXPECT_THROW(pool.ParallelFor(64, kCostly,
                                  [&inside](int64_t begin, int64_t end) {
                                    ++inside;
                                    const bool throws = begin <= 13 && 13 < end;
                                    --inside;
                                    if (throws) throw std::bad_alloc();
                                  }),
                 std::bad_alloc);
    EXPECT_EQ(inside, 0);
    std::atomic<int64_t> sum{0};  // nothing is left of it
    pool.ParallelFor(64, kCostly, [&sum](int64_t begin, int64_t end) { sum += end - begin; });
    EXPECT_EQ(sum, 64);
  }
}

TEST_P(ThreadPoolTest, ParallelForMayNest) {
  ThreadPool pool("test", GetParam());
  std::atomic<int> visits{0};
  pool.ParallelFor(8, kCostly, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      pool.ParallelFor(8, kCostly,
                       [&visits](int64_t b, int64_t e) { visits += static_cast<int>(e - b); });
    }
  });
  EXPECT_EQ(visits, 64);
}

TEST_P(ThreadPoolTest, ManyThreadsMayCallParallelForAtOnce) {
  ThreadPool pool("test", GetParam());
  std::atomic<int64_t> sum{0};
  std::vector<std::thread> callers;
  for (int t = 0; t < 4; ++t) {
    callers.emplace_back([&] {
      for (int round = 0; round < 100; ++round) {
        pool.ParallelFor(16, kCostly, [&sum](int64_t begin, int64_t end) { sum += end - begin; });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum, 4 * 100 * 16);
}

TEST(ThreadPoolInlineTest, WithoutThreadsWorkHasRunWhenScheduleReturns) {
  ThreadPool pool("inline", 0);
  std::vector<int> order;
  const std::thread::id here = std::this_thread::get_id();
  for (int i = 0; i < 3; ++i) {
    pool.Schedule([&order, here, i] {
      EXPECT_EQ(std::this_thread::get_id(), here);
      order.push_back(i);
    });
    EXPECT_EQ(order.size(), static_cast<std::size_t>(i + 1));
  }
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
}

TEST(ThreadPoolStealingTest, WhatABusyWorkerQueuedOthersRun) {
  ThreadPool pool("test", 3);
  Notification all_done;
  pool.Schedule([&] {
    // Two that wait for each other: neither runs on this thread, which waits for both.
    std::atomic<int> running{0}, done{0};
    for (int i = 0; i < 2; ++i) {
      pool.Schedule([&] {
        ++running;
        while (running < 2) std::this_thread::yield();
        ++done;
      });
    }
    while (done < 2) std::this_thread::yield();
    all_done.Notify();
  });
  EXPECT_TRUE(all_done.WaitUntil(DeadlineAfter(std::chrono::seconds(60))));
}

TEST(ThreadPoolStealingTest, MoreThanAWorkersQueueHoldsIsNotLost) {
  constexpr int kTasks = 5000;  // many times what a queue has room for
  std::atomic<int> ran{0};
  {
    ThreadPool pool("test", 2);
    pool.Schedule([&] {
      for (int i = 0; i < kTasks; ++i) pool.Schedule([&ran] { ++ran; });
    });
    pool.Schedule([&] {
      for (int i = 0; i < kTasks; ++i) pool.Schedule([&ran] { ++ran; });
    });
  }
  EXPECT_EQ(ran, 2 * kTasks);
}

// A binary tree of tasks, each of which schedules two.
struct TreeOfTasks {
  ThreadPool* pool;
  std::atomic<int> left;
  Notification done;
  void Grow(int depth) {
    if (depth > 0) {
      for (int i = 0; i < 2; ++i) pool->Schedule([this, depth] { Grow(depth - 1); });
    }
    if (left.fetch_sub(1) == 1) done.Notify();
  }
};

TEST_P(ThreadPoolTest, NobodySleepsWhileThereIsWork) {
  ThreadPool pool("test", GetParam());
  for (int round = 0; round < 20; ++round) {  // pools park in between
    TreeOfTasks tree{&pool, {(1 << 11) - 1}, {}};
    pool.Schedule([&tree] { tree.Grow(10); });
    ASSERT_TRUE(tree.done.WaitUntil(DeadlineAfter(std::chrono::seconds(60))));
  }
}

TEST(ThreadPoolOrderTest, OneThreadRunsInTheOrderOfScheduling) {
  std::vector<int> order;
  {
    ThreadPool pool("one", 1);
    for (int i = 0; i < 500; ++i) pool.Schedule([&order, i] { order.push_back(i); });
  }
  std::vector<int> expected(500);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(order, expected);
}

// Work that begins itself anew, as a loop that gives others their turn.
struct Endless {
  ThreadPool* pool = nullptr;
  std::atomic<bool> stop{false};
  std::atomic<int> turns{0};

  static void Run(void* arg) {
    auto* self = static_cast<Endless*>(arg);
    ++self->turns;
    if (!self->stop) self->pool->ScheduleLast({&Run, self});
  }
};

TEST(ThreadPoolOrderTest, WhatIsScheduledLastLetsOthersHaveTheirTurn) {
  Endless endless;
  ThreadPool pool("test", 1);
  endless.pool = &pool;
  pool.Schedule({&Endless::Run, &endless});
  for (int i = 0; i < 3; ++i) {
    Notification ran;
    pool.Schedule([&ran] { ran.Notify(); });
    EXPECT_TRUE(ran.WaitUntil(DeadlineAfter(std::chrono::seconds(60))));
  }
  // Nor is it forgotten.
  const int turns = endless.turns;
  const Deadline limit = DeadlineAfter(std::chrono::seconds(60));
  while (endless.turns == turns && SteadyClock::now() < limit) std::this_thread::yield();
  EXPECT_GT(endless.turns, turns);
  endless.stop = true;
}

TEST(ThreadPoolOrderTest, ParallelForDoesNotWaitForUnrelatedQueuedWork) {
  ThreadPool pool("busy", 1);
  Notification release;
  pool.Schedule([&release] { release.Wait(); });
  std::atomic<int64_t> sum{0};
  pool.ParallelFor(100, kCostly, [&sum](int64_t begin, int64_t end) { sum += end - begin; });
  EXPECT_EQ(sum, 100);
  release.Notify();
}

TEST(ThreadPoolOrderTest, CheapRangesStayOnTheCallingThread) {
  ThreadPool pool("cheap", 4);
  int calls = 0;
  pool.ParallelFor(1000, 1.0, [&calls](int64_t begin, int64_t end) {
    ++calls;
    EXPECT_EQ(begin, 0);
    EXPECT_EQ(end, 1000);
  });
  EXPECT_EQ(calls, 1);
}

TEST(ThreadPoolNamesTest, ThreadsKnowTheirPoolAndBearItsName) {
  ThreadPool pool("a_rather_long_name", 1);
  EXPECT_FALSE(pool.IsCurrentThread());
  Notification done;
  bool inside = false;
  char name[16] = "";
  pool.Schedule([&] {
    inside = pool.IsCurrentThread();
    pthread_getname_np(pthread_self(), name, sizeof(name));
    done.Notify();
  });
  done.Wait();
  EXPECT_TRUE(inside);
  EXPECT_EQ(std::string(name), "a_rather_long_n");
}

}  // namespace
}  // namespace millrace
