// SPDX-License-Identifier: Apache-2.0
// Folders of images beside a server that keeps to one folder. A program of its own: that holds for
// the whole process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/strings.h"
#include "millrace/preprocessing_layers.h"
#include "millrace/server.h"
#include "tests/data/bitmap.h"
#include "tests/data/element_text.h"

namespace millrace {
namespace {

using testing::Bitmap;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TextsOf;
using testing::WriteTestFile;

TEST(ImageFolderRootTest, OnlyFoldersBelowTheRootAreListedAndRead) {
  const std::string base = StrCat(::testing::TempDir(), "/image_folder_root");
  std::filesystem::remove_all(base);
  for (const char* folder : {"root/images", "outside"}) {
    WriteTestFile(StrCat(base, "/", folder, "/a/1.bmp"), Bitmap(1, 1, 'a'));
    WriteTestFile(StrCat(base, "/", folder, "/b/1.bmp"), Bitmap(1, 1, 'b'));
  }
  std::filesystem::create_symlink(base + "/outside/a/1.bmp", base + "/root/images/b/2.bmp");
  ImageFolderOptions options;
  options.height = options.width = 1, options.batch_size = 0, options.shuffle = false;
  const auto outside = OpenImageFolder(base + "/outside", options);
  ASSERT_TRUE(outside.ok()) << outside.status();

  ServerOptions server_options;
  server_options.cluster = *ClusterSpec::Parse("worker|127.0.0.1:0");
  server_options.job_name = "worker";
  server_options.file_root = base + "/root";
  auto server = Server::Create(server_options);
  ASSERT_TRUE(server.ok()) << server.status();
  ASSERT_TRUE((*server)->Start().ok());
  const auto read_there = [&](const Dataset& dataset) {
    auto reader = DatasetReader::Create(dataset, {.target = (*server)->target()});
    if (!reader.ok()) return std::vector{std::string(reader.status().message())};
    return TextsOf(*reader);
  };

  const auto within = OpenImageFolder(base + "/root/images", options);
  ASSERT_TRUE(within.ok()) << within.status();
  EXPECT_THAT(within->class_names, ElementsAre("a", "b"));
  EXPECT_THAT(read_there(within->training),
              ElementsAre("float[1,1,3] 97 97 97 | int32[] 0", "float[1,1,3] 98 98 98 | int32[] 1",
                          HasSubstr("--file_root")));
  // Named before there was a root, and read now.
  EXPECT_THAT(read_there(outside->training), ElementsAre(HasSubstr("--file_root")));
  const auto refused = OpenImageFolder(base + "/outside", options);
  EXPECT_EQ(refused.status().code(), StatusCode::kPermissionDenied) << refused.status();
}

}  // namespace
}  // namespace millrace
