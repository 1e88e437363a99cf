// SPDX-License-Identifier: Apache-2.0
#include "io/file_root.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/fs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "base/errors.h"
#include "base/random.h"
#include "base/strings.h"
#include "io/tensor_bundle.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

class FileRootFixture : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(base_ + "/root/sub");
    fs::create_directories(base_ + "/root_beside");
    fs::create_directories(base_ + "/outside");
    for (const char* file : {"/root/a", "/root/sub/b", "/outside/secret", "/root_beside/c"}) {
      std::ofstream(base_ + file) << "content";
    }
  }
  std::string Root(const std::string& rest) const { return base_ + "/root/" + rest; }

  const std::string base_ = StrCat(::testing::TempDir(), "/file_root_", Hex16(RandomId()));
};
using ProcessFileRootTest = FileRootFixture;

// With openat2, and as on kernels that have none.
class FileRootTest : public FileRootFixture, public ::testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    FileRootFixture::SetUp();
    files_ = NewConfinedFileSystem({base_ + "/root"}, /*walks=*/GetParam());
  }

  void ExpectRefused(const std::string& path) {
    const auto refused = [&](const Status& status) {
      EXPECT_EQ(status.code(), StatusCode::kPermissionDenied) << path << ": " << status;
      EXPECT_NE(Message(status).find("--file_root"), std::string_view::npos) << status;
    };
    refused(files_->NewRandomAccessFile(path).status());
    refused(files_->NewWritableFile(path).status());
    refused(files_->NewAppendableFile(path).status());
    refused(files_->FileSize(path).status());
    refused(files_->ReadFile(path).status());
    refused(files_->WriteFileAtomically(path, "x"));
    refused(files_->Rename(path, Root("new")));
    refused(files_->Rename(Root("a"), path));
    refused(files_->Link(path, Root("new")));
    refused(files_->Link(Root("a"), path));
    refused(files_->SyncPath(path));
    refused(files_->DeleteFile(path));
    refused(files_->DeleteUnlessWritten(path).status());
    refused(files_->DeleteDirectory(path));
    refused(files_->CreateDirectories(path));
    refused(files_->List(path).status());
    EXPECT_FALSE(files_->FileExists(path)) << path;
    EXPECT_FALSE(files_->IsDirectory(path)) << path;
  }

  std::unique_ptr<FileSystem> files_;
};

// What there is elsewhere is not to be learned from links that lead there.
TEST_P(FileRootTest, TheRefusalNamesTheRuleAndNotWhereALinkLeads) {
  fs::create_symlink(base_ + "/outside/secret", Root("link"));
  const Status refused = files_->ReadFile(Root("link")).status();
  EXPECT_NE(Message(refused).find("(--file_root)"), std::string_view::npos) << refused;
  EXPECT_NE(Message(refused).find(Root("link")), std::string_view::npos) << refused;
  EXPECT_EQ(Message(refused).find("outside"), std::string_view::npos) << refused;
  // Where all that is seen is that a file is not there.
  EXPECT_EQ(CheckNameable(files_.get(), Root("link")).code(), StatusCode::kPermissionDenied);
  EXPECT_TRUE(CheckNameable(files_.get(), Root("none")).ok());
  EXPECT_TRUE(CheckNameable(files_.get(), Root("a")).ok());
  const Status checkpoint = BundleReader::Open(files_.get(), base_ + "/outside/model").status();
  EXPECT_EQ(checkpoint.code(), StatusCode::kPermissionDenied) << checkpoint;
  EXPECT_NE(Message(checkpoint).find("(--file_root)"), std::string_view::npos) << checkpoint;
  EXPECT_EQ(BundleReader::Open(files_.get(), Root("none")).status().code(), StatusCode::kNotFound);
}

TEST_P(FileRootTest, OpensWhatIsWithin) {
  fs::create_symlink("sub", Root("link"));
  fs::create_symlink(Root("sub/b"), Root("absolute"));
  for (const char* path : {"a", "sub/b", "./sub/./b", "sub/../a", "link/b", "absolute", "//a",
                           "link/../a", "../root/a"}) {
    const StatusOr<std::string> content = files_->ReadFile(Root(path));
    ASSERT_TRUE(content.ok()) << path << ": " << content.status();
    EXPECT_EQ(*content, "content");
  }
  EXPECT_TRUE(files_->CreateDirectories(Root("new/deep")).ok());
  EXPECT_TRUE(files_->WriteFileAtomically(Root("new/deep/file"), "x").ok());
  EXPECT_TRUE(files_->List(base_ + "/root").ok());
  EXPECT_EQ(files_->ReadFile(Root("none")).status().code(), StatusCode::kNotFound);
}

