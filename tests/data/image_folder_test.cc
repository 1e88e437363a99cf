// SPDX-License-Identifier: Apache-2.0
// Folders of images as data sets: against Keras' image_dataset_from_directory, and what is said of
// folders, files and options that cannot be used.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/errors.h"
#include "base/strings.h"
#include "data/pipeline/sharding.h"
#include "millrace/preprocessing_layers.h"
#include "tests/data/bitmap.h"
#include "tests/data/element_text.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using testing::Bitmap;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::TextsOf;
using testing::WriteTestFile;

constexpr char kGoldens[] = "tests/goldens/data/";

// --- As Keras ----------------------------------------------------------------------------------

std::map<std::string, ImageFolderOptions> Cases() {
  const auto opened = [](auto change) {
    ImageFolderOptions options;
    options.height = 3, options.width = 4, options.batch_size = 4, options.shuffle = false;
    change(options);
    return options;
  };
  using O = ImageFolderOptions&;
  return {
      {"plain", opened([](O) {})},
      {"single", opened([](O o) { o.batch_size = 0, o.height = o.width = 2; })},
      {"shuffled", opened([](O o) {
         o.shuffle = true, o.seed = 7, o.batch_size = 1, o.labels = ImageLabels::kOneHot;
       })},
      {"large_seed", opened([](O o) { o.shuffle = true, o.seed = 4294967295, o.batch_size = 3; })},
      {"split", opened([](O o) {
         o.shuffle = true, o.seed = 5, o.batch_size = 1, o.validation_split = 0.39;
       })},
      {"split_in_order", opened([](O o) { o.validation_split = 0.25; })},
      {"binary", opened([](O o) {
         o.class_names = {"dogs", "cats"}, o.labels = ImageLabels::kBinary;
         o.colors = ImageColors::kGrayscale;
       })},
      {"with_alpha", opened([](O o) { o.class_names = {"cats"}, o.colors = ImageColors::kRgba; })},
      {"cropped", opened([](O o) { o.height = 4, o.width = 2, o.fit = ImageFit::kCrop; })},
      {"padded", opened([](O o) {
         o.class_names = {"birds", "dogs"};
         o.height = 4, o.width = 6, o.fit = ImageFit::kPad;
       })},
      {"no_labels", opened([](O o) { o.labels = ImageLabels::kNone; })},
      {"nearest", opened([](O o) { o.interpolation = "nearest"; })},
      {"nearest_cropped", opened([](O o) {
         o.interpolation = "nearest", o.fit = ImageFit::kCrop, o.height = o.width = 3;
       })},
  };
}

// Numbers to within what sums of weighted pixels differ by, all else exactly; "" if so.
std::string Difference(const std::string& ours, const std::string& keras) {
  const std::vector<std::string_view> a = StrSplit(ours, ' '), b = StrSplit(keras, ' ');
  if (a.size() != b.size()) return StrCat(ours, " instead of ", keras);
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i]) continue;
    char* end = nullptr;
    const std::string mine(a[i]), theirs(b[i]);
    const double x = std::strtod(mine.c_str(), &end);
    if (*end != '\0' || !(std::abs(x - std::strtod(theirs.c_str(), &end)) < 1e-4) || *end != '\0') {
      return StrCat("at ", i, " ", a[i], " instead of ", b[i]);
    }
  }
  return "";
}

void ExpectLike(const Json& keras, const Dataset& dataset, const std::vector<std::string>& files) {
  std::vector<std::string> expected;
  for (const Json& file : keras["files"]) {
    expected.push_back(StrCat(kGoldens, file.get<std::string>()));
  }
  EXPECT_EQ(files, expected);
  StatusOr<DatasetReader> reader = DatasetReader::Create(dataset);
  ASSERT_TRUE(reader.ok()) << reader.status();
  for (const Json& epoch : keras["epochs"]) {
    const std::vector<std::string> ours = TextsOf(*reader);
    EXPECT_EQ(static_cast<int64_t>(ours.size()), dataset.cardinality());
    ASSERT_EQ(ours.size(), epoch.size()) << (ours.empty() ? "" : ours.back());
    for (std::size_t i = 0; i < ours.size(); ++i) {
      EXPECT_EQ(Difference(ours[i], epoch[i].get<std::string>()), "") << "element " << i;
    }
    ASSERT_TRUE(reader->Restart().ok());
  }
}

