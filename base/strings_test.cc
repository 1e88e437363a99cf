// SPDX-License-Identifier: Apache-2.0
#include "base/strings.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/string_map.h"

namespace millrace {
namespace {

TEST(StringsTest, ConcatenatesTextNumbersAndBools) {
  const std::string text = "b";
  EXPECT_EQ(StrCat("a", text, std::string_view("c"), 'd', 1, -2, true, uint64_t{3}),
            "abcd1-2true3");
  EXPECT_EQ(StrCat(std::numeric_limits<int64_t>::min()), "-9223372036854775808");
  EXPECT_EQ(StrCat(std::numeric_limits<uint64_t>::max()), "18446744073709551615");
  EXPECT_EQ(StrCat(int8_t{-5}, " ", uint8_t{200}), "-5 200");
}

TEST(StringsTest, WritesFloatsSoThatTheyReadBackAndNoLonger) {
  EXPECT_EQ(StrCat(0.1f), "0.1");
  EXPECT_EQ(StrCat(0.1), "0.1");
  EXPECT_EQ(StrCat(1.0), "1");
  EXPECT_EQ(StrCat(1.0 / 3), "0.3333333333333333");
}

TEST(StringsTest, AppendsInPlace) {
  std::string out = "x";
  StrAppend(&out, "=", 1);
  EXPECT_EQ(out, "x=1");
}

TEST(StringsTest, JoinsAnyRange) {
  EXPECT_EQ(StrJoin(std::vector<int>{1, 2, 3}, ","), "1,2,3");
  EXPECT_EQ(StrJoin(std::vector<std::string>{"a"}, ","), "a");
  EXPECT_EQ(StrJoin(std::vector<std::string>{}, ","), "");
}

TEST(StringsTest, SplitKeepsEmptyPieces) {
  EXPECT_EQ(StrSplit("a,,b", ','), (std::vector<std::string_view>{"a", "", "b"}));
  EXPECT_EQ(StrSplit("", ','), (std::vector<std::string_view>{""}));
  EXPECT_EQ(StrSplit(",", ','), (std::vector<std::string_view>{"", ""}));
}

TEST(StringsTest, ParsesOnlyWholeNumbersThatFit) {
  int64_t value = 7;
  EXPECT_TRUE(ParseInt64("-12", &value));
  EXPECT_EQ(value, -12);
  for (const char* bad : {"", "12x", " 1", "9223372036854775808", "1.0", "+1"}) {
    EXPECT_FALSE(ParseInt64(bad, &value)) << bad;
  }
  EXPECT_EQ(value, -12) << "a failed parse leaves the value alone";
  uint64_t hex = 0;
  EXPECT_TRUE(ParseUint64Hex("ffffffffffffffff", &hex));
  EXPECT_EQ(hex, std::numeric_limits<uint64_t>::max());
  EXPECT_FALSE(ParseUint64Hex("0x1", &hex));
  double number = 0;
  EXPECT_TRUE(ParseDouble("2.5e3", &number));
  EXPECT_EQ(number, 2500);
  EXPECT_FALSE(ParseDouble("2.5s", &number));
}

TEST(StringsTest, WritesSixteenHexDigits) {
  EXPECT_EQ(Hex16(0), "0000000000000000");
  EXPECT_EQ(Hex16(0x0123456789abcdefull), "0123456789abcdef");
}

TEST(StringsTest, EscapesWhatATerminalCannotShow) {
  EXPECT_EQ(CEscape("a\"b\\\n\x01"
                    "1\xff"),
            "a\\\"b\\\\\\n\\0011\\377");
}

TEST(StringsTest, StripsWhitespaceAtBothEnds) {
  EXPECT_EQ(StripWhitespace(" \t a b \n"), "a b");
  EXPECT_EQ(StripWhitespace("  "), "");
}

TEST(StringMapTest, IsSearchedWithoutAString) {
  StringMap<int> map;
  map["one"] = 1;
  EXPECT_TRUE(map.contains(std::string_view("one")));
  EXPECT_EQ(map.find(std::string_view("two")), map.end());
}

}  // namespace
}  // namespace millrace
