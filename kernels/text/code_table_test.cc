// SPDX-License-Identifier: Apache-2.0
// What TensorFlow answered, where the C library has the encoding.
#include "kernels/text/code_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "kernels/text/unicode_codec.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;

// The characters of a text, and the bytes of each; a malformed one is U+FFFD.
std::vector<int32_t> Codes(std::string_view name, std::string_view text,
                           std::vector<int>* bytes = nullptr) {
  std::vector<int32_t> codes;
  const StatusOr<TextEncoding> encoding = ParseTextEncoding(name);
  EXPECT_TRUE(encoding.ok()) << encoding.status();
  if (!encoding.ok()) return codes;
  TextReader reader(text, *encoding);
  for (Character c; reader.Next(&c);) {
    codes.push_back(c.code);
    if (bytes != nullptr) bytes->push_back(c.bytes);
  }
  return codes;
}

TEST(CodeTableTest, ReadsShiftJis) {
  if (CodeTable::Find("shiftjis") == nullptr) GTEST_SKIP() << "the C library does not know it";
  std::vector<int> bytes;
  EXPECT_THAT(Codes("SHIFT-JIS", "\x82\xb1\x82\xf1z\xb1\x81\x60\\", &bytes),
              ElementsAre(0x3053, 0x3093, 'z', 0xff71, 0xff5e, '\\'));
  EXPECT_THAT(bytes, ElementsAre(2, 2, 1, 1, 2, 1));
  EXPECT_THAT(Codes("shift_jis", "\x1a\x1c\x7f"), ElementsAre(0x1c, 0x7f, 0x1a));
}

TEST(CodeTableTest, APairThatIsNoneLeavesWhatCouldBeginACharacter) {
  if (CodeTable::Find("shiftjis") == nullptr) GTEST_SKIP() << "the C library does not know it";
  std::vector<int> bytes;
  EXPECT_THAT(Codes("SHIFT_JIS", "\x82 \x82", &bytes), ElementsAre(0xfffd, ' ', 0xfffd));
  EXPECT_THAT(bytes, ElementsAre(1, 1, 1));
}

TEST(CodeTableTest, ReadsSingleBytes) {
  if (CodeTable::Find("windows1252") == nullptr || CodeTable::Find("koi8r") == nullptr) {
    GTEST_SKIP() << "the C library does not know them";
  }
  EXPECT_THAT(Codes("windows-1252", "a\x80\x81\xe9"), ElementsAre('a', 0x20ac, 0x81, 0xe9));
  EXPECT_THAT(Codes("KOI8-R", "\xf0"), ElementsAre(0x41f));
  EXPECT_THAT(Codes("ISO-8859-15", "\xa4"), ElementsAre(0x20ac));
}

TEST(CodeTableTest, KnowsNoOtherNames) {
  EXPECT_EQ(CodeTable::Find("utf7"), nullptr);
  EXPECT_EQ(ParseTextEncoding("iso-2022-cn-ext").status().message(),
            "Could not create converter for input encoding: iso-2022-cn-ext");
}

}  // namespace
}  // namespace millrace
