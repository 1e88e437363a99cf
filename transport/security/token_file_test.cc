// SPDX-License-Identifier: Apache-2.0
#include "transport/security/token_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>

#include "base/errors.h"

namespace millrace {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

constexpr char kFirst[] = "the-first-token-0001", kSecond[] = "the-second-token-002";

// In one step, as whoever rotates should.
void Write(const std::string& path, const std::string& text) {
  const std::string next = path + ".next";
  std::ofstream(next) << text << "\n";
  ASSERT_EQ(chmod(next.c_str(), 0600), 0);
  ASSERT_EQ(std::rename(next.c_str(), path.c_str()), 0);
}

std::string NewPath(const char* name) { return ::testing::TempDir() + "/" + name; }

TEST(TokenFileTest, ANewTokenIsShownAndBothAreTakenForAWhile) {
  const std::string path = NewPath("rotated");
  Write(path, kFirst);
  auto opened = TokenFile::Open(path, milliseconds(1));
  ASSERT_TRUE(opened.ok()) << opened.status();
  TokenFile& file = **opened;
  EXPECT_EQ(file.Current(), kFirst);
  EXPECT_TRUE(file.Matches(kFirst));
  EXPECT_FALSE(file.Matches(kSecond));
  Write(path, kSecond);
  std::this_thread::sleep_for(milliseconds(5));
  const auto before = std::chrono::steady_clock::now();
  EXPECT_EQ(file.Current(), kSecond);
  EXPECT_TRUE(file.Matches(kSecond));
  const bool first_too = file.Matches(kFirst);
  // Two seconds are the least: a machine may stand still for as long.
  EXPECT_TRUE(first_too || std::chrono::steady_clock::now() - before >= std::chrono::seconds(2))
      << "others may not have read the new one";
  EXPECT_FALSE(file.Matches("another-token-000003"));
  EXPECT_FALSE(file.Matches(""));
  bool ended = false;
  for (int i = 0; i < 1200 && !ended; ++i) {
    std::this_thread::sleep_for(milliseconds(50));
    ended = !file.Matches(kFirst);
  }
  EXPECT_TRUE(ended);
  EXPECT_TRUE(file.Matches(kSecond));
}

TEST(TokenFileTest, ACallerThatIsAheadMakesTheFileBeRead) {
  const std::string path = NewPath("ahead");
  Write(path, kFirst);
  auto opened = TokenFile::Open(path, hours(1));
  ASSERT_TRUE(opened.ok()) << opened.status();
  Write(path, kSecond);
  EXPECT_EQ((*opened)->Current(), kFirst);
  bool taken = false;
  for (int i = 0; i < 1200 && !taken; ++i) {
    std::this_thread::sleep_for(milliseconds(50));
    taken = (*opened)->Matches(kSecond);
  }
  EXPECT_TRUE(taken);
  EXPECT_EQ((*opened)->Current(), kSecond);
}

TEST(TokenFileTest, AFileThatCannotBeUsedChangesNothing) {
  const std::string path = NewPath("bad");
  EXPECT_FALSE(TokenFile::Open(NewPath("nowhere"), milliseconds(1)).ok());
  Write(path, kFirst);
  auto opened = TokenFile::Open(path, milliseconds(1));
  ASSERT_TRUE(opened.ok()) << opened.status();
  Write(path, "short");
  std::this_thread::sleep_for(milliseconds(5));
  EXPECT_EQ((*opened)->Current(), kFirst);
  ASSERT_EQ(std::remove(path.c_str()), 0);
  std::this_thread::sleep_for(milliseconds(5));
  EXPECT_EQ((*opened)->Current(), kFirst);
  EXPECT_TRUE((*opened)->Matches(kFirst));
}

}  // namespace
}  // namespace millrace
