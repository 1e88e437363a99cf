// SPDX-License-Identifier: Apache-2.0
#include "transport/grpc/plain_refusal.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace millrace {
namespace {

// A frame with a content of `size` bytes.
std::string Frame(int type, int stream, int size, int flags = 0) {
  std::string frame;
  for (const int byte : {size >> 16, size >> 8, size, type, flags, 0, 0, stream >> 8, stream}) {
    frame.push_back(static_cast<char>(byte & 0xff));
  }
  return frame + std::string(static_cast<std::size_t>(size), '\0');
}
// What a caller sends: settings, and calls on streams 1 and 259 with requests of several frames.
std::string Calls() {
  return std::string(kHttp2Preface) + Frame(4, 0, 12) + Frame(1, 1, 70000) + Frame(0, 1, 300) +
         Frame(8, 0, 4) + Frame(1, 259, 1);
}
// The frames of an answer: a character for each, with the low byte of the stream.
std::string Summary(std::string_view answer) {
  std::string summary;
  while (answer.size() >= 9) {
    const auto at = [&](std::size_t i) { return static_cast<unsigned char>(answer[i]); };
    const std::size_t size = static_cast<std::size_t>(at(0)) << 16 | at(1) << 8 | at(2);
    summary += "DHPRSUXGWC"[at(3)];
    summary += std::to_string(at(7) * 256 + at(8));
    if (answer.size() < 9 + size) return summary + "?";
    answer.remove_prefix(9 + size);
  }
  return answer.empty() ? summary : summary + "?";
}

TEST(PlainRefusalTest, EveryCallIsAnsweredInWhateverPiecesItComes) {
  const std::string calls = Calls();
  for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, calls.size()}) {
    PlainRefusal refusal("because");
    std::string answer;
    for (std::size_t i = 0; i < calls.size(); i += piece) {
      ASSERT_TRUE(refusal.Take(std::string_view(calls).substr(i, piece), &answer));
    }
    EXPECT_EQ(Summary(answer), "S0S0H1H259");
    EXPECT_NE(answer.find("grpc-status"), std::string::npos);
    EXPECT_NE(answer.find("because"), std::string::npos);
  }
}

TEST(PlainRefusalTest, TextsOfAnyLengthAreWhole) {
  for (const std::size_t size : {0, 1, 126, 127, 128, 254, 255, 300, 5000}) {
    const std::string text(size, 'x');
    PlainRefusal refusal(text);
    std::string answer;
    ASSERT_TRUE(refusal.Take(Calls(), &answer));
    EXPECT_EQ(Summary(answer), "S0S0H1H259");
    EXPECT_NE(answer.find("grpc-message"), std::string::npos);
    EXPECT_NE(answer.find(text), std::string::npos);
  }
}

TEST(PlainRefusalTest, WhatIsNoHttp2Ends) {
  PlainRefusal refusal("because");
  std::string answer;
  EXPECT_TRUE(refusal.Take("PRI * HT", &answer));
  EXPECT_FALSE(refusal.Take("ML", &answer));
  EXPECT_EQ(answer, "");
}

}  // namespace
}  // namespace millrace
