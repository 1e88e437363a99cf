// SPDX-License-Identifier: Apache-2.0
// Lines as JSON. The format is read at the first line, so that this is a program of its own.
#include <gtest/gtest.h>

#include <string>

#include "base/log.h"
#include "base/strings.h"
#include "tests/logging/json_lines.h"

namespace millrace {
namespace {

TEST(LogJson, ALineIsAnObjectWithWhatTheTextSays) {
  const std::string text = WrittenBy([] {
    SetLogTask("/job:worker/task:0");
    MR_LOG(kWarning, "the queue ", 7, " is full");
  });
  const Json line = OnlyLine(text);
  ASSERT_TRUE(line.is_object()) << text;
  EXPECT_EQ(line["severity"], "WARNING");
  EXPECT_EQ(line["file"], "log_json_test.cc");
  EXPECT_GT(line["line"].get<int>(), 0);
  EXPECT_EQ(line["task"], "/job:worker/task:0");
  EXPECT_EQ(line["message"], "the queue 7 is full");
  const std::string time = line["time"];  // "2026-01-31T23:59:59.123456Z"
  EXPECT_EQ(time.size(), 27u) << time;
  EXPECT_EQ(time[10], 'T');
  EXPECT_EQ(time.back(), 'Z');
}

TEST(LogJson, NoTextBreaksOutOfItsString) {
  std::string hostile = "end\"}\n{\"severity\":\"FATAL\"} \\ tab\t bell\x07 del\x7f ";
  hostile.push_back('\0');
  hostile += "\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80";  // what is UTF-8 stays
  const Json line = OnlyLine(WrittenBy([&] { MR_LOG(kError, hostile); }));
  ASSERT_TRUE(line.is_object());
  EXPECT_EQ(line["severity"], "ERROR");
  EXPECT_EQ(line["message"], hostile);
}

TEST(LogJson, BytesThatAreNoTextAreReplaced) {
  const std::string bad = "\xEF\xBF\xBD";
  // Alone, overlong, half of a surrogate pair, beyond the last character, cut off.
  const std::string cases[][2] = {{"a\xFF"
                                   "b",
                                   "a" + bad + "b"},
                                  {"\x80", bad},
                                  {"\xC0\xAF", bad + bad},
                                  {"\xE0\x80\xAF", bad + bad + bad},
                                  {"\xED\xA0\x80", bad + bad + bad},
                                  {"\xF4\x90\x80\x80", bad + bad + bad + bad},
                                  {"\xF0\x9F\x98", bad + bad + bad},
                                  {"\xC3", bad}};
  for (const auto& [text, expected] : cases) {
    const Json line = OnlyLine(WrittenBy([&, &said = text] { MR_LOG(kInfo, said); }));
    ASSERT_TRUE(line.is_object()) << expected;
    EXPECT_EQ(line["message"], expected);
  }
}

TEST(LogJson, TheLastWordsOfAProcessAreJsonToo) {
  const Json line = OnlyLine(WrittenBy([] { MR_CHECK(1 + 1 == 3); }));
  ASSERT_TRUE(line.is_object());
  EXPECT_EQ(line["severity"], "FATAL");
  EXPECT_EQ(line["message"], "check failed: 1 + 1 == 3");
}

TEST(LogJson, EveryByteCanBeLogged) {
  for (int first = 0; first < 256; ++first) {
    std::string text;
    for (int second = 0; second < 256; second += 15) {
      text.push_back(static_cast<char>(first));
      text.push_back(static_cast<char>(second));
    }
    ASSERT_TRUE(OnlyLine(WrittenBy([&] { MR_LOG(kInfo, text); })).is_object()) << first;
  }
}

}  // namespace
}  // namespace millrace
