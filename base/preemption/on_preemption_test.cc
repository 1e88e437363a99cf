// SPDX-License-Identifier: Apache-2.0
#include "base/preemption/on_preemption.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "base/notification.h"
#include "millrace/preemption.h"

namespace millrace {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class OnPreemptionTest : public ::testing::Test {
 protected:
  ~OnPreemptionTest() override { ForgetPreemption(); }
};

TEST_F(OnPreemptionTest, ASignalCallsAllWhoWaitOnce) {
  ASSERT_TRUE(WatchForPreemption({SIGUSR1}).ok());
  std::atomic<int> calls{0};
  Notification both;
  const auto count = [&] {
    if (++calls == 2) both.Notify();
  };
  const OnPreemption first(count), second(count);
  EXPECT_FALSE(both.WaitUntil(DeadlineAfter(milliseconds(20))));
  EXPECT_EQ(calls, 0);
  raise(SIGUSR1);
  EXPECT_TRUE(both.WaitUntil(DeadlineAfter(seconds(30))));
  NoticePreemption();  // another one
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(PreemptionSignal(), SIGUSR1);
}

TEST_F(OnPreemptionTest, ANoticeFromBeforeCountsUntilItIsForgotten) {
  NoticePreemption();
  Notification called, later;
  const OnPreemption waits([&] { called.Notify(); });
  EXPECT_TRUE(called.WaitUntil(DeadlineAfter(seconds(30))));
  ForgetPreemption();
  const OnPreemption goes_on([&] { later.Notify(); });
  EXPECT_FALSE(later.WaitUntil(DeadlineAfter(milliseconds(20))));
  NoticePreemption();
  EXPECT_TRUE(later.WaitUntil(DeadlineAfter(seconds(30))));
}

TEST_F(OnPreemptionTest, WhoIsDestroyedIsNotCalledAnyMore) {
  // Whoever is called while the others go.
  for (int round = 0; round < 200; ++round) {
    std::vector<std::unique_ptr<std::atomic<bool>>> alive;
    std::vector<std::unique_ptr<OnPreemption>> waiting;
    std::atomic<bool> was_late{false};
    for (int i = 0; i < 4; ++i) {
      alive.push_back(std::make_unique<std::atomic<bool>>(true));
      waiting.push_back(std::make_unique<OnPreemption>([&was_late, here = alive.back().get()] {
        if (!*here) was_late = true;
      }));
    }
    std::thread notice([] { NoticePreemption(); });
    for (int i = 0; i < 4; ++i) {
      waiting[static_cast<std::size_t>(i)].reset();
      *alive[static_cast<std::size_t>(i)] = false;
    }
    notice.join();
    EXPECT_FALSE(was_late);
    ForgetPreemption();
  }
}

}  // namespace
}  // namespace millrace
