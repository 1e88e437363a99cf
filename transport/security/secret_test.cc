// SPDX-License-Identifier: Apache-2.0
#include "transport/security/secret.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/errors.h"
#include "base/strings.h"

namespace millrace {
namespace {

const std::string kToken = "0123456789abcdef";

std::string Write(const std::string& content, mode_t mode = 0600) {
  static int number = 0;
  const std::string path = StrCat(testing::TempDir(), "/token_", getpid(), "_", number++);
  std::ofstream(path, std::ios::binary) << content;
  EXPECT_EQ(chmod(path.c_str(), mode), 0);
  return path;
}

TEST(SecretTest, ComparesWholeTexts) {
  EXPECT_TRUE(SameSecret(kToken, kToken));
  EXPECT_TRUE(SameSecret("", ""));
  EXPECT_FALSE(SameSecret(kToken, kToken + "0"));
  EXPECT_FALSE(SameSecret(kToken, kToken.substr(1)));
  EXPECT_FALSE(SameSecret(kToken, ""));
  for (std::size_t i = 0; i < kToken.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string other = kToken;
      other[i] = static_cast<char>(other[i] ^ (1 << bit));
      EXPECT_FALSE(SameSecret(kToken, other)) << i << " " << bit;
    }
  }
}

TEST(SecretTest, ReadsOneLineWithOrWithoutItsEnd) {
  for (const char* end : {"", "\n"}) {
    const StatusOr<std::string> token = ReadTokenFile(Write(kToken + end));
    ASSERT_TRUE(token.ok()) << token.status();
    EXPECT_EQ(*token, kToken);
  }
  EXPECT_TRUE(ReadTokenFile(Write(std::string(1024, 'x') + "\n", 0400)).ok());
}

TEST(SecretTest, RefusesWhatIsNoToken) {
  for (const std::string& content :
       {std::string(), std::string("short"), kToken.substr(1), kToken + " ", " " + kToken,
        kToken + "\n\n", kToken + "\r\n", kToken + "\n" + kToken, kToken + '\0',
        kToken + "\xc3\xa4", std::string(1025, 'x'), std::string(100'000, 'x')}) {
    const std::string path = Write(content);
    const Status status = ReadTokenFile(path).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << content.size();
    EXPECT_NE(Message(status).find(path), std::string_view::npos) << status;
    // No part of a secret in a message.
    EXPECT_EQ(Message(status).find("89abc"), std::string_view::npos) << status;
  }
}

TEST(SecretTest, RefusesFilesThatOthersCanUse) {
  for (const mode_t mode : {0640, 0604, 0660, 0644, 0601, 0777}) {
    const std::string path = Write(kToken, mode);
    const Status status = ReadTokenFile(path).status();
    EXPECT_NE(Message(status).find("chmod 600"), std::string_view::npos) << status;
  }
}

TEST(SecretTest, AKeyThatOthersCanUseIsRefused) {
  for (const mode_t mode : {0600, 0400, 0700}) {
    EXPECT_TRUE(CheckOwnFile("--tls_key=", Write("key", mode)).ok()) << mode;
  }
  for (const mode_t mode : {0640, 0604, 0660, 0644, 0601, 0620, 0777}) {
    const std::string path = Write("key", mode);
    const Status status = CheckOwnFile("--tls_key=", path);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << mode;
    EXPECT_NE(Message(status).find("--tls_key=" + path), std::string_view::npos) << status;
    EXPECT_NE(Message(status).find("chmod 600"), std::string_view::npos) << status;
  }
}

TEST(SecretTest, RefusesWhatIsNoFileWithoutWaiting) {
  const std::string fifo = StrCat(testing::TempDir(), "/fifo_", getpid());
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_FALSE(ReadTokenFile(fifo).ok());
  EXPECT_FALSE(ReadTokenFile(testing::TempDir()).ok());
  EXPECT_FALSE(ReadTokenFile("/nowhere/token").ok());
  EXPECT_FALSE(ReadTokenFile("").ok());
  unlink(fifo.c_str());
}

}  // namespace
}  // namespace millrace
