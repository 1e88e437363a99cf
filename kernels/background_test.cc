// SPDX-License-Identifier: Apache-2.0
#include "kernels/background.h"

#include <sys/resource.h>

#include <atomic>
#include <fstream>
#include <memory>
#include <new>
#include <utility>

#include "base/errors.h"
#include "base/notification.h"
#include "device/resource_manager.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

TEST(BackgroundTest, PiecesThatWaitForEachOtherAllRun) {
  ResourceManager resources;
  const auto device =
      NewCpuDevice("/job:localhost/replica:0/task:0/device:CPU:0", 1, nullptr, &resources);
  constexpr int kPieces = 64;
  Notification last_has_begun;
  std::atomic<int> ended{0};
  for (int i = 0; i + 1 < kPieces; ++i) {
    const Status begun = RunInBackground(device.get(), [&] {
      last_has_begun.Wait();
      ++ended;
    });
    ASSERT_TRUE(begun.ok()) << begun;
  }
  const Status last = RunInBackground(device.get(), [&] {
    last_has_begun.Notify();
    ++ended;
  });
  ASSERT_TRUE(last.ok()) << last;
  WaitForBackground(device.get());
  EXPECT_EQ(ended, kPieces);
}

TEST(BackgroundTest, WhatAPieceHoldsIsGoneWhenNothingIsUnderWay) {
  ResourceManager resources;
  const auto device =
      NewCpuDevice("/job:localhost/replica:0/task:0/device:CPU:0", 1, nullptr, &resources);
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> watched = held;
  const Status begun =
      RunInBackground(device.get(), [held = std::move(held)] { EXPECT_EQ(*held, 1); });
  ASSERT_TRUE(begun.ok()) << begun;
  WaitForBackground(device.get());
  EXPECT_TRUE(watched.expired());
}

// Address space for a few more stacks only.
class FewThreads {
 public:
  FewThreads() {
    getrlimit(RLIMIT_AS, &before_);
    std::ifstream statm("/proc/self/statm");
    rlim_t pages = 0;
    statm >> pages;
    rlimit limit = before_;
    limit.rlim_cur = pages * 4096 + (rlim_t{200} << 20);
    limited_ = setrlimit(RLIMIT_AS, &limit) == 0;
  }
  ~FewThreads() { setrlimit(RLIMIT_AS, &before_); }
  bool limited() const { return limited_; }

 private:
  rlimit before_{};
  bool limited_ = false;
};

TEST(BackgroundTest, WhereThereAreNoMoreThreadsAPieceIsRefusedAndTheOthersGoOn) {
  ResourceManager resources;
  const auto device =
      NewCpuDevice("/job:localhost/replica:0/task:0/device:CPU:0", 1, nullptr, &resources);
  Notification may_end;
  std::atomic<int> ended{0};
  int begun = 0;
  Status refused;
  {
    const FewThreads few;
    ASSERT_TRUE(few.limited());
    // Not of the system's making at the latest.
    while (refused.ok() && begun <= kMostBackgroundThreads) {
      refused = RunInBackground(device.get(), [&] {
        may_end.Wait();
        ++ended;
      });
      if (refused.ok()) ++begun;
    }
  }
  EXPECT_TRUE(errors::IsResourceExhausted(refused)) << refused;
  EXPECT_NE(Message(refused).find(device->name()), std::string::npos) << refused;
  EXPECT_GT(begun, 0);
  may_end.Notify();
  WaitForBackground(device.get());
  EXPECT_EQ(ended, begun);
  EXPECT_TRUE(RunInBackground(device.get(), [&] { ++ended; }).ok());
  WaitForBackground(device.get());
  EXPECT_EQ(ended, begun + 1);
}

TEST(BackgroundTest, WhatAComputationThrowsIsToldToWhoWaits) {
  ResourceManager resources;
  const auto device =
      NewCpuDevice("/job:localhost/replica:0/task:0/device:CPU:0", 1, nullptr, &resources);
  struct Waiter {
    Notification done;
    Status status;
  } waiter;
  ComputeInBackground(device.get(),
                      {[](void* arg, Status status) {
                         auto* w = static_cast<Waiter*>(arg);
                         w->status = std::move(status);
                         w->done.Notify();
                       },
                       &waiter},
                      []() -> Status { throw std::bad_alloc(); });
  waiter.done.Wait();
  EXPECT_TRUE(errors::IsResourceExhausted(waiter.status)) << waiter.status;
  WaitForBackground(device.get());
}

}  // namespace
}  // namespace millrace
