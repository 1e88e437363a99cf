// SPDX-License-Identifier: Apache-2.0
#include "base/deadline_timer.h"

#include <atomic>
#include <chrono>
#include <vector>

#include "gtest/gtest.h"

namespace millrace {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(DeadlineTimer, CallsBackAfterTheDeadline) {
  DeadlineTimer timer;
  Notification fired;
  const Deadline deadline = DeadlineAfter(milliseconds(5));
  timer.Schedule(deadline, [&] { fired.Notify(); });
  ASSERT_TRUE(fired.WaitUntil(DeadlineAfter(seconds(30))));
  EXPECT_GE(SteadyClock::now(), deadline);
}

TEST(DeadlineTimer, CallsBackInTheOrderOfDeadlinesNotOfRequests) {
  DeadlineTimer timer;
  std::vector<int> order;
  Notification both_are_there, all;
  const Deadline now = SteadyClock::now();
  // Callbacks come one after the other: none of the two before both have been requested.
  timer.Schedule(now, [&] { EXPECT_TRUE(both_are_there.WaitUntil(DeadlineAfter(seconds(30)))); });
  timer.Schedule(now + milliseconds(40), [&] {
    order.push_back(2);
    all.Notify();
  });
  timer.Schedule(now + milliseconds(20), [&] { order.push_back(1); });
  both_are_there.Notify();
  ASSERT_TRUE(all.WaitUntil(DeadlineAfter(seconds(30))));
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST(DeadlineTimer, AnEarlierDeadlineIsMetWhileALaterOneIsSleptFor) {
  DeadlineTimer timer;
  timer.Schedule(DeadlineAfter(std::chrono::hours(1)), [] {});
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // lets the thread fall asleep
  Notification early;
  timer.Schedule(DeadlineAfter(std::chrono::milliseconds(1)), [&] { early.Notify(); });
  EXPECT_TRUE(early.WaitUntil(DeadlineAfter(std::chrono::seconds(20))));
}

TEST(DeadlineTimer, ADeadlineAfterACancelledEarlierOneIsMet) {
  DeadlineTimer timer;
  // Until it is cancelled before it is called back: a loaded machine may be late.
  bool cancelled = false;
  for (milliseconds wait(30); !cancelled && wait < seconds(30); wait *= 2) {
    const auto token = timer.Schedule(DeadlineAfter(wait), [] {});
    std::this_thread::sleep_for(milliseconds(5));
    cancelled = timer.Cancel(token);
  }
  EXPECT_TRUE(cancelled);
  Notification later;
  timer.Schedule(DeadlineAfter(std::chrono::milliseconds(60)), [&] { later.Notify(); });
  EXPECT_TRUE(later.WaitUntil(DeadlineAfter(std::chrono::seconds(20))));
}

TEST(DeadlineTimer, ACancelledCallbackNeverRuns) {
  DeadlineTimer timer;
  std::atomic<bool> ran{false};
  const auto token = timer.Schedule(DeadlineAfter(hours(1)), [&] { ran = true; });
  EXPECT_TRUE(timer.Cancel(token));
  EXPECT_FALSE(timer.Cancel(token));
  EXPECT_FALSE(ran);
}

TEST(DeadlineTimer, CancelDoesNotWaitForACallbackThatRuns) {
  DeadlineTimer timer;
  Notification began, proceed, over;
  const auto token = timer.Schedule(SteadyClock::now(), [&] {
    began.Notify();
    EXPECT_TRUE(proceed.WaitUntil(DeadlineAfter(seconds(30))));
    over.Notify();
  });
  ASSERT_TRUE(began.WaitUntil(DeadlineAfter(seconds(30))));
  EXPECT_FALSE(timer.Cancel(token));
  proceed.Notify();
  EXPECT_TRUE(over.WaitUntil(DeadlineAfter(seconds(30))));
}

TEST(DeadlineTimer, ACallbackMayCancelItself) {
  DeadlineTimer timer;
  Notification known, done;
  DeadlineTimer::Token token = DeadlineTimer::kNone;
  token = timer.Schedule(SteadyClock::now(), [&] {
    EXPECT_TRUE(known.WaitUntil(DeadlineAfter(seconds(30))));
    EXPECT_FALSE(timer.Cancel(token));
    done.Notify();
  });
  known.Notify();
  EXPECT_TRUE(done.WaitUntil(DeadlineAfter(seconds(30))));
}

TEST(DeadlineTimer, KeepsNothingForNoDeadline) {
  DeadlineTimer timer;
  EXPECT_EQ(timer.Schedule(kNoDeadline, [] {}), DeadlineTimer::kNone);
  EXPECT_TRUE(timer.Cancel(DeadlineTimer::kNone));
}

TEST(DeadlineTimer, DropsWhatIsScheduledWhenDestroyed) {
  bool ran = false;
  {
    DeadlineTimer timer;
    timer.Schedule(DeadlineAfter(hours(1)), [&] { ran = true; });
  }
  EXPECT_FALSE(ran);
}

}  // namespace
}  // namespace millrace
