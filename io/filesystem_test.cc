// SPDX-License-Identifier: Apache-2.0
#include "io/filesystem.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

#include "base/errors.h"
#include "io/crc32c.h"

namespace millrace {
namespace {

std::string TempPath(const std::string& name) { return testing::TempDir() + "/" + name; }

TEST(Crc32c, GivesTheCheckValueOfTheCastagnoliPolynomial) {
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(MaskCrc(Crc32c("123456789")), 0xc78ab0e5u);
}

TEST(Crc32c, CanBeTakenPieceByPiece) {
  EXPECT_EQ(ExtendCrc32c(Crc32c("12345"), "6789"), Crc32c("123456789"));
  EXPECT_EQ(ExtendCrc32c(Crc32c("x"), ""), Crc32c("x"));
}

TEST(Crc32c, MaskingIsUndone) { EXPECT_EQ(UnmaskCrc(MaskCrc(0x12345678u)), 0x12345678u); }

TEST(FileSystem, ReadsBackWhatWasWritten) {
  FileSystem* fs = PosixFileSystem();
  const std::string path = TempPath("written");
  auto file = fs->NewWritableFile(path);
  ASSERT_TRUE(file.ok());
  const std::string large(1 << 20, 'x');  // beyond the buffer
  ASSERT_TRUE((*file)->Append("ab").ok());
  ASSERT_TRUE((*file)->Append(large).ok());
  ASSERT_TRUE((*file)->Close().ok());
  EXPECT_EQ(fs->ReadFile(path).value(), "ab" + large);
  auto again = fs->NewAppendableFile(path);
  ASSERT_TRUE(again.ok());
  ASSERT_TRUE((*again)->Append("c").ok());
  ASSERT_TRUE((*again)->Close().ok());
  EXPECT_EQ(fs->FileSize(path).value(), large.size() + 3);
}

TEST(FileSystem, ReportsAMissingFileByName) {
  const auto read = PosixFileSystem()->ReadFile(TempPath("missing"));
  EXPECT_EQ(read.status().code(), StatusCode::kNotFound);
  EXPECT_NE(read.status().ToString().find("missing"), std::string::npos);
}

TEST(FileSystem, AFileThatStatesMoreThanFitsIsNotRead) {
  const std::string path = TempPath("holes");
  ASSERT_TRUE(PosixFileSystem()->WriteFileAtomically(path, "a").ok());
  const Status status = [&]() -> Status {  // 8 TiB of nothing
    if (truncate(path.c_str(), off_t{1} << 43) != 0) return errors::Unimplemented("no holes here");
    return PosixFileSystem()->ReadFile(path).status();
  }();
  PosixFileSystem()->DeleteFile(path).IgnoreError();
  if (errors::IsUnimplemented(status)) GTEST_SKIP() << status;
  EXPECT_TRUE(errors::IsResourceExhausted(status)) << status;
  EXPECT_NE(Message(status).find(path), std::string::npos) << status;
}

TEST(FileSystem, WhatIsNoFileIsNotRead) {
  const std::string pipe = TempPath("pipe");
  ::unlink(pipe.c_str());
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {pipe, std::string("/dev/zero"), TempPath("")}) {
    const Status status = PosixFileSystem()->ReadFile(path).status();
    EXPECT_TRUE(errors::IsFailedPrecondition(status)) << path << ": " << status;
    EXPECT_NE(status.message().find(path), std::string_view::npos) << status;
  }
  ::unlink(pipe.c_str());
}

TEST(FileSystem, ReplacesAFileInOneStepAndLeavesNothingElse) {
  FileSystem* fs = PosixFileSystem();
  const std::string directory = TempPath("atomic/deep");
  ASSERT_TRUE(fs->CreateDirectories(directory).ok());
  ASSERT_TRUE(fs->WriteFileAtomically(JoinPath(directory, "f"), "old").ok());
  ASSERT_TRUE(fs->WriteFileAtomically(JoinPath(directory, "f"), "new").ok());
  EXPECT_EQ(fs->ReadFile(JoinPath(directory, "f")).value(), "new");
  EXPECT_EQ(fs->List(directory).value(), std::vector<std::string>{"f"});
  EXPECT_EQ(fs->DeleteDirectory(directory).code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(fs->DeleteFile(JoinPath(directory, "f")).ok());
  EXPECT_TRUE(fs->DeleteDirectory(directory).ok());
  EXPECT_FALSE(fs->FileExists(directory));
}

TEST(FileSystem, NamesTheFileThatADiskHasNoRoomFor) {
  if (!PosixFileSystem()->FileExists("/dev/full")) GTEST_SKIP();
  auto file = PosixFileSystem()->NewWritableFile("/dev/full");
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->Append("x").ok());
  const Status status = (*file)->Sync();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status;
  EXPECT_NE(status.message().find("/dev/full"), std::string::npos) << status;
}

// The system takes fewer bytes than it is given: of what is too large, those that fit.
TEST(FileSystem, TakesNoShortWriteForAWholeOne) {
  const std::string path = TempPath("limited");
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1000, 1000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    auto file = PosixFileSystem()->NewWritableFile(path);
    if (!file.ok() || !(*file)->Append(std::string(3000, 'x')).ok()) ::_exit(2);
    const Status status = (*file)->Flush();
    ::_exit(!status.ok() && status.message().find(path) != std::string::npos ? 0 : 1);
  }
  int ended = -1;
  ASSERT_EQ(::waitpid(child, &ended, 0), child);
  EXPECT_TRUE(WIFEXITED(ended) && WEXITSTATUS(ended) == 0) << ended;
  EXPECT_EQ(*PosixFileSystem()->FileSize(path), 1000u);
}

