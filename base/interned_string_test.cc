// SPDX-License-Identifier: Apache-2.0
#include "base/interned_string.h"

#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace millrace {
namespace {

TEST(InternedStringTest, EqualTextsAreOneObject) {
  const InternedString a("/job:ps/task:0"), b(std::string("/job:ps/task:0")), c("/job:ps/task:1");
  EXPECT_EQ(a, b);
  EXPECT_EQ(&a.str(), &b.str());
  EXPECT_FALSE(a == c);
  EXPECT_EQ(c.str(), "/job:ps/task:1");
}

TEST(InternedStringTest, TheEmptyTextNeedsNothing) {
  const InternedString empty, also("");
  EXPECT_TRUE(empty.empty());
  EXPECT_EQ(empty, also);
  EXPECT_EQ(empty.str(), "");
}

TEST(InternedStringTest, CopiesOutliveTheirSource) {
  InternedString copy;
  {
    const InternedString a("text of a");
    copy = a;
  }
  InternedString moved = std::move(copy);
  EXPECT_EQ(moved.str(), "text of a");
  EXPECT_TRUE(copy.empty());
  moved = moved;
  EXPECT_EQ(moved.str(), "text of a");
}

TEST(InternedStringTest, ThreadsMayMakeAndDropTheSameText) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 20'000; ++i) {
        const InternedString a("shared by threads");
        const InternedString b = a;
        ASSERT_EQ(b.str(), "shared by threads");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace millrace
