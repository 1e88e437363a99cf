// SPDX-License-Identifier: Apache-2.0
#include "placer/free_time.h"

#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace millrace {
namespace {

TEST(FreeTimeTest, WhatIsTakenIsNotFree) {
  FreeTime free;
  EXPECT_EQ(free.Find(0, 2), 0);
  free.Take(0, 2);
  EXPECT_EQ(free.Find(0, 1), 2);
  EXPECT_EQ(free.Find(5, 1), 5);
}

TEST(FreeTimeTest, TheFirstGapThatIsLongEnoughIsFound) {
  FreeTime free;
  for (const double begin : {1., 3., 8.}) free.Take(begin, 1);
  EXPECT_EQ(free.Find(0, 1), 0);
  EXPECT_EQ(free.Find(0.5, 1), 2);
  EXPECT_EQ(free.Find(0, 2), 4);
  EXPECT_EQ(free.Find(5, 3), 5);
  EXPECT_EQ(free.Find(5.5, 3), 9);
}

TEST(FreeTimeTest, TasksThatTakeNoTimeFitAnywhereAndHideNoGap) {
  FreeTime free;
  free.Take(0, 1);
  free.Take(1, 0);
  free.Take(1, 0);
  EXPECT_EQ(free.Find(0, 1), 1);
  free.Take(1, 1);
  EXPECT_EQ(free.Find(0, 1), 2);
}

// What looks at every gap, one after the other.
class Slow {
 public:
  double Find(double ready, double seconds) const {
    double begin = ready;
    for (const auto& [from, to] : busy_) {
      if (to <= begin && from < begin) continue;
      if (begin + seconds <= from) break;
      begin = std::max(begin, to);
    }
    return begin;
  }
  void Take(double begin, double seconds) {
    auto at = busy_.begin();
    while (at != busy_.end() && at->first < begin) ++at;
    busy_.insert(at, {begin, begin + seconds});
  }

 private:
  std::vector<std::pair<double, double>> busy_;
};

TEST(FreeTimeTest, FindsWhatALookAtEveryGapFinds) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    FreeTime free;
    Slow slow;
    for (int i = 0; i < 500; ++i) {
      const double ready = static_cast<double>(random() % 1000);
      const double seconds = 1 + static_cast<double>(random() % 8);
      const double begin = free.Find(ready, seconds);
      ASSERT_EQ(begin, slow.Find(ready, seconds)) << "seed " << seed << ", task " << i;
      free.Take(begin, seconds);
      slow.Take(begin, seconds);
    }
  }
}

}  // namespace
}  // namespace millrace
