// SPDX-License-Identifier: Apache-2.0
#include "base/text/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace millrace {
namespace {

TEST(Utf8Test, KnowsTheLengthOfACharacter) {
  EXPECT_EQ(Utf8Length("a"), 1u);
  EXPECT_EQ(Utf8Length(std::string(1, '\0')), 1u);
  EXPECT_EQ(Utf8Length("\xC3\xA9 and more"), 2u);
  EXPECT_EQ(Utf8Length("\xE2\x82\xAC"), 3u);
  EXPECT_EQ(Utf8Length("\xED\x9F\xBF"), 3u);      // the last before the surrogates
  EXPECT_EQ(Utf8Length("\xF4\x8F\xBF\xBF"), 4u);  // the last of all
}

TEST(Utf8Test, RefusesWhatIsNoCharacter) {
  for (const char* bytes :
       {"\x80", "\xC0\x80", "\xC1\xBF", "\xC3", "\xC3(", "\xE0\x80\x80", "\xE2\x82", "\xED\xA0\x80",
        "\xF0\x80\x80\x80", "\xF0\x9F\x98", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF"}) {
    EXPECT_EQ(Utf8Length(bytes), 0u) << std::string(bytes);
  }
}

}  // namespace
}  // namespace millrace