// A signal ends a write in the middle.
TEST(FileSystem, WritesTheRestAfterAShortWrite) {
  const std::string path = TempPath("pipe");
  ::unlink(path.c_str());
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const int reader = ::open(path.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  struct sigaction interrupts{};
  interrupts.sa_handler = [](int) {};  // without SA_RESTART
  struct sigaction before{};
  ::sigaction(SIGUSR1, &interrupts, &before);
  std::string bytes(1 << 20, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 31 / 7);
  Status status;
  std::thread writer([&] {
    auto file = PosixFileSystem()->NewWritableFile(path);
    status = file.status();
    if (file.ok()) status = (*file)->Append(bytes);
    if (file.ok()) status.Update((*file)->Close());
  });
  const int capacity = ::fcntl(reader, F_GETPIPE_SZ);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  for (int there = 0; there < capacity && std::chrono::steady_clock::now() < limit;) {
    ASSERT_EQ(::ioctl(reader, FIONREAD, &there), 0);
  }
  ::pthread_kill(writer.native_handle(), SIGUSR1);
  std::string got;
  char buffer[4096];
  pollfd wait{reader, POLLIN, 0};
  while (::poll(&wait, 1, 20'000) > 0) {
    const ssize_t n = ::read(reader, buffer, sizeof(buffer));
    if (n <= 0) break;
    got.append(buffer, static_cast<std::size_t>(n));
  }
  writer.join();
  ::close(reader);
  ::sigaction(SIGUSR1, &before, nullptr);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(got == bytes) << got.size() << " bytes";
}

TEST(FileSystem, KeepsAFileThatIsBeingWritten) {
  FileSystem* const fs = PosixFileSystem();
  const std::string path = testing::TempDir() + "/being_written";
  {
    auto file = fs->NewWritableFile(path);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_FALSE(*fs->DeleteUnlessWritten(path));
    EXPECT_TRUE(fs->FileExists(path));
  }
  EXPECT_TRUE(*fs->DeleteUnlessWritten(path));
  EXPECT_FALSE(fs->FileExists(path));
}

TEST(FileSystem, GivesAFileASecondName) {
  FileSystem* const fs = PosixFileSystem();
  const std::string one = testing::TempDir() + "/one", two = testing::TempDir() + "/two";
  ASSERT_TRUE(fs->WriteFileDurably(one, "text").ok());
  ASSERT_TRUE(fs->Link(one, two).ok());
  EXPECT_EQ(fs->Link(one, two).code(), StatusCode::kAlreadyExists);
  ASSERT_TRUE(fs->DeleteFile(one).ok());
  EXPECT_EQ(*fs->ReadFile(two), "text");
}

TEST(FileSystem, SplitsAndJoinsPaths) {
  EXPECT_EQ(DirectoryName("/a/b"), "/a");
  EXPECT_EQ(DirectoryName("/a"), "/");
  EXPECT_EQ(DirectoryName("a"), "");
  EXPECT_EQ(BaseName("/a/b"), "b");
  EXPECT_EQ(JoinPath("/a/", "b"), "/a/b");
  EXPECT_EQ(JoinPath("", "b"), "b");
}

}  // namespace
}  // namespace millrace
