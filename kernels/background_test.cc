#include "kernels/background.h"

#include <atomic>
#include <memory>

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
    RunInBackground(device.get(), [&] {
      last_has_begun.Wait();
      ++ended;
    });
  }
  RunInBackground(device.get(), [&] {
    last_has_begun.Notify();
    ++ended;
  });
  WaitForBackground(device.get());
  EXPECT_EQ(ended, kPieces);
}

TEST(BackgroundTest, WhatAPieceHoldsIsGoneWhenNothingIsUnderWay) {
  ResourceManager resources;
  const auto device =
      NewCpuDevice("/job:localhost/replica:0/task:0/device:CPU:0", 1, nullptr, &resources);
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> watched = held;
  RunInBackground(device.get(), [held = std::move(held)] { EXPECT_EQ(*held, 1); });
  WaitForBackground(device.get());
  EXPECT_TRUE(watched.expired());
}

}  // namespace
}  // namespace millrace
