// SPDX-License-Identifier: Apache-2.0
#include "tools/millrace/flag_texts.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace millrace {
namespace {

TEST(FlagTextsTest, RangesAreSaidInOneForm) {
  const std::string most = std::to_string(std::numeric_limits<double>::max());
  EXPECT_EQ(FlagText("--steps: Value 0 not in range 1 to 100"),
            "--steps must be from 1 to 100, it is 0");
  EXPECT_EQ(FlagText("--interval: Value x not in range 0.050000 to 3600.000000"),
            "--interval must be from 0.05 to 3600, it is x");
  EXPECT_EQ(FlagText("--limit: Value -1 not in range 0 to 2^63 - 1"),
            "--limit must be from 0 to 2^63 - 1, it is -1");
  EXPECT_EQ(FlagText("--max_steps: Value -1 not in range 0.000000 to " + most),
            "--max_steps must be at least 0, it is -1");
  EXPECT_EQ(FlagText("--top: Value 0 not in range 0.000000 to " + most),
            "--top must be above 0, it is 0");
  EXPECT_EQ(FlagText("Could not convert: --task_id = x"), "--task_id must be a number, it is x");
}

TEST(FlagTextsTest, OtherComplaintsStay) {
  for (const std::string text : {"", "The following argument was not expected: --no_such_flag=1",
                                 "--a: Value 1", "target is required"}) {
    EXPECT_EQ(FlagText(text), text);
  }
}

}  // namespace
}  // namespace millrace
