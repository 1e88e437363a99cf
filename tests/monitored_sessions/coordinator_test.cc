// SPDX-License-Identifier: Apache-2.0
// Threads that stop together.
#include "millrace/coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <stdexcept>

#include "base/errors.h"
#include "base/notification.h"

namespace millrace::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr milliseconds kPatience{30'000};

TEST(Coordinator, JoinsThreadsThatHaveStopped) {
  Coordinator coordinator;
  std::atomic<int> ended = 0;
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(coordinator
                    .StartThread("waiter",
                                 [&]() -> Status {
                                   EXPECT_TRUE(coordinator.WaitForStop(kPatience));
                                   ++ended;
                                   return OkStatus();
                                 })
                    .ok());
  }
  EXPECT_FALSE(coordinator.ShouldStop());
  EXPECT_EQ(coordinator.running().size(), 4u);
  coordinator.RequestStop();
  EXPECT_TRUE(coordinator.Join(kPatience).ok());
  EXPECT_EQ(ended, 4);
}

TEST(Coordinator, StopsAllForTheErrorOfOneAndReturnsIt) {
  Coordinator coordinator;
  ASSERT_TRUE(coordinator
                  .StartThread("waiter",
                               [&]() -> Status {
                                 coordinator.WaitForStop(kPatience);
                                 return errors::Cancelled("because of the stop");
                               })
                  .ok());
  ASSERT_TRUE(coordinator.StartThread("reader", [] { return errors::DataLoss("a file"); }).ok());
  const Status status = coordinator.Join(kPatience);
  EXPECT_TRUE(errors::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr("in the thread \"reader\""));
}

TEST(Coordinator, TakesAnExceptionForAnError) {
  Coordinator coordinator;
  ASSERT_TRUE(
      coordinator
          .StartThread("thrower", []() -> Status { throw std::runtime_error("out of luck"); })
          .ok());
  const Status status = coordinator.Join(kPatience);
  EXPECT_TRUE(errors::IsInternal(status)) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr("out of luck"));
}

TEST(Coordinator, TakesTheEndOfTheInputForNoError) {
  Coordinator coordinator;
  ASSERT_TRUE(coordinator.StartThread("reader", [] { return errors::OutOfRange("the end"); }).ok());
  EXPECT_TRUE(coordinator.Join(kPatience).ok());
  EXPECT_TRUE(coordinator.ShouldStop());
}

TEST(Coordinator, KeepsTheFirstCause) {
  Coordinator coordinator;
  coordinator.RequestStop(errors::Internal("first"));
  coordinator.RequestStop(errors::DataLoss("second"));
  EXPECT_EQ(Message(coordinator.Join(kPatience)), "first");
}

TEST(Coordinator, NamesThreadsThatDoNotStopAndOutlivesThem) {
  const auto release = std::make_shared<Notification>();
  {
    Coordinator coordinator;
    ASSERT_TRUE(coordinator
                    .StartThread("deaf",
                                 [release]() -> Status {
                                   release->Wait();
                                   return OkStatus();
                                 })
                    .ok());
    coordinator.RequestStop();
    const Status status = coordinator.Join(milliseconds(50));
    EXPECT_TRUE(errors::IsDeadlineExceeded(status)) << status;
    EXPECT_THAT(std::string(Message(status)), HasSubstr("deaf"));
  }
  release->Notify();
}

TEST(Coordinator, CallsALoopUntilTheStop) {
  Coordinator coordinator;
  std::atomic<int> calls = 0;
  Notification third;
  ASSERT_TRUE(coordinator
                  .StartLoop("loop", milliseconds(1),
                             [&]() -> Status {
                               if (++calls == 3) third.Notify();
                               return OkStatus();
                             })
                  .ok());
  third.Wait();
  coordinator.RequestStop();
  EXPECT_TRUE(coordinator.Join(kPatience).ok());
  EXPECT_TRUE(coordinator.running().empty());
}

}  // namespace
}  // namespace millrace::testing
