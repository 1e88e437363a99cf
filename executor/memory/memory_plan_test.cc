// SPDX-License-Identifier: Apache-2.0
#include "executor/memory/memory_plan.h"

#include <algorithm>
#include <random>

#include "gtest/gtest.h"

namespace millrace {
namespace {

struct Problem {
  std::vector<LiveRange> ranges;
  std::vector<int64_t> bytes;
  Conflicts conflicts;
};

Problem Of(std::vector<LiveRange> ranges) {
  Problem problem;
  const int n = static_cast<int>(ranges.size());
  problem.conflicts = Conflicts(n);
  for (int i = 0; i < n; ++i) {
    problem.bytes.push_back(ranges[i].bytes);
    for (int k = 0; k < i; ++k) {
      if (ranges[i].begin < ranges[k].end && ranges[k].begin < ranges[i].end) {
        problem.conflicts.Add(i, k);
      }
    }
  }
  problem.ranges = std::move(ranges);
  return problem;
}

void ExpectApart(const Problem& problem, const Offsets& plan) {
  ASSERT_EQ(plan.offsets.size(), problem.bytes.size());
  for (std::size_t i = 0; i < plan.offsets.size(); ++i) {
    EXPECT_EQ(plan.offsets[i] % 64, 0);
    EXPECT_GE(plan.offsets[i], 0);
    EXPECT_LE(plan.offsets[i] + problem.bytes[i], plan.bytes);
    for (std::size_t k = 0; k < i; ++k) {
      if (!problem.conflicts.Between(static_cast<int>(i), static_cast<int>(k))) continue;
      EXPECT_TRUE(plan.offsets[i] + problem.bytes[i] <= plan.offsets[k] ||
                  plan.offsets[k] + problem.bytes[k] <= plan.offsets[i])
          << i << " and " << k << " overlap";
    }
  }
}

TEST(LiveRangeBoundTest, IsTheMostAtOneTime) {
  EXPECT_EQ(LiveRangeBound({}), 0);
  const LiveRange ranges[] = {{10, 0, 3}, {20, 1, 2}, {30, 3, 4}, {5, 2, 4}};
  EXPECT_EQ(LiveRangeBound(ranges), 35) << "what ends when another begins is gone";
}

TEST(PlanOffsetsTest, AChainNeedsTwoPlaces) {
  std::vector<LiveRange> ranges;
  for (int i = 0; i < 20; ++i) ranges.push_back({6400, i, i + 2});
  const Problem problem = Of(ranges);
  const Offsets plan = PlanOffsets(problem.bytes, problem.conflicts);
  ExpectApart(problem, plan);
  EXPECT_EQ(plan.bytes, 2 * 6400);
}

TEST(PlanOffsetsTest, TheSmallestGapIsTaken) {
  // Two gaps, of 128 and 64, below what stays; 64 goes into the smaller one, so that 128 fits too.
  const Problem problem =
      Of({{128, 0, 1}, {640, 0, 9}, {64, 0, 1}, {640, 0, 9}, {64, 2, 4}, {128, 2, 4}});
  const Offsets plan = PlanOffsets(problem.bytes, problem.conflicts);
  ExpectApart(problem, plan);
  EXPECT_EQ(plan.bytes, LiveRangeBound(problem.ranges));
}

TEST(PlanOffsetsTest, NothingNeedsNothing) { EXPECT_EQ(PlanOffsets({}, Conflicts(0)).bytes, 0); }

// Forward values are kept for the way back, as in training.
TEST(PlanOffsetsTest, ATrainingStepNeedsLittleMoreThanTheBound) {
  std::mt19937 random(7);
  for (int round = 0; round < 20; ++round) {
    std::vector<LiveRange> ranges;
    constexpr int kLayers = 30;
    for (int i = 0; i < kLayers; ++i) {
      const int64_t bytes = 64 * (1 + static_cast<int64_t>(random() % 4096));
      ranges.push_back({bytes, i, 2 * kLayers - i});                    // its value
      ranges.push_back({bytes, 2 * kLayers - i, 2 * kLayers - i + 2});  // its derivative
    }
    const Problem problem = Of(ranges);
    const Offsets plan = PlanOffsets(problem.bytes, problem.conflicts);
    ExpectApart(problem, plan);
    EXPECT_LE(static_cast<double>(plan.bytes),
              1.05 * static_cast<double>(LiveRangeBound(problem.ranges)))
        << "round " << round;
  }
}

TEST(PlanOffsetsTest, WhateverTheRangesNothingOverlaps) {
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    std::vector<LiveRange> ranges;
    const int n = 1 + static_cast<int>(random() % 100);
    for (int i = 0; i < n; ++i) {
      const int64_t begin = random() % 50;
      ranges.push_back({1 + static_cast<int64_t>(random() % 100'000), begin,
                        begin + 1 + static_cast<int64_t>(random() % 20)});
    }
    const Problem problem = Of(ranges);
    const Offsets plan = PlanOffsets(problem.bytes, problem.conflicts);
    ExpectApart(problem, plan);
    EXPECT_LE(plan.bytes, 2 * LiveRangeBound(problem.ranges) + 64 * n);
  }
}

}  // namespace
}  // namespace millrace
