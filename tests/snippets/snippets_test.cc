// SPDX-License-Identifier: Apache-2.0
// Examples of the documentation: that this program was built says that each of them compiles.
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/snippets/prelude.h"

TEST(Snippets, AreThere) {
  std::ifstream file("tests/snippets/snippets.cc");
  ASSERT_TRUE(file.is_open());
  int count = 0;
  for (std::string line; std::getline(file, line);) count += line.starts_with("namespace snippet_");
  RecordProperty("snippets", count);
  EXPECT_GE(count, 15);
}