TEST(ImageFolderTest, FilesLabelsPixelsAndOrdersAreThoseOfKeras) {
  std::ifstream file(StrCat(kGoldens, "image_folder.json"));
  const Json recorded = Json::parse(file);
  const std::map<std::string, ImageFolderOptions> cases = Cases();
  EXPECT_EQ(recorded.size(), cases.size());
  for (const auto& [name, options] : cases) {
    SCOPED_TRACE(name);
    const Json& keras = recorded.at(name);
    const auto folder = OpenImageFolder(StrCat(kGoldens, "image_folder"), options);
    ASSERT_TRUE(folder.ok()) << folder.status();
    EXPECT_EQ(folder->class_names, keras["classes"].get<std::vector<std::string>>());
    EXPECT_THAT(folder->damaged, IsEmpty());
    ExpectLike(keras["training"], folder->training, folder->training_files);
    if (keras.contains("validation")) {
      ExpectLike(keras["validation"], folder->validation, folder->validation_files);
    } else {
      EXPECT_EQ(folder->validation.status().code(), StatusCode::kFailedPrecondition);
      EXPECT_THAT(folder->validation_files, IsEmpty());
    }
  }
}

// --- Folders of the test's own -----------------------------------------------------------------

class ImageFolderFilesTest : public ::testing::Test {
 protected:
  ImageFolderFilesTest() {
    const auto* const test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = StrCat(::testing::TempDir(), "/", test->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }

  std::string Path(const std::string& name) const { return StrCat(folder_, "/", name); }
  void Write(const std::string& name, const std::string& content) const {
    WriteTestFile(Path(name), content);
  }
  // One image to a name, all of one shade.
  void WriteImages(const std::vector<std::string>& names) const {
    for (const std::string& name : names) Write(name, Bitmap(2, 2, 'a'));
  }

  static ImageFolderOptions Small() {
    ImageFolderOptions options;
    options.height = options.width = 1, options.batch_size = 0, options.shuffle = false;
    return options;
  }
  StatusOr<ImageFolder> Open(const ImageFolderOptions& options = Small()) const {
    return OpenImageFolder(folder_, options);
  }
  // What Open() says, which must name the folder.
  std::string Refusal(StatusCode code, const ImageFolderOptions& options = Small()) const {
    const auto folder = Open(options);
    EXPECT_EQ(folder.status().code(), code) << folder.status();
    EXPECT_THAT(std::string(folder.status().message()), HasSubstr(folder_));
    return std::string(folder.status().message());
  }

  std::string folder_;
};

TEST_F(ImageFolderFilesTest, AFolderWithoutImagesIsRefusedByName) {
  EXPECT_THAT(Refusal(StatusCode::kNotFound), HasSubstr("has no folders"));
  fs::create_directories(Path("a/deep"));
  Write("a/notes.txt", "none");
  Write(".b/1.bmp", Bitmap(1, 1, 'b'));
  EXPECT_THAT(Refusal(StatusCode::kNotFound), HasSubstr(".jpeg, .jpg or .png"));
  fs::remove_all(folder_);
  Refusal(StatusCode::kNotFound);
}

TEST_F(ImageFolderFilesTest, ClassesThatAreNotThereAreRefusedByName) {
  WriteImages({"a/1.bmp", "b/1.bmp"});
  ImageFolderOptions options = Small();
  options.class_names = {"b", "c"};
  EXPECT_THAT(Refusal(StatusCode::kNotFound, options),
              HasSubstr("class 'c'; it has those of a, b"));
  options.class_names = {"b", "b"};
  EXPECT_EQ(Open(options).status().code(), StatusCode::kInvalidArgument);
  options.class_names = {"b"};
  options.labels = ImageLabels::kBinary;
  EXPECT_THAT(Refusal(StatusCode::kInvalidArgument, options), HasSubstr("has 1: b"));
}

TEST_F(ImageFolderFilesTest, OptionsThatCannotBeAreRefused) {
  WriteImages({"a/1.bmp", "b/1.bmp"});
  const auto refused = [this](auto change) {
    ImageFolderOptions options = Small();
    change(options);
    const Status status = Open(options).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  using O = ImageFolderOptions&;
  EXPECT_THAT(refused([](O o) { o.height = 0; }), HasSubstr("images of 0 x 1 pixels"));
  EXPECT_THAT(refused([](O o) { o.width = int64_t{1} << 31; }), HasSubstr("x 2147483648"));
  EXPECT_THAT(refused([](O o) { o.batch_size = -1; }), HasSubstr("batches of -1"));
  EXPECT_THAT(refused([](O o) { o.colors = static_cast<ImageColors>(7); }),
              HasSubstr("7 channels"));
  EXPECT_THAT(refused([](O o) { o.interpolation = "cubic"; }), HasSubstr("'cubic'"));
  EXPECT_THAT(refused([](O o) { o.seed = -1; }), HasSubstr("seed -1"));
  EXPECT_THAT(refused([](O o) { o.seed = int64_t{1} << 32; }), HasSubstr("4294967295"));
  EXPECT_THAT(refused([](O o) { o.validation_split = 1; }), HasSubstr("validation_split of 1"));
  EXPECT_THAT(refused([](O o) { o.validation_split = NAN; }), HasSubstr("validation_split"));
  EXPECT_THAT(refused([](O o) { o.validation_split = 0.5, o.shuffle = true; }),
              HasSubstr("needs a seed"));
  EXPECT_THAT(refused([](O o) { o.labels = ImageLabels::kNone, o.class_names = {"a"}; }),
              HasSubstr("class_names"));
  EXPECT_THAT(refused([](O o) { o.validation_split = 0.4; }),
              HasSubstr(StrCat("0.4 of the 2 images in ", folder_, " is no image")));
}

TEST_F(ImageFolderFilesTest, ADamagedFileIsNamedByTheStepAndTheNextOneIsRead) {
  WriteImages({"a/1.bmp", "a/3.bmp"});
  Write("a/2.png", "no png");
  const auto folder = Open();
  ASSERT_TRUE(folder.ok()) << folder.status();
  auto reader = DatasetReader::Create(folder->training);
  ASSERT_TRUE(reader.ok()) << reader.status();
  std::vector<Tensor> element;
  EXPECT_TRUE(*reader->Next(&element));
  const Status damaged = reader->Next(&element).status();
  EXPECT_EQ(damaged.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(damaged.message()), HasSubstr(StrCat(Path("a/2.png"), ": ")));
  EXPECT_THAT(std::string(damaged.message()), HasSubstr("Unknown image file format"));
  EXPECT_THAT(std::string(damaged.message()), HasSubstr("ImageFolderOptions::skip_damaged"));
  EXPECT_TRUE(*reader->Next(&element));
  EXPECT_FALSE(*reader->Next(&element));
}

TEST_F(ImageFolderFilesTest, DamagedFilesAreLeftOutAndListedIfThatIsAskedFor) {
  WriteImages({"a/1.bmp", "a/4.bmp", "b/1.bmp", "b/2.bmp"});
  Write("a/3.jpg", std::string(Bitmap(9, 9, 'x'), 0, 100));
  Write("a/2.png", "");
  fs::create_symlink(Path("a/nowhere.bmp"), Path("b/3.bmp"));
  ImageFolderOptions options = Small();
  options.skip_damaged = true;
  options.validation_split = 0.5;  // of the four that are whole
  const auto folder = Open(options);
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_THAT(folder->training_files, ElementsAre(Path("a/1.bmp"), Path("a/4.bmp")));
  EXPECT_THAT(folder->validation_files, ElementsAre(Path("b/1.bmp"), Path("b/2.bmp")));
  EXPECT_THAT(folder->damaged, ElementsAre(HasSubstr(StrCat(Path("a/2.png"), ": ")),
                                           HasSubstr(StrCat(Path("a/3.jpg"), ": ")),
                                           HasSubstr(StrCat(Path("b/3.bmp"), ": "))));
  EXPECT_THAT(TextsOf(folder->training), ElementsAre("float[1,1,3] 97 97 97 | int32[] 0",
                                                     "float[1,1,3] 97 97 97 | int32[] 0"));
  options.class_names = {"a"};
  for (const char* name : {"a/1.bmp", "a/4.bmp"}) fs::remove(Path(name));
  EXPECT_THAT(Refusal(StatusCode::kDataLoss, options), HasSubstr("none of the 2 images"));
}

TEST_F(ImageFolderFilesTest, WhatIsNoFileOrMuchTooLargeIsDamagedAndNeverWaitedFor) {
  WriteImages({"a/1.bmp"});
  ASSERT_EQ(::mkfifo(Path("a/2.png").c_str(), 0600), 0);
  fs::create_symlink("/dev/zero", Path("a/3.png"));
  fs::create_symlink(Path("a/4.png"), Path("a/4.png"));
  // A header of 100000 x 100000 pixels, and nothing behind it.
  std::string bomb = Bitmap(1, 1, 'x').substr(0, 54);
  bomb.replace(18, 8, std::string("\xa0\x86\x01\0\xa0\x86\x01\0", 8));
  Write("a/5.bmp", bomb);
  ImageFolderOptions options = Small();
  const auto read = Open(options);
  ASSERT_TRUE(read.ok()) << read.status();
  auto reader = DatasetReader::Create(read->training);
  ASSERT_TRUE(reader.ok()) << reader.status();
  std::vector<Tensor> element;
  EXPECT_TRUE(*reader->Next(&element));
  for (const char* name : {"a/2.png", "a/3.png", "a/4.png", "a/5.bmp"}) {
    EXPECT_THAT(std::string(reader->Next(&element).status().message()), HasSubstr(Path(name)));
  }
  EXPECT_FALSE(*reader->Next(&element));
  options.skip_damaged = true;
  const auto folder = Open(options);
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_THAT(folder->training_files, ElementsAre(Path("a/1.bmp")));
  EXPECT_THAT(folder->damaged, ElementsAre(HasSubstr("2.png"), HasSubstr("3.png"),
                                           HasSubstr("4.png"), HasSubstr("5.bmp")));
}

TEST_F(ImageFolderFilesTest, LinksToFoldersAreNotFollowedBelowAClass) {
  WriteImages({"elsewhere/1.bmp", "top/a/1.bmp"});
  fs::create_directory_symlink(Path("top"), Path("top/a/circle"));
  fs::create_directory_symlink(Path("elsewhere"), Path("top/b"));
  fs::create_symlink(Path("elsewhere/1.bmp"), Path("top/a/2.bmp"));
  folder_ = Path("top");
  const auto folder = Open();
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_THAT(folder->training_files,
              ElementsAre(Path("a/1.bmp"), Path("a/2.bmp"), Path("b/1.bmp")));
}

TEST_F(ImageFolderFilesTest, AThinImageKeepsARowWhenItIsPadded) {
  Write("a/1.bmp", Bitmap(1, 40, 'a'));
  ImageFolderOptions options = Small();
  options.height = options.width = 3, options.fit = ImageFit::kPad;
  options.labels = ImageLabels::kNone, options.colors = ImageColors::kRgb;
  const auto folder = Open(options);
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_THAT(TextsOf(folder->training),
              ElementsAre("float[3,3,3] 0 0 0 0 0 0 0 0 0 97 97 97 97 97 97 97 97 97 0 0 0 0 0 0 "
                          "0 0 0"));
}

// --- Orders and parts --------------------------------------------------------------------------

// The shade of each image of one epoch, in order.
std::vector<std::string> Shades(DatasetReader& reader) {
  std::vector<std::string> shades;
  for (const std::string& text : TextsOf(reader)) {
    shades.emplace_back(StrSplit(text, ' ')[1]);
  }
  EXPECT_TRUE(reader.Restart().ok());
  return shades;
}

TEST_F(ImageFolderFilesTest, EveryEpochHasAllFilesInAnotherOrder) {
  std::set<std::string> all;
  for (char shade = 1; shade <= 40; ++shade) {
    Write(StrCat("a/", int{shade}, ".bmp"), Bitmap(1, 1, shade));
    all.insert(StrCat(int{shade}));
  }
  for (const int64_t seed : {0, 3}) {
    ImageFolderOptions options = Small();
    options.shuffle = true, options.seed = seed;
    const auto folder = Open(options);
    ASSERT_TRUE(folder.ok()) << folder.status();
    auto reader = DatasetReader::Create(folder->training);
    ASSERT_TRUE(reader.ok()) << reader.status();
    const std::vector<std::string> first = Shades(*reader), second = Shades(*reader);
    EXPECT_NE(first, second);
    EXPECT_EQ(first.size(), all.size());
    EXPECT_EQ(std::set<std::string>(first.begin(), first.end()), all);
    EXPECT_EQ(std::set<std::string>(second.begin(), second.end()), all);
    auto again = DatasetReader::Create(folder->training);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(Shades(*again) == first, seed != 0);
  }
}

// By rows, each worker would decode all images and throw away those of the others.
TEST_F(ImageFolderFilesTest, WorkersReadFilesOfTheirOwn) {
  std::vector<std::string> shades;
  for (char shade = 1; shade <= 5; ++shade) {
    Write(StrCat("a/", int{shade}, ".bmp"), Bitmap(1, 1, shade));
  }
  const auto folder = Open();
  ASSERT_TRUE(folder.ok()) << folder.status();
  for (int worker = 0; worker < 2; ++worker) {
    const auto part = ShardForWorker(folder->training, AutoShard::kAuto, 2, worker);
    ASSERT_TRUE(part.ok()) << part.status();
    EXPECT_EQ(part->policy, AutoShard::kFile);
    auto reader = DatasetReader::Create(part->dataset);
    ASSERT_TRUE(reader.ok()) << reader.status();
    for (std::string& shade : Shades(*reader)) shades.push_back(std::move(shade));
  }
  EXPECT_THAT(shades, ElementsAre("1", "3", "5", "2", "4"));
}

}  // namespace
}  // namespace millrace