TEST_P(FileRootTest, RefusesWhatLeadsOut) {
  fs::create_symlink("../outside", Root("out"));
  fs::create_symlink(base_ + "/outside/secret", Root("secret"));
  fs::create_symlink(base_ + "/outside/not_there_yet", Root("dangling"));
  fs::create_symlink("sub/../../outside", Root("winding"));
  fs::create_symlink("out", Root("twice"));
  fs::create_symlink("round", Root("round"));
  for (const char* path :
       {"../outside/secret", "sub/../../outside/secret", "out/secret", "secret", "dangling",
        "winding/secret", "twice/secret", "none/../../outside/secret", "../root_beside/c", "..",
        "out", "round", "round/a", "../../../../../../../../../../etc/passwd"}) {
    ExpectRefused(Root(path));
  }
  for (const std::string& path :
       {std::string("/etc/passwd"), std::string("/"), std::string("relative"), std::string(), base_,
        base_ + "/root_beside/c", Root("a") + '\0' + "b"}) {
    ExpectRefused(path);
  }
  EXPECT_FALSE(fs::exists(base_ + "/outside/not_there_yet"));
  EXPECT_TRUE(fs::exists(base_ + "/outside/secret"));
}

TEST_P(FileRootTest, ALinkIsDeletedAndNotWhatItNames) {
  fs::create_symlink("a", Root("link"));
  EXPECT_TRUE(files_->Rename(Root("link"), Root("moved")).ok());
  EXPECT_TRUE(fs::is_symlink(Root("moved")));
  EXPECT_TRUE(files_->DeleteFile(Root("moved")).ok());
  EXPECT_TRUE(fs::exists(Root("a")));
}

// Somebody swaps a folder of the root for a link that leads out, again and again.
TEST_P(FileRootTest, LinksThatChangeMeanwhileLeadNobodyOut) {
  fs::create_directories(Root("inner"));
  std::ofstream(Root("inner/secret")) << "content of the root";
  fs::create_symlink("../outside", Root("way_out"));
  std::atomic<bool> over{false};
  std::thread swapping([&] {
    while (!over.load()) {
      syscall(SYS_renameat2, AT_FDCWD, Root("inner").c_str(), AT_FDCWD, Root("way_out").c_str(),
              RENAME_EXCHANGE);
    }
  });
  int read = 0, refused = 0;
  const auto now = std::chrono::steady_clock::now;
  const auto end = now() + std::chrono::seconds(2), limit = now() + std::chrono::seconds(60);
  // Longer where a loaded machine has not let both be met by then.
  while (now() < end || ((read == 0 || refused == 0) && now() < limit)) {
    const StatusOr<std::string> content = files_->ReadFile(Root("inner/secret"));
    if (content.ok()) {
      EXPECT_NE(*content, "content") << "that is what lies outside";
      ++read;
    } else {
      ++refused;
    }
    (void)files_->WriteFileAtomically(Root("inner/new"), "x");
    (void)files_->CreateDirectories(Root("inner/made"));
  }
  over.store(true);
  swapping.join();
  EXPECT_GT(read, 0);
  EXPECT_GT(refused, 0);
  for (const auto& entry : fs::directory_iterator(base_ + "/outside")) {
    EXPECT_EQ(entry.path().filename(), "secret");
  }
}

TEST_F(ProcessFileRootTest, OfAProcessIsOne) {
  EXPECT_EQ(ConfineFiles(base_ + "/none").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ConfineFiles(base_ + "/root/a").code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(ConfineFiles(base_ + "/root", {base_ + "/root_beside"}).ok());
  EXPECT_TRUE(PosixFileSystem()->ReadFile(Root("a")).ok());
  EXPECT_TRUE(PosixFileSystem()->ReadFile(base_ + "/root_beside/c").ok());
  EXPECT_EQ(PosixFileSystem()->ReadFile(base_ + "/outside/secret").status().code(),
            StatusCode::kPermissionDenied);
  EXPECT_TRUE(ConfineFiles(base_ + "/root/../root", {base_ + "/root_beside"}).ok());
  const Status other = ConfineFiles(base_ + "/outside");
  EXPECT_EQ(other.code(), StatusCode::kFailedPrecondition) << other;
}

INSTANTIATE_TEST_SUITE_P(Kernels, FileRootTest, ::testing::Bool());

}  // namespace
}  // namespace millrace
