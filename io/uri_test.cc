// SPDX-License-Identifier: Apache-2.0
#include "io/uri.h"

#include <gtest/gtest.h>

#include <string>

#include "base/errors.h"
#include "base/random.h"
#include "base/strings.h"
#include "io/file_root.h"

namespace millrace {
namespace {

TEST(Uri, NamesWithoutASchemeAreAsTheyAre) {
  for (const char* path : {"", "a", "/tmp/x", "a/b", "://x", "9a://x", "a-b://x", "s3:/x", "/a://b",
                           "file:/x", "file:x"}) {
    EXPECT_EQ(SchemeOf(path), "") << path;
    const StatusOr<std::string> local = LocalPath(path);
    ASSERT_TRUE(local.ok()) << local.status();
    EXPECT_EQ(*local, path);
  }
}

TEST(Uri, FileNamesThePathBehindIt) {
  const std::pair<const char*, const char*> cases[] = {{"file:///tmp/x", "/tmp/x"},
                                                       {"file://localhost/tmp/x", "/tmp/x"},
                                                       {"file:///", "/"},
                                                       {"file://", "/"},
                                                       {"file:///a://b", "/a://b"}};
  for (const auto& [name, path] : cases) {
    const StatusOr<std::string> local = LocalPath(name);
    ASSERT_TRUE(local.ok()) << local.status();
    EXPECT_EQ(*local, path);
  }
}

TEST(Uri, WhatIsElsewhereIsRefusedByName) {
  for (const std::string scheme : {"gs", "s3", "hdfs", "FILE", "ram", "a.b"}) {
    const Status status = LocalPath(scheme + "://bucket/x").status();
    EXPECT_TRUE(errors::IsUnimplemented(status)) << status;
    EXPECT_EQ(Message(status), StrCat("File system scheme '", scheme, "' not implemented (file: '",
                                      scheme, "://bucket/x')"));
  }
  EXPECT_TRUE(errors::IsInvalidArgument(LocalPath("file://elsewhere/x").status()));
}

TEST(Uri, TheFilesOfTheMachineHaveBothNames) {
  FileSystem* const files = PosixFileSystem();
  const std::string folder = StrCat(testing::TempDir(), "/uri_", Hex16(RandomId()));
  const std::string uri = StrCat("file://", folder);
  ASSERT_TRUE(files->CreateDirectories(StrCat(uri, "/a/b")).ok());
  ASSERT_TRUE(files->WriteFileDurably(StrCat(uri, "/a/b/c"), "text").ok());
  EXPECT_EQ(files->ReadFile(StrCat(folder, "/a/b/c")).value(), "text");
  EXPECT_TRUE(files->FileExists(StrCat(uri, "/a/b/c")));
  EXPECT_EQ(files->FileSize(StrCat(uri, "/a/b/c")).value(), 4u);
  ASSERT_TRUE(files->Rename(StrCat(uri, "/a/b/c"), StrCat(folder, "/a/d")).ok());
  ASSERT_TRUE(files->Link(StrCat(uri, "/a/d"), StrCat(uri, "/a/e")).ok());
  EXPECT_EQ(files->List(StrCat(uri, "/a")).value(), (std::vector<std::string>{"b", "d", "e"}));
  ASSERT_TRUE(files->DeleteDirectory(StrCat(uri, "/a/b")).ok());
  ASSERT_TRUE(files->DeleteFile(StrCat(uri, "/a/d")).ok());
  EXPECT_FALSE(files->IsDirectory("file:")) << "no folder is named like a scheme";

  const Status status = files->WriteFileAtomically("gs://bucket/x", "text");
  EXPECT_TRUE(errors::IsUnimplemented(status)) << status;
  EXPECT_FALSE(files->FileExists("gs://bucket/x"));
  EXPECT_TRUE(errors::IsUnimplemented(files->CreateDirectories("s3://bucket")));
  EXPECT_FALSE(files->IsDirectory("s3:"));
}

// The path behind the scheme counts, not the name as a whole.
TEST(Uri, TheFileRootHoldsForNamesWithAScheme) {
  const std::string folder = StrCat(testing::TempDir(), "/uri_root_", Hex16(RandomId()));
  const std::string root = StrCat(folder, "/root");
  ASSERT_TRUE(PosixFileSystem()->CreateDirectories(root).ok());
  ASSERT_TRUE(PosixFileSystem()->WriteFileAtomically(StrCat(folder, "/secret"), "text").ok());
  const auto files = NewUriFileSystem(NewConfinedFileSystem({root}));
  ASSERT_TRUE(files->WriteFileAtomically(StrCat("file://", root, "/a"), "text").ok());
  EXPECT_EQ(files->ReadFile(StrCat(root, "/a")).value(), "text");
  for (const std::string& path :
       {StrCat("file://", folder, "/secret"), StrCat("file://", root, "/../secret"),
        StrCat("file://localhost", folder, "/secret")}) {
    const Status status = files->ReadFile(path).status();
    EXPECT_EQ(status.code(), StatusCode::kPermissionDenied) << path << ": " << status;
    EXPECT_FALSE(files->FileExists(path)) << path;
  }
}

// The last of this program, whose files are confined from then on.
TEST(Uri, AConfinedProcessKnowsSchemesToo) {
  const std::string root = StrCat(testing::TempDir(), "/uri_process_", Hex16(RandomId()));
  ASSERT_TRUE(PosixFileSystem()->CreateDirectories(root).ok());
  ASSERT_TRUE(ConfineFiles(root).ok());
  FileSystem* const files = PosixFileSystem();
  ASSERT_TRUE(files->WriteFileAtomically(StrCat("file://", root, "/a"), "text").ok());
  EXPECT_EQ(files->ReadFile("file:///etc/hostname").status().code(), StatusCode::kPermissionDenied);
  EXPECT_TRUE(errors::IsUnimplemented(files->ReadFile("gs://a/b").status()));
}

}  // namespace
}  // namespace millrace
