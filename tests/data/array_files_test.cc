// SPDX-License-Identifier: Apache-2.0
// Arrays in npy, npz and idx files that NumPy wrote, or that are damaged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/strings.h"
#include "millrace/data.h"
#include "tests/data/element_text.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TextOf;
using testing::TextsOf;

const char kNumbers[] = "[3,4] 0 0.5 1 1.5 2 2.5 3 3.5 4 4.5 5 5.5";

std::string Golden(const std::string& name) { return StrCat("tests/goldens/data/", name); }

std::string ContentOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

std::string TempFile(const std::string& name, const std::string& content) {
  const char* folder = std::getenv("TEST_TMPDIR");
  const std::string path = StrCat(folder == nullptr ? "/tmp" : folder, "/", name);
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

TEST(ArrayFilesTest, ReadsAnArray) {
  const auto array = ReadNpy(Golden("plain.npy"));
  ASSERT_TRUE(array.ok()) << array.status();
  EXPECT_EQ(TextOf(*array), StrCat("float", kNumbers));
}

TEST(ArrayFilesTest, ReadsAnArchiveOfArrays) {
  const auto arrays = ReadNpz(Golden("stored.npz"));
  ASSERT_TRUE(arrays.ok()) << arrays.status();
  ASSERT_EQ(arrays->size(), 4u);
  EXPECT_EQ(TextOf(arrays->at("x")), StrCat("float", kNumbers));
  EXPECT_EQ(TextOf(arrays->at("y")), "int32[3] 1 -2 3");  // big-endian in the file
  EXPECT_EQ(TextOf(arrays->at("names")), "string[3] a bc gr\xc3\xbc\xc3\x9f");
  EXPECT_EQ(TextOf(arrays->at("flags")), "bool[3] 1 0 1");
}

TEST(ArrayFilesTest, ReadsAPackedArchive) {
  const auto arrays = ReadNpz(Golden("packed.npz"));
  ASSERT_TRUE(arrays.ok()) << arrays.status();
  EXPECT_EQ(TextOf(arrays->at("fortran")), StrCat("double", kNumbers));
  EXPECT_EQ(arrays->at("half").dtype(), kHalf);
  EXPECT_EQ(TextOf(arrays->at("scalar")), "int64[] 7");
  EXPECT_EQ(TextOf(arrays->at("empty")), "uint8[0,3] ");
  ASSERT_EQ(arrays->at("many").shape(), Shape({5000}));
  for (int i = 0; i < 5000; ++i) ASSERT_EQ(arrays->at("many").data<int16_t>()[i], i);
}

TEST(ArrayFilesTest, RowsBecomeElements) {
  const Dataset data = Dataset::Npz(Golden("stored.npz"), {"y", "names"});
  EXPECT_EQ(data.cardinality(), 3);
  EXPECT_THAT(TextsOf(data), ElementsAre("int32[] 1 | string[] a", "int32[] -2 | string[] bc",
                                         "int32[] 3 | string[] gr\xc3\xbc\xc3\x9f"));
  EXPECT_EQ(Dataset::Npy(Golden("plain.npy")).Batch(2).cardinality(), 2);
}

TEST(ArrayFilesTest, AnArrayThatIsNotThereIsNamedWithThoseThatAre) {
  const Dataset data = Dataset::Npz(Golden("stored.npz"), {"z"});
  EXPECT_THAT(std::string(data.status().message()),
              HasSubstr("has no array 'z'; it has flags, names, x, y"));
  EXPECT_THAT(std::string(Dataset::Npy("/nowhere.npy").status().message()),
              HasSubstr("/nowhere.npy"));
}

TEST(ArrayFilesTest, ReadsIdxOfAnyType) {
  const std::string bytes("\0\0\x08\x02\0\0\0\x02\0\0\0\x03\x01\x02\x03\x04\x05\xff", 18);
  const auto array = ReadIdx(TempFile("bytes.idx", bytes));
  ASSERT_TRUE(array.ok()) << array.status();
  EXPECT_EQ(TextOf(*array), "uint8[2,3] 1 2 3 4 5 255");
  const std::string floats("\0\0\x0d\x01\0\0\0\x01\x3f\xc0\0\0", 12);
  EXPECT_THAT(TextsOf(Dataset::Idx(TempFile("floats.idx", floats))), ElementsAre("float[] 1.5"));
}

TEST(ArrayFilesTest, EveryTruncationAndEveryChangedByteIsAnErrorOrAnArray) {
  for (const char* name : {"plain.npy", "stored.npz"}) {
    const std::string good = ContentOf(Golden(name));
    ASSERT_FALSE(good.empty());
    const auto read = [&](const std::string& content) {
      const std::string path = TempFile("damaged", content);
      return std::string(name).ends_with("npy") ? ReadNpy(path).status() : ReadNpz(path).status();
    };
    for (std::size_t n = 0; n < good.size(); n += 3) {
      EXPECT_FALSE(read(good.substr(0, n)).ok()) << name << " cut to " << n;
    }
    for (std::size_t at = 0; at < good.size(); ++at) {
      std::string changed = good;
      changed[at] = static_cast<char>(changed[at] ^ 0xff);
      read(changed).IgnoreError();  // must return
    }
  }
}

TEST(ArrayFilesTest, ChecksumsAreLookedAt) {
  std::string changed = ContentOf(Golden("stored.npz"));
  const std::size_t at = changed.find("NUMPY") + 130;
  changed[at] = static_cast<char>(changed[at] ^ 1);
  const Status status = ReadNpz(TempFile("changed.npz", changed)).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("checksum"));
}

}  // namespace
}  // namespace millrace
