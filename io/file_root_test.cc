#include "io/file_root.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/errors.h"
#include "base/random.h"
#include "base/strings.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

class FileRootTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(base_ + "/root/sub");
    fs::create_directories(base_ + "/root_beside");
    fs::create_directories(base_ + "/outside");
    for (const char* file : {"/root/a", "/root/sub/b", "/outside/secret", "/root_beside/c"}) {
      std::ofstream(base_ + file) << "content";
    }
    files_ = NewConfinedFileSystem(PosixFileSystem(), {base_ + "/root"});
  }

  std::string Root(const std::string& rest) const { return base_ + "/root/" + rest; }
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

  const std::string base_ = StrCat(::testing::TempDir(), "/file_root_", Hex16(RandomId()));
  std::unique_ptr<FileSystem> files_;
};

TEST_F(FileRootTest, OpensWhatIsWithin) {
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

TEST_F(FileRootTest, RefusesWhatLeadsOut) {
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

TEST_F(FileRootTest, OfAProcessIsOne) {
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

}  // namespace
}  // namespace millrace
