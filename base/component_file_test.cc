// SPDX-License-Identifier: Apache-2.0
#include "base/component_file.h"

#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

using ::testing::EndsWith;

TEST(ComponentFileTest, IsBesideTheProgram) {
  EXPECT_THAT(FindComponentFile("component_file_test", "nowhere"),
              EndsWith("/component_file_test"));
}

TEST(ComponentFileTest, IsInItsFolderOfTheBuildTree) {
  const std::string path = FindComponentFile("part.txt", "base/component");
  ASSERT_THAT(path, EndsWith("/part.txt"));
  std::string text;
  std::getline(std::ifstream(path) >> std::ws, text);
  EXPECT_EQ(text, "a part");
}

TEST(ComponentFileTest, IsNowhere) { EXPECT_EQ(FindComponentFile("libnone.so", "base"), ""); }

}  // namespace
}  // namespace millrace
