// SPDX-License-Identifier: Apache-2.0
#include "base/cancellation.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/errors.h"

namespace millrace {
namespace {

TEST(CancellationTest, RunsEveryCallbackOnceAndKeepsTheFirstReason) {
  CancellationManager manager;
  int runs = 0;
  ASSERT_TRUE(manager.RegisterCallback(manager.NextToken(), [&runs] { ++runs; }));
  ASSERT_TRUE(manager.RegisterCallback(manager.NextToken(), [&runs] { ++runs; }));
  EXPECT_FALSE(manager.IsCancelled());
  EXPECT_TRUE(manager.reason().ok());
  manager.StartCancel(errors::Aborted("first"));
  manager.StartCancel(errors::Internal("second"));
  EXPECT_EQ(runs, 2);
  EXPECT_TRUE(manager.IsCancelled());
  EXPECT_EQ(Message(manager.reason()), "first");
}

TEST(CancellationTest, RefusesCallbacksOnceCancelled) {
  CancellationManager manager;
  manager.StartCancel(errors::Cancelled("over"));
  bool ran = false;
  EXPECT_FALSE(manager.RegisterCallback(manager.NextToken(), [&ran] { ran = true; }));
  EXPECT_FALSE(ran);
}

TEST(CancellationTest, DeregisteredCallbackDoesNotRun) {
  CancellationManager manager;
  bool ran = false;
  const CancellationManager::Token token = manager.NextToken();
  ASSERT_TRUE(manager.RegisterCallback(token, [&ran] { ran = true; }));
  EXPECT_TRUE(manager.DeregisterCallback(token));
  EXPECT_FALSE(manager.DeregisterCallback(token));
  manager.StartCancel(errors::Cancelled("over"));
  EXPECT_FALSE(ran);
}

TEST(CancellationTest, DeregisterWaitsForARunningCallback) {
  CancellationManager manager;
  Notification started;
  Notification finish;
  std::atomic<bool> finished{false};
  const CancellationManager::Token token = manager.NextToken();
  ASSERT_TRUE(manager.RegisterCallback(token, [&] {
    started.Notify();
    finish.Wait();
    finished = true;
  }));
  std::thread canceller([&manager] { manager.StartCancel(errors::Cancelled("over")); });
  started.Wait();
  EXPECT_FALSE(manager.TryDeregisterCallback(token)) << "does not wait";
  EXPECT_FALSE(finished);
  std::thread releaser([&finish] { finish.Notify(); });
  EXPECT_FALSE(manager.DeregisterCallback(token));
  EXPECT_TRUE(finished);
  canceller.join();
  releaser.join();
}

TEST(CancellationTest, ChildFollowsItsParentAndNotTheOtherWay) {
  CancellationManager parent;
  CancellationManager first(&parent);
  CancellationManager second(&parent);
  first.StartCancel(errors::Cancelled("only this step"));
  EXPECT_FALSE(parent.IsCancelled());
  EXPECT_FALSE(second.IsCancelled());
  parent.StartCancel(errors::Cancelled("session closed"));
  EXPECT_TRUE(second.IsCancelled());
  EXPECT_EQ(Message(second.reason()), "session closed");
  CancellationManager late(&parent);
  EXPECT_TRUE(late.IsCancelled());
}

TEST(CancellationTest, ChildMayDieBeforeOrWhileItsParentIsCancelled) {
  for (int round = 0; round < 50; ++round) {
    CancellationManager parent;
    std::thread child([&parent] { CancellationManager short_lived(&parent); });
    parent.StartCancel(errors::Cancelled("over"));
    child.join();
  }
}

TEST(CancellationTest, TellsWhatIsWaitedForAsLongAsItIs) {
  CancellationManager manager;
  const auto queue = manager.NextToken(), other = manager.NextToken(), mute = manager.NextToken();
  for (const auto token : {queue, other, mute}) {
    ASSERT_TRUE(manager.RegisterCallback(token, [] {}));
  }
  manager.Describe(queue, [] { return std::string("queue 'q': 0 of 1 elements"); });
  manager.Describe(other, [] { return std::string("a barrier"); });
  manager.Describe(manager.NextToken(), [] { return std::string("nobody"); });
  EXPECT_EQ(manager.DescribeWaits(),
            (std::vector<std::string>{"a barrier", "queue 'q': 0 of 1 elements"}));
  manager.TryDeregisterCallback(other);
  EXPECT_EQ(manager.DescribeWaits().size(), 1u);
  manager.StartCancel(errors::Cancelled("over"));
  EXPECT_TRUE(manager.DescribeWaits().empty());
}

TEST(BlockingCounterTest, WaitsForEveryDecrement) {
  BlockingCounter counter(2);
  EXPECT_FALSE(counter.WaitUntil(DeadlineAfter(std::chrono::milliseconds(1))));
  std::thread a([&counter] { counter.DecrementCount(); });
  std::thread b([&counter] { counter.DecrementCount(); });
  counter.Wait();
  a.join();
  b.join();
}

TEST(NotificationTest, WaitEndsAtTheDeadlineOrTheNotification) {
  Notification notification;
  EXPECT_FALSE(notification.WaitUntil(DeadlineAfter(std::chrono::milliseconds(1))));
  EXPECT_FALSE(notification.HasBeenNotified());
  notification.Notify();
  EXPECT_TRUE(notification.WaitUntil(DeadlineAfter(std::chrono::milliseconds(1))));
}

}  // namespace
}  // namespace millrace
