// SPDX-License-Identifier: Apache-2.0
#include "device/host_threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>

#include "base/notification.h"

namespace millrace {
namespace {

Deadline Limit() { return DeadlineAfter(std::chrono::seconds(30)); }

TEST(HostThreads, RunWhatIsPostedOnThreadsOfTheirOwn) {
  HostThreads threads([] {});
  EXPECT_FALSE(HostThreads::IsCurrent());
  Notification ran;
  bool on_host_thread = false;
  threads.Post(
      [&] {
        on_host_thread = HostThreads::IsCurrent();
        ran.Notify();
      },
      nullptr);
  ASSERT_TRUE(ran.WaitUntil(Limit()));
  EXPECT_TRUE(on_host_thread);
}

TEST(HostThreads, AFunctionThatWaitsDoesNotHoldUpOthers) {
  HostThreads threads([] {});
  constexpr int kWaiting = 20;
  Notification go;
  std::atomic<int> timed_out{0};
  for (int i = 0; i < kWaiting; ++i) {
    threads.Post([&] { timed_out += go.WaitUntil(Limit()) ? 0 : 1; }, nullptr);
  }
  threads.Post([&] { go.Notify(); }, nullptr);
  threads.Stop();
  EXPECT_EQ(timed_out, 0);
}

TEST(HostThreads, AFunctionIsPendingUntilItAndWhatItOwnsAreGone) {
  std::atomic<int> ends{0};
  HostThreads threads([&] { ++ends; });
  EXPECT_TRUE(threads.IsIdle());
  Notification started, go;
  // Looks at the count when it goes, with the function.
  std::atomic<int> pending_at_end{-1};
  auto owned = std::shared_ptr<int>(new int, [&](int* p) {
    pending_at_end = threads.num_pending();
    delete p;
  });
  threads.Post(
      [&started, &go, owned = std::move(owned)] {
        started.Notify();
        EXPECT_TRUE(go.WaitUntil(Limit()));
      },
      nullptr);
  ASSERT_TRUE(started.WaitUntil(Limit()));
  EXPECT_EQ(threads.num_pending(), 1);
  EXPECT_EQ(ends, 0);
  go.Notify();
  threads.Stop();
  EXPECT_EQ(pending_at_end, 1);
  EXPECT_TRUE(threads.IsIdle());
  EXPECT_EQ(ends, 1);
}

TEST(HostThreads, StopRunsWhatWasPostedBefore) {
  HostThreads threads([] {});
  std::atomic<int> ran{0};
  for (int i = 0; i < 200; ++i) threads.Post([&] { ++ran; }, nullptr);
  threads.Stop();
  EXPECT_EQ(ran, 200);
}

TEST(HostThreads, AfterStopTheCallerRunsIt) {
  HostThreads threads([] {});
  threads.Stop();
  std::thread::id where;
  threads.Post([&] { where = std::this_thread::get_id(); }, nullptr);
  EXPECT_EQ(where, std::this_thread::get_id());
}

TEST(HostThreads, TheOwnerMayGoOnOneOfThem) {
  struct Device {
    std::optional<HostThreads> threads;
    Notification* gone = nullptr;
    ~Device() {
      threads.reset();
      gone->Notify();
    }
  };
  Notification gone, go;
  auto device = std::make_shared<Device>();
  device->gone = &gone;
  device->threads.emplace([] {});
  HostThreads* const threads = &*device->threads;
  threads->Post([&] { EXPECT_TRUE(go.WaitUntil(Limit())); }, std::move(device));
  go.Notify();
  EXPECT_TRUE(gone.WaitUntil(Limit()));
}

}  // namespace
}  // namespace millrace
