// SPDX-License-Identifier: Apache-2.0
#include "observe/step_log.h"

#include <gtest/gtest.h>

#include <thread>

namespace millrace {
namespace {

constexpr char kPs[] = "/job:ps/replica:0/task:0", kWorker[] = "/job:worker/replica:0/task:0";

TEST(StepLogTest, AStepRunsUntilItHasEndedAndIsThenAmongTheLast) {
  StepLog log;
  const auto step = log.Begin("s", 32);
  ASSERT_EQ(log.Running().size(), 1u);
  EXPECT_TRUE(log.Last().empty());
  log.End(step, "");
  EXPECT_TRUE(log.Running().empty());
  ASSERT_EQ(log.Last().size(), 1u);
  EXPECT_EQ(log.Last()[0].session, "s");
  EXPECT_EQ(log.examples.value(), 32);
  EXPECT_EQ(log.latency.Read().count, 1);
  log.End(log.Begin("s", 0), "bad luck");
  EXPECT_EQ(log.failed.value(), 1);
  EXPECT_EQ(log.Last()[0].error, "bad luck") << "the last one is first";
}

// A wall clock that somebody sets back by a second at each reading, and a steady one that goes on
// by a millisecond.
int64_t FallingWall() {
  static int64_t now = 1'000'000'000'000'000'000;
  return now -= 1'000'000'000;
}
int64_t RisingSteady() {
  static int64_t now = 0;
  return now += 1'000'000;
}

TEST(StepLogTest, ASetWallClockChangesNoDuration) {
  StepLog log(&RisingSteady, &FallingWall);
  double total = 0;
  for (int i = 1; i <= 10; ++i) {
    const auto step = log.Begin("s", 0);
    log.PartBegins("s", i, kWorker);
    log.PartEnds(i, kWorker);
    log.End(step, "");
    const StepRecord record = log.Last()[0];
    EXPECT_EQ(record.nanos(), 3'000'000);
    EXPECT_EQ(record.end_wall_nanos() - record.begin_wall_nanos, 3'000'000);
    EXPECT_EQ(record.parts[0].end_nanos - record.parts[0].begin_nanos, 1'000'000);
    const double now = log.latency.Read().total_seconds;
    EXPECT_GT(now, total) << "a counter never falls";
    total = now;
  }
  EXPECT_EQ(log.Slowest().front().nanos(), 3'000'000);
}

TEST(StepLogTest, ThePartsOfAStepAreThoseOfTheOnlyCallOfItsSession) {
  StepLog log;
  const auto step = log.Begin("s", 0);
  const auto other = log.Begin("t", 0);
  log.PartBegins("s", 7, kWorker);
  log.PartBegins("s", 7, kPs);
  log.Waited(7, kPs, 3'000'000);
  log.Waited(7, kPs, 2'000'000);
  log.PartEnds(7, kWorker);
  log.PartEnds(7, kPs);
  log.End(step, "");
  log.End(other, "");
  const StepRecord record = log.Last()[1];
  EXPECT_EQ(record.step_id, 7);
  ASSERT_EQ(record.parts.size(), 2u);
  EXPECT_GE(record.parts[1].end_nanos, record.parts[1].begin_nanos);
  ASSERT_EQ(record.waits.size(), 1u);
  EXPECT_EQ(record.waits[0].nanos, 3'000'000);
  EXPECT_TRUE(log.Last()[0].parts.empty()) << "another session's";
}

TEST(StepLogTest, NothingIsSaidOfPartsWhereSeveralCallsMayBeMeant) {
  StepLog log;
  const auto first = log.Begin("s", 0), second = log.Begin("s", 0);
  log.PartBegins("s", 7, kWorker);
  log.PartEnds(7, kWorker);
  log.End(first, "");
  log.End(second, "");
  EXPECT_TRUE(log.Last()[0].parts.empty());
  EXPECT_TRUE(log.Last()[1].parts.empty());
}

TEST(StepLogTest, OfSeveralCallsTheRequestTellsWhichOneIsMeant) {
  StepLog log;
  const auto first = log.Begin("s", 0, 0, 100), second = log.Begin("s", 0, 0, 200);
  const auto anonymous = log.Begin("s", 0);
  log.PartBegins("s", 8, kPs, 200);
  log.PartBegins("s", 7, kWorker, 100);
  log.PartBegins("s", 7, kPs, 100);
  log.PartBegins("s", 9, kPs, 0);
  log.Waited(8, kPs, 2'000'000);
  log.PartEnds(7, kPs, 100);
  log.PartEnds(7, kWorker, 100);
  log.PartEnds(8, kPs, 200);
  log.End(first, "");
  log.End(second, "");
  log.End(anonymous, "");
  const std::vector<StepRecord> last = log.Last();
  EXPECT_EQ(last[2].step_id, 7);
  ASSERT_EQ(last[2].parts.size(), 2u);
  EXPECT_EQ(last[2].parts[0].task, kWorker);
  EXPECT_NE(last[2].parts[1].end_nanos, 0);
  EXPECT_NE(last[2].Culprit(), "");
  EXPECT_TRUE(last[2].waits.empty()) << "another step's";
  EXPECT_EQ(last[1].step_id, 8);
  ASSERT_EQ(last[1].parts.size(), 1u);
  EXPECT_EQ(last[1].waits.size(), 1u);
  ASSERT_EQ(last[0].parts.size(), 1u) << "the only one without a number";
  EXPECT_EQ(last[0].step_id, 9);
}

TEST(StepLogTest, ThePartsOfOneRequestAreNoOtherOnes) {
  StepLog log;
  const auto step = log.Begin("s", 0, 0, 100);
  log.PartBegins("s", 7, kWorker, 300);
  log.PartBegins("t", 7, kWorker, 100);
  // Two calls of a partial run share a number.
  log.PartBegins("s", 9, kWorker, 100);
  const auto next = log.Begin("s", 0, 0, 200);
  log.PartBegins("s", 9, kPs, 200);
  log.PartEnds(9, kPs, 200);
  log.End(step, "");
  log.End(next, "");
  const std::vector<StepRecord> last = log.Last();
  ASSERT_EQ(last[1].parts.size(), 1u);
  EXPECT_EQ(last[1].parts[0].task, kWorker);
  EXPECT_EQ(last[1].parts[0].end_nanos, 0);
  ASSERT_EQ(last[0].parts.size(), 1u);
  EXPECT_EQ(last[0].parts[0].task, kPs);
  EXPECT_NE(last[0].parts[0].end_nanos, 0);
}

TEST(StepLogTest, TheCulpritIsThePartThatWasLastAndWhatItCost) {
  StepRecord step;
  EXPECT_EQ(step.Culprit(), "");
  step.parts = {{kWorker, 1000, 3'001'000}, {kPs, 1000, 8'001'000}};
  step.waits = {{kPs, 1'000'000}, {"/job:ps/replica:0/task:1", 2'000'000}};
  int64_t cost = 0;
  EXPECT_EQ(step.Slowest(&cost), 1);
  EXPECT_EQ(cost, 5'000'000);
  EXPECT_EQ(step.Culprit(),
            "/job:ps/replica:0/task:0 was last, 5 ms after the next one; "
            "waited 2 ms for /job:ps/replica:0/task:1");
  step.parts[1].end_nanos = 0;
  EXPECT_TRUE(step.Culprit().starts_with("/job:ps/replica:0/task:0 has not answered"));
}

TEST(StepLogTest, OnlyTheLastAndTheSlowestAreKept) {
  StepLog log;
  const auto slow = log.Begin("slow", 0);
  const auto run_quick_ones = [&log](std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) log.End(log.Begin("quick", 0), "");
  };
  // Slower than all of these together, however long the machine stands still in one.
  run_quick_ones(2 * StepLog::kLast);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  log.End(slow, "");
  run_quick_ones(StepLog::kLast);
  EXPECT_EQ(log.Last().size(), StepLog::kLast);
  ASSERT_EQ(log.Slowest().size(), StepLog::kSlowest);
  for (const StepRecord& step : log.Last()) EXPECT_EQ(step.session, "quick");
  const std::vector<StepRecord> slowest = log.Slowest();
  EXPECT_GE(slowest[0].nanos(), slowest[1].nanos());
  bool is_there = false;
  for (const StepRecord& step : slowest) is_there = is_there || step.session == "slow";
  EXPECT_TRUE(is_there);
}

TEST(StepLogTest, ManyThreadsWriteWhileOthersRead) {
  StepLog log;
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&log, t] {
      const std::string session(1, static_cast<char>('a' + t));
      for (int i = 0; i < 500; ++i) {
        const auto step = log.Begin(session, 1);
        log.PartBegins(session, t * 1000 + i + 1, kWorker);
        log.Waited(t * 1000 + i + 1, kPs, i);
        log.PartEnds(t * 1000 + i + 1, kWorker);
        log.End(step, "");
      }
    });
  }
  for (int i = 0; i < 100; ++i) {
    for (const StepRecord& step : log.Last()) EXPECT_EQ(step.parts.size(), 1u);
    (void)log.Running();
    (void)log.Slowest();
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(log.ended.value(), 1500);
  EXPECT_EQ(log.examples.value(), 1500);
}

}  // namespace
}  // namespace millrace
