// SPDX-License-Identifier: Apache-2.0
#include "millrace/digits.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "data/idx.h"

namespace millrace {
namespace {

std::string Be32(uint32_t v) {
  return {static_cast<char>(v >> 24), static_cast<char>(v >> 16), static_cast<char>(v >> 8),
          static_cast<char>(v)};
}

std::string TempDir() {
  static int counter = 0;
  const std::string dir = StrCat(testing::TempDir(), "/digits_", ++counter);
  EXPECT_EQ(std::system(("mkdir -p '" + dir + "'").c_str()), 0);
  return dir;
}

void WriteFile(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

void WriteGzip(const std::string& path, const std::string& bytes) {
  gzFile file = gzopen(path.c_str(), "wb");
  ASSERT_NE(file, nullptr);
  ASSERT_EQ(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())),
            static_cast<int>(bytes.size()));
  gzclose(file);
}

std::string Images(uint32_t n) {
  return Be32(0x803) + Be32(n) + Be32(28) + Be32(28) + std::string(n * 784, '\x33');
}
std::string Labels(uint32_t n, char label = 7) {
  return Be32(0x801) + Be32(n) + std::string(n, label);
}

void WriteAll(const std::string& dir) {
  WriteFile(dir + "/train-images-idx3-ubyte", Images(5010));
  WriteGzip(dir + "/train-labels-idx1-ubyte.gz", Labels(5010));
  WriteFile(dir + "/t10k-images-idx3-ubyte", Images(20));
  WriteFile(dir + "/t10k-labels-idx1-ubyte", Labels(20));
}

TEST(LoadDigits, ReadsPlainAndGzippedFiles) {
  const std::string dir = TempDir();
  WriteAll(dir);
  const StatusOr<Digits> digits = LoadDigits(dir);
  ASSERT_TRUE(digits.ok()) << digits.status();
  EXPECT_EQ(digits->validation.size(), 5000);
  EXPECT_EQ(digits->train.size(), 10);
  EXPECT_EQ(digits->test.size(), 20);
  EXPECT_EQ(digits->test.labels.data<int64_t>()[3], 7);
  EXPECT_EQ(digits->test.one_hot.data<float>()[3 * 10 + 7], 1.0f);
  EXPECT_FLOAT_EQ(digits->train.images.data<float>()[0], 0x33 / 255.0f);
}

std::string Le(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text.push_back(static_cast<char>(value >> (8 * i)));
  return text;
}

// An npz archive of arrays of bytes, as NumPy's savez writes it: nothing is packed.
std::string Npz(const std::vector<std::pair<std::string, std::string>>& arrays) {
  std::string zip, directory;
  for (const auto& [name, content] : arrays) {
    const uLong crc =
        crc32(0, reinterpret_cast<const Bytef*>(content.data()), static_cast<uInt>(content.size()));
    const std::string file = name + ".npy";
    const std::string common = Le(20, 2) + Le(0, 2) + Le(0, 2) + Le(0, 4) + Le(crc, 4) +
                               Le(content.size(), 4) + Le(content.size(), 4) + Le(file.size(), 2) +
                               Le(0, 2);
    directory += Le(0x02014b50, 4) + Le(20, 2) + common + Le(0, 2) + Le(0, 2) + Le(0, 2) +
                 Le(0, 4) + Le(zip.size(), 4) + file;
    zip += Le(0x04034b50, 4) + common + file + content;
  }
  return zip + directory + Le(0x06054b50, 4) + Le(0, 4) + Le(arrays.size(), 2) +
         Le(arrays.size(), 2) + Le(directory.size(), 4) + Le(zip.size(), 4) + Le(0, 2);
}

std::string Npy(const std::string& type, const std::string& shape, const std::string& bytes) {
  std::string header =
      "{'descr': '" + type + "', 'fortran_order': False, 'shape': (" + shape + "), }";
  header.resize(117, ' ');
  return std::string("\x93NUMPY\x01\x00", 8) + Le(header.size() + 1, 2) + header + "\n" + bytes;
}

std::vector<std::pair<std::string, std::string>> NpzArrays() {
  return {{"x_test", Npy("|u1", "20, 28, 28", std::string(20 * 784, '\x33'))},
          {"x_train", Npy("|u1", "5010, 28, 28", std::string(5010 * 784, '\x33'))},
          {"y_train", Npy("|u1", "5010,", std::string(5010, '\x07'))},
          {"y_test", Npy("|u1", "20,", std::string(20, '\x07'))}};
}

TEST(LoadDigits, ReadsKerasArchive) {
  const std::string dir = TempDir();
  WriteFile(dir + "/mnist.npz", Npz(NpzArrays()));
  const StatusOr<Digits> digits = LoadDigits(dir);
  ASSERT_TRUE(digits.ok()) << digits.status();
  const std::string files = TempDir();
  WriteAll(files);
  const StatusOr<Digits> same = LoadDigits(files);
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_TRUE(TensorsEqual(digits->train.images, same->train.images));
  EXPECT_TRUE(TensorsEqual(digits->validation.labels, same->validation.labels));
  EXPECT_TRUE(TensorsEqual(digits->test.one_hot, same->test.one_hot));
}

TEST(LoadDigits, RefusesADamagedKerasArchive) {
  const auto expect = [](const std::string& archive, const char* expected) {
    const std::string dir = TempDir();
    WriteFile(dir + "/mnist.npz", archive);
    const Status status = LoadDigits(dir).status();
    EXPECT_TRUE(errors::IsDataLoss(status)) << status;
    EXPECT_NE(Message(status).find("mnist.npz"), std::string::npos) << status;
    EXPECT_NE(Message(status).find(expected), std::string::npos) << status;
  };
  auto arrays = NpzArrays();
  expect(Npz(arrays).substr(0, 5000), "");
  arrays.pop_back();
  expect(Npz(arrays), "no array y_test");
  arrays.emplace_back("y_test", Npy("<f4", "20,", std::string(80, '\0')));
  expect(Npz(arrays), "holds float, expected uint8");
  arrays.back().second = Npy("|u1", "19,", std::string(19, '\0'));
  expect(Npz(arrays), "holds 20 images, but");
  arrays.back().second = Npy("|u1", "20, 2", std::string(40, '\0'));
  expect(Npz(arrays), "20 x 2 labels");
  arrays.back().second = Npy("|u1", "20,", std::string(20, '\x0a'));
  expect(Npz(arrays), "label 0 is 10");
}

TEST(LoadDigits, NamesTheMissingFile) {
  const std::string dir = TempDir();
  const Status status = LoadDigits(dir).status();
  EXPECT_TRUE(errors::IsNotFound(status));
  EXPECT_NE(Message(status).find("train-images-idx3-ubyte"), std::string::npos) << status;
}

TEST(LoadDigits, RefusesDamagedFiles) {
  struct Case {
    const char* file;
    std::string bytes;
    const char* expected;
  };
  const Case cases[] = {
      {"t10k-images-idx3-ubyte", Images(20).substr(0, 1000), "truncated"},
      {"t10k-images-idx3-ubyte", Images(20) + "x", "too long"},
      {"t10k-images-idx3-ubyte", "abc", "truncated"},
      {"t10k-images-idx3-ubyte", Labels(20) + std::string(20, 'x'), "magic number"},
      {"t10k-images-idx3-ubyte", Be32(0x803) + Be32(~0u) + Be32(~0u) + Be32(~0u), "impossible"},
      {"t10k-images-idx3-ubyte", Images(19), "19 images"},
      {"t10k-labels-idx1-ubyte", Labels(20, 11), "label 0 is 11"},
  };
  for (const Case& c : cases) {
    const std::string dir = TempDir();
    WriteAll(dir);
    WriteFile(dir + "/" + c.file, c.bytes);
    const Status status = LoadDigits(dir).status();
    EXPECT_TRUE(errors::IsDataLoss(status)) << status;
    EXPECT_NE(Message(status).find(c.expected), std::string::npos) << status;
    EXPECT_NE(Message(status).find("t10k"), std::string::npos) << status;
  }
}

TEST(LoadDigits, RefusesATruncatedArchive) {
  const std::string dir = TempDir();
  WriteAll(dir);
  WriteGzip(dir + "/whole.gz", Labels(5010));
  std::ifstream in(dir + "/whole.gz", std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  WriteFile(dir + "/train-labels-idx1-ubyte.gz", bytes.substr(0, bytes.size() - 9));
  const Status status = LoadDigits(dir).status();
  EXPECT_TRUE(errors::IsDataLoss(status)) << status;
  EXPECT_NE(Message(status).find("train-labels"), std::string::npos) << status;
}

TEST(SyntheticDigits, AreReproducibleAndDifferBySeed) {
  const SyntheticDigitsOptions small{.seed = 3, .train = 50, .validation = 10, .test = 10};
  const Digits a = SyntheticDigits(small), b = SyntheticDigits(small);
  EXPECT_TRUE(TensorsEqual(a.train.images, b.train.images));
  EXPECT_TRUE(TensorsEqual(a.train.labels, b.train.labels));
  SyntheticDigitsOptions other = small;
  other.seed = 4;
  EXPECT_FALSE(TensorsEqual(a.train.images, SyntheticDigits(other).train.images));
}

TEST(SyntheticDigits, AreImagesOfEveryClass) {
  const Digits digits = SyntheticDigits({.seed = 1, .train = 400, .validation = 1, .test = 1});
  std::vector<int> count(10, 0);
  for (int64_t i = 0; i < 400; ++i) ++count[digits.train.labels.data<int64_t>()[i]];
  for (int c = 0; c < 10; ++c) EXPECT_GT(count[c], 10) << c;
  for (const float v : digits.train.images.flat<float>()) {
    ASSERT_GE(v, 0.0f);
    ASSERT_LE(v, 1.0f);
  }
}

TEST(BatchSource, VisitsEveryExampleOnceAnEpoch) {
  Examples e = SyntheticDigits({.seed = 1, .train = 60, .validation = 1, .test = 1}).train;
  for (int64_t i = 0; i < 60; ++i) e.labels.data<int64_t>()[i] = i;
  BatchSource source(e, 20, 5);
  for (int epoch = 0; epoch < 2; ++epoch) {
    std::vector<bool> seen(60, false);
    for (int b = 0; b < 3; ++b) {
      const BatchSource::Batch batch = source.Next();
      for (const int64_t label : batch.labels.flat<int64_t>()) {
        EXPECT_FALSE(seen[label]);
        seen[label] = true;
      }
    }
  }
}

// Images that tell their number.
Examples Numbered(int64_t n) {
  Examples e{Tensor(kFloat, {n, kDigitPixels}), Tensor(kInt64, {n}),
             Tensor(kFloat, {n, kDigitClasses})};
  std::memset(e.one_hot.raw_data(), 0, e.one_hot.num_bytes());
  for (int64_t i = 0; i < n; ++i) {
    std::fill_n(e.images.data<float>() + i * kDigitPixels, kDigitPixels, static_cast<float>(i));
    e.labels.data<int64_t>()[i] = i % kDigitClasses;
    e.one_hot.data<float>()[i * kDigitClasses + i % kDigitClasses] = 1;
  }
  return e;
}

std::vector<int64_t> NumbersOf(const BatchSource::Batch& batch) {
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < batch.labels.num_elements(); ++i) {
    const auto number = static_cast<int64_t>(batch.images.data<float>()[i * kDigitPixels]);
    EXPECT_EQ(batch.labels.data<int64_t>()[i], number % kDigitClasses);
    EXPECT_EQ(batch.one_hot.data<float>()[i * kDigitClasses + number % kDigitClasses], 1);
    numbers.push_back(number);
  }
  return numbers;
}

TEST(BatchSource, AreTheSameWhateverWasAskedForBefore) {
  const Examples examples = Numbered(23);
  BatchSource all(examples, 5, 42);
  std::vector<std::vector<int64_t>> in_order;
  for (int64_t step = 0; step < 40; ++step) in_order.push_back(NumbersOf(all.At(step)));
  for (const int64_t first : {39, 0, 17, 4, 5, 22}) {
    BatchSource late(examples, 5, 42);
    for (int64_t step = first; step < 40; ++step) {
      EXPECT_EQ(NumbersOf(late.At(step)), in_order[static_cast<std::size_t>(step)]) << step;
    }
    EXPECT_EQ(NumbersOf(late.At(3)), in_order[3]) << "back from " << first;
  }
}

TEST(BatchSource, GoThroughAllExamplesInEveryPassInAnotherOrder) {
  const Examples examples = Numbered(20);
  BatchSource batches(examples, 5, 42);
  std::vector<std::vector<int64_t>> passes(3);
  for (int64_t step = 0; step < 12; ++step) {
    std::vector<int64_t>& pass = passes[static_cast<std::size_t>(step / 4)];
    for (const int64_t number : NumbersOf(batches.At(step))) pass.push_back(number);
  }
  EXPECT_NE(passes[0], passes[1]);
  EXPECT_NE(passes[1], passes[2]);
  for (std::vector<int64_t>& pass : passes) {
    std::sort(pass.begin(), pass.end());
    for (int64_t i = 0; i < 20; ++i) EXPECT_EQ(pass[static_cast<std::size_t>(i)], i);
  }
}

TEST(BatchSource, DifferBySeed) {
  const Examples examples = Numbered(50);
  BatchSource one(examples, 25, 42), other(examples, 25, 43);
  EXPECT_NE(NumbersOf(one.At(0)), NumbersOf(other.At(0)));
}

}  // namespace
}  // namespace millrace
