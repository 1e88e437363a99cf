// SPDX-License-Identifier: Apache-2.0
#include "distributed_runtime/service/failed_steps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/errors.h"

namespace millrace {
namespace {

TEST(FailedStepsTest, NamesTheRequestAndTheSession) {
  FailedSteps failed;
  ::testing::internal::CaptureStderr();
  failed.Log("RunStep", "session 00ff", 0x7f3a,
             errors::Internal("From a task:\nno \x1b[31mkernel"));
  failed.Log("RunStep", "session 00ff", 0, errors::Internal(std::string(5000, 'x')));
  failed.Log("RunStep", "session \n" + std::string(5000, 'y'), 1, errors::Aborted("not found"));
  failed.Log("RunStep", "session 00ff", 1, errors::OutOfRange("End of sequence"));
  failed.Log("RunStep", "session 00ff", 1, errors::Cancelled("enough"));
  failed.Log("RunStep", "session 00ff", 1, OkStatus());
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 3) << said;
  EXPECT_NE(
      said.find(
          "RunStep of session 00ff failed [request 0000000000007f3a]: From a task: no  [31mkernel"),
      std::string::npos)
      << said;
  EXPECT_LT(said.size(), 2000u);
}

TEST(FailedStepsTest, ManyAreCounted) {
  FailedSteps failed;
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 10000; ++i)
    failed.Log("RunStep", "session 00ff", 1, errors::Internal("again"));
  const std::string said = ::testing::internal::GetCapturedStderr();
  // However slow this machine is, a line takes less than a second.
  EXPECT_GE(std::count(said.begin(), said.end(), '\n'), FailedSteps::kMostLines);
  EXPECT_LT(std::count(said.begin(), said.end(), '\n'), 5000);
}

}  // namespace
}  // namespace millrace
