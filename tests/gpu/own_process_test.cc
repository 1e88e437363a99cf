// SPDX-License-Identifier: Apache-2.0
// Whatever goes wrong in a test's own process is told by the test.
#include "tests/gpu/own_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

namespace millrace::testing {
namespace {

using ::testing::HasSubstr;

bool IsOwn() { return std::getenv("MILLRACE_TEST_OWN_PROCESS") != nullptr; }

TEST(OwnProcessTest, RunsTheTestOnceMoreWithItsEnvironment) {
  if (!InOwnProcess({.environment = {{"SAID", "so it is"}}})) {
    EXPECT_THAT(OutputOfOwnProcess(), HasSubstr("this is the other one"));
    return;
  }
  std::printf("this is the other one\n");
  EXPECT_STREQ(std::getenv("SAID"), "so it is");
}

TEST(OwnProcessTest, AFailureThereIsOneHere) {
  if (IsOwn()) FAIL() << "two and two are five";
  EXPECT_NONFATAL_FAILURE(InOwnProcess(), "two and two are five");
}

TEST(OwnProcessTest, ACrashThereIsAFailureHere) {
  if (IsOwn()) std::abort();
  EXPECT_NONFATAL_FAILURE(InOwnProcess(), "signal 6");
}

TEST(OwnProcessTest, OneThatHangsIsAFailureHere) {
  if (IsOwn()) std::this_thread::sleep_for(std::chrono::seconds(60));
  EXPECT_NONFATAL_FAILURE(InOwnProcess({.seconds = 1}), "did not end within 1 s");
}

TEST(OwnProcessTest, MayHaveToEndByASignal) {
  if (!InOwnProcess({.signal = SIGKILL})) return;
  std::raise(SIGKILL);
}

TEST(OwnProcessTest, OneThatGoesOnInsteadIsAFailureHere) {
  if (IsOwn()) return;
  EXPECT_NONFATAL_FAILURE(InOwnProcess({.signal = SIGKILL}), "was to end by signal 9");
}

TEST(OwnProcessTest, IsSkippedWithTheReasonThatWasGivenThere) {
  if (!InOwnProcess()) {
    EXPECT_TRUE(IsSkipped());
    EXPECT_THAT(OutputOfOwnProcess(), HasSubstr("there is no moon"));
    return;
  }
  GTEST_SKIP() << "there is no moon";
}

}  // namespace
}  // namespace millrace::testing
