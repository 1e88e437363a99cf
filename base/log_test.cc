// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <string>

namespace millrace {
namespace {

// Puts a pipe in the place of stderr while it lives.
class PipedStderr {
 public:
  PipedStderr() : kept_(dup(STDERR_FILENO)) {
    EXPECT_EQ(pipe(ends_), 0);
    EXPECT_GE(dup2(ends_[1], STDERR_FILENO), 0);
  }
  ~PipedStderr() {
    dup2(kept_, STDERR_FILENO);
    for (const int fd : {kept_, ends_[0], ends_[1]}) close(fd);
  }
  // All that is there.
  std::string Read() {
    EXPECT_EQ(fcntl(ends_[0], F_SETFL, O_NONBLOCK), 0);
    std::string text;
    char buffer[4096];
    for (ssize_t n; (n = read(ends_[0], buffer, sizeof(buffer))) > 0;) {
      text.append(buffer, static_cast<std::size_t>(n));
    }
    return text;
  }

 private:
  const int kept_;
  int ends_[2] = {-1, -1};
};

TEST(Log, NobodyWaitsForAPipeThatIsNotRead) {
  PipedStderr output;
  const auto begun = std::chrono::steady_clock::now();
  // Far more than a pipe holds.
  for (int i = 0; i < 1000; ++i) MR_LOG(kError, std::string(1000, 'x'));
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(20));
  const std::string before = output.Read();
  EXPECT_LT(before.size(), 900'000u);
  MR_LOG(kError, "there is room again");
  const std::string after = output.Read();
  EXPECT_NE(after.find("lines were lost"), std::string::npos) << after;
  EXPECT_NE(after.find("there is room again"), std::string::npos) << after;
}

TEST(Log, LongLinesArriveWhole) {
  PipedStderr output;
  MR_LOG(kError, std::string(20'000, 'y'), "end");
  const std::string text = output.Read();
  EXPECT_NE(text.find("yend\n"), std::string::npos);
  EXPECT_GT(text.size(), 20'000u);
}

}  // namespace
}  // namespace millrace
