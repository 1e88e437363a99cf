// SPDX-License-Identifier: Apache-2.0
// Lines that a thread writes for a request which it does not work for: their JSON names it, too.
#include <gtest/gtest.h>

#include <string>

#include "base/errors.h"
#include "distributed_runtime/service/failed_steps.h"
#include "tests/logging/json_lines.h"
#include "transport/grpc/refusal_log.h"
#include "worker/overdue.h"

namespace millrace {
namespace {

template <typename Write>
void ExpectNamed(Write write) {
  const Json line = OnlyLine(WrittenBy(write));
  ASSERT_TRUE(line.is_object());
  ASSERT_TRUE(line.contains("request")) << line;
  EXPECT_EQ(line["request"], "00000000000000ab") << line;
}

TEST(RequestLines, OfStepsThatFailed) {
  ExpectNamed([] {
    FailedSteps failed;
    failed.Log("RunStep", "session 00ff", 0xab, errors::Internal("no kernel"), "10.0.0.1:2222");
  });
}

TEST(RequestLines, OfStepsThatDoNotEnd) {
  ExpectNamed([] { LogOverdue(7, 0xab, "it still runs"); });
}

TEST(RequestLines, OfCallsThatWereRefused) {
  ExpectNamed([] {
    RefusalLog log;
    log.Call([] { return std::string("10.0.0.1:2222"); }, "/tensorflow.MasterService/RunStep", 0xab,
             errors::PermissionDenied("not you"));
  });
}

}  // namespace
}  // namespace millrace
