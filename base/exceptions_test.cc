// SPDX-License-Identifier: Apache-2.0
#include "base/exceptions.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <system_error>

#include "base/errors.h"

namespace millrace {
namespace {

template <typename E>
Status StatusOf(E exception) {
  return Guarded([&]() -> Status { throw exception; });
}

TEST(ExceptionsTest, WhatCouldNotBeHadIsExhausted) {
  EXPECT_TRUE(errors::IsResourceExhausted(StatusOf(std::bad_alloc())));
  EXPECT_TRUE(errors::IsResourceExhausted(StatusOf(std::length_error("vector"))));
  const Status thread =
      StatusOf(std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again)));
  EXPECT_TRUE(errors::IsResourceExhausted(thread)) << thread;
}

TEST(ExceptionsTest, MemoryKeepsItsStatus) {
  const Status status = StatusOf(OutOfMemory(errors::InvalidArgument("shape [7] is odd")));
  EXPECT_TRUE(errors::IsInvalidArgument(status));
  EXPECT_EQ(Message(status), "shape [7] is odd");
}

TEST(ExceptionsTest, AllOthersAreInternal) {
  EXPECT_TRUE(errors::IsInternal(StatusOf(std::out_of_range("at"))));
  EXPECT_TRUE(errors::IsInternal(
      StatusOf(std::system_error(std::make_error_code(std::errc::invalid_argument)))));
  EXPECT_TRUE(errors::IsInternal(StatusOf(7)));
}

TEST(ExceptionsTest, ResultsPassThrough) {
  EXPECT_EQ(*Guarded([]() -> StatusOr<int> { return 3; }), 3);
  const StatusOr<int> failed =
      Guarded([]() -> StatusOr<int> { return static_cast<int>(std::string().at(1)); });
  EXPECT_TRUE(errors::IsInternal(failed.status())) << failed.status();
}

}  // namespace
}  // namespace millrace
