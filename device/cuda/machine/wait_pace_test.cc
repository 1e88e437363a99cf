// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/machine/wait_pace.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

constexpr int64_t kMicro = 1000, kMilli = 1'000'000;

WaitPace After(int64_t wait) {
  WaitPace pace;
  for (int i = 0; i < 8; ++i) pace.Ended(wait);
  return pace;
}

TEST(WaitPaceTest, NothingIsSleptThroughBeforeAnythingIsKnown) {
  const WaitPace pace;
  EXPECT_EQ(pace.SleepAt(0), 0);
  EXPECT_EQ(pace.SleepAt(40 * kMicro), 0);
  // Then naps, longer ones after a longer wait.
  EXPECT_EQ(pace.SleepAt(60 * kMicro), WaitPace::kFirstNap);
  EXPECT_EQ(pace.SleepAt(3200 * kMicro), 50 * kMicro);
  EXPECT_EQ(pace.SleepAt(60'000 * kMilli), WaitPace::kLongestNap);
}

TEST(WaitPaceTest, ShortWaitsAreAskedThrough) {
  const WaitPace pace = After(100 * kMicro);
  for (int64_t at = 0; at < 200 * kMicro; at += kMicro) EXPECT_EQ(pace.SleepAt(at), 0) << at;
}

TEST(WaitPaceTest, TheCertainPartOfALongWaitIsSlept) {
  const WaitPace pace = After(8 * kMilli);
  EXPECT_EQ(pace.SleepAt(0), WaitPace::kLeastSleep);
  EXPECT_EQ(pace.SleepAt(4 * kMilli), 500 * kMicro);
  EXPECT_EQ(pace.SleepAt(6800 * kMicro), 200 * kMicro);
  // The last eighth is asked through, and no more than a millisecond in all.
  EXPECT_EQ(pace.SleepAt(7 * kMilli), 0);
  EXPECT_EQ(pace.SleepAt(8 * kMilli - 1), 0);
  EXPECT_GT(pace.SleepAt(8 * kMilli + kMilli), 0);
}

TEST(WaitPaceTest, OneShortWaitAmongLongOnesEndsSleeping) {
  WaitPace pace = After(8 * kMilli);
  pace.Ended(50 * kMicro);
  EXPECT_EQ(pace.SleepAt(0), 0);
  EXPECT_LE(pace.SleepAt(kMilli), WaitPace::kFirstNap);
  // For as long as it is among the last ones.
  for (int i = 0; i < 8; ++i) pace.Ended(8 * kMilli);
  EXPECT_EQ(pace.SleepAt(4 * kMilli), 500 * kMicro);
}

}  // namespace
}  // namespace millrace
