// SPDX-License-Identifier: Apache-2.0
// Checkpoints of the first format that TensorFlow wrote are read, and written again byte for byte.
#include "kernels/io/slice_table.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <complex>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "base/errors.h"
#include "io/bundle_index.h"
#include "kernels/io/match_files.h"

namespace millrace {
namespace {

constexpr char kGolden[] = "tests/goldens/checkpoints/first_format-";
const std::string kBoth = StrCat(kGolden, "*-of-00002");
const std::string kFirst = StrCat(kGolden, "00000-of-00002");

std::unique_ptr<SliceTableReader> Open(const std::string& pattern) {
  auto reader = SliceTableReader::Open(PosixFileSystem(), pattern);
  EXPECT_TRUE(reader.ok()) << reader.status();
  return reader.ok() ? *std::move(reader) : nullptr;
}

template <typename T>
void ExpectTensor(const SliceTableReader& reader, const std::string& name, const Shape& shape,
                  const std::vector<T>& want, std::string_view slice = "") {
  const StatusOr<Tensor> got = reader.Restore(name, slice, DataTypeOf<T>());
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->shape(), shape) << name;
  const auto flat = got->template flat<T>();
  EXPECT_TRUE(std::equal(flat.begin(), flat.end(), want.begin(), want.end())) << name;
}

void ExpectError(const Status& status, StatusCode code, std::string_view text) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_NE(Message(status).find(text), std::string::npos) << status;
}

std::string TemporaryFile(std::string_view name) {
  return std::filesystem::path(::testing::TempDir()) / StrCat("slice_table_", getpid(), "_", name);
}

TEST(SliceTableTest, TensorsOfEveryTypeAreRead) {
  const auto reader = Open(kBoth);
  ASSERT_NE(reader, nullptr);
  const double infinity = std::numeric_limits<double>::infinity();
  ExpectTensor<float>(*reader, "float", Shape({3}), {1.5f, -2, 3});
  ExpectTensor<double>(*reader, "double", Shape({2, 1}), {.1, -infinity});
  ExpectTensor<Half>(*reader, "half", Shape({2}), {Half(1.0f), Half(-.5f)});
  ExpectTensor<int8_t>(*reader, "int8", Shape({2}), {-1, 2});
  ExpectTensor<int16_t>(*reader, "int16", Shape({1}), {-3});
  ExpectTensor<int32_t>(*reader, "int32", Shape({1, 2}), {-7, 7});
  ExpectTensor<int64_t>(*reader, "int64", Shape(), {-(int64_t{1} << 62)});
  ExpectTensor<uint8_t>(*reader, "uint8", Shape({1}), {255});
  ExpectTensor<uint16_t>(*reader, "uint16", Shape({1}), {65535});
  ExpectTensor<bool>(*reader, "bool", Shape({2}), {true, false});
  ExpectTensor<std::complex<float>>(*reader, "complex64", Shape({2}), {{1, 2}, {-0.f, -1}});
  ExpectTensor<std::complex<double>>(*reader, "complex128", Shape({1}), {{0, .5}});
  ExpectTensor<std::string>(*reader, "string", Shape({3}), {"", "two", std::string(1, '\0')});
  ExpectTensor<float>(*reader, "empty", Shape({2, 0}), {});
}

TEST(SliceTableTest, PartsOfSeveralFilesAreJoined) {
  const auto reader = Open(kBoth);
  ASSERT_NE(reader, nullptr);
  ExpectTensor<int32_t>(*reader, "part", Shape({4, 3}), {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  ExpectTensor<int32_t>(*reader, "part", Shape({2, 2}), {4, 5, 7, 8}, "4 3 1,2:1,2");
  const auto first = Open(kFirst);
  ASSERT_NE(first, nullptr);
  ExpectTensor<int32_t>(*first, "part", Shape({1, 3}), {3, 4, 5}, "4 3 1,1:-");
  ExpectError(first->Restore("part", "", kInt32).status(), StatusCode::kInvalidArgument,
              "Error copying slice data");
  ExpectError(first->Restore("part", "4 3 1,2:-", kInt32).status(), StatusCode::kInvalidArgument,
              "Error copying slice data");
}

TEST(SliceTableTest, WhatDoesNotFitIsSaid) {
  const auto reader = Open(kFirst);
  ASSERT_NE(reader, nullptr);
  ExpectError(reader->Restore("nope", "", kFloat).status(), StatusCode::kNotFound,
              StrCat("Tensor name \"nope\" not found in checkpoint files ", kFirst));
  ExpectError(reader->Restore("float", "", kInt32).status(), StatusCode::kInvalidArgument,
              "Expected to restore a tensor of type int32, got a tensor of type float instead: "
              "tensor_name = float");
  ExpectError(reader->Restore("float", "4 -", kFloat).status(), StatusCode::kInvalidArgument,
              "Shape in shape_and_slice spec does not match the shape in the save file: [4], save "
              "file shape: [3]");
  ExpectError(SliceTableReader::Open(PosixFileSystem(), "tests/goldens/none*").status(),
              StatusCode::kNotFound, "Failed to find any matching files for tests/goldens/none*");
  ExpectError(
      SliceTableReader::Open(PosixFileSystem(), "tests/goldens/checkpoints/expected.json").status(),
      StatusCode::kDataLoss, "expected.json");
}

TEST(SliceTableTest, FilesAreWrittenAsTensorFlowWritesThem) {
  const auto reader = Open(kFirst);
  ASSERT_NE(reader, nullptr);
  SliceTableWriter writer;
  // In the order of the file that was recorded.
  const std::vector<std::pair<std::string, DataType>> tensors = {
      {"bool", kBool},     {"complex64", kComplex64}, {"complex128", kComplex128},
      {"double", kDouble}, {"empty", kFloat},         {"float", kFloat},
      {"half", kHalf},     {"int16", kInt16},         {"int32", kInt32},
      {"int64", kInt64},   {"int8", kInt8},           {"string", kString},
      {"uint16", kUint16}, {"uint8", kUint8}};
  for (const auto& [name, dtype] : tensors) {
    const StatusOr<Tensor> tensor = reader->Restore(name, "", dtype);
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    ASSERT_TRUE(writer.Add(name, "", *tensor).ok());
  }
  const StatusOr<Tensor> part = reader->Restore("part", "4 3 0,2:-", kInt32);
  ASSERT_TRUE(part.ok()) << part.status();
  ASSERT_TRUE(writer.Add("part", "4 3 0,2:-", *part).ok());
  const std::string path = TemporaryFile("again");
  ASSERT_TRUE(writer.Write(PosixFileSystem(), path).ok());
  const auto want = ReadTable(PosixFileSystem(), kFirst), got = ReadTable(PosixFileSystem(), path);
  ASSERT_TRUE(want.ok() && got.ok());
  ASSERT_EQ(got->size(), want->size());
  for (std::size_t i = 0; i < got->size(); ++i) {
    EXPECT_EQ((*got)[i].first, (*want)[i].first);
    EXPECT_EQ((*got)[i].second, (*want)[i].second) << i;
  }
  ASSERT_TRUE(PosixFileSystem()->DeleteFile(path).ok());
}

TEST(SliceTableTest, WhatCannotBeStoredIsRefused) {
  SliceTableWriter writer;
  const Tensor two = Tensor::FromValues<float>({1, 2}, Shape({2}));
  ExpectError(writer.Add("u", "3 0,1", two), StatusCode::kInvalidArgument,
              "Slice in shape_and_slice specification does not match the shape of the tensor to  "
              "save: 3 0,1, tensor: [2]");
  ASSERT_TRUE(writer.Add("u", "4 0,2", two).ok());
  ExpectError(writer.Add("u", "4 2,2", Tensor::FromValues<int32_t>({1, 2}, Shape({2}))),
              StatusCode::kInternal,
              "Mismatching types: existing type = float, trying to add name u, type = int32");
  ExpectError(writer.Add("u", "5 2,2", two), StatusCode::kInternal, "Mismatching shapes");
  ExpectError(writer.Add("u", "4 0,2", two), StatusCode::kInternal, "Overlapping slices");
  ExpectError(writer.Add("b", "", Tensor::FromValues<BFloat16>({BFloat16(1.0f)}, Shape({1}))),
              StatusCode::kUnimplemented, "Saving data type bfloat16 not yet supported");
}

TEST(SliceTableTest, NoChangedByteAndNoCutGoesUnnoticed) {
  const std::string path = TemporaryFile("changed");
  const StatusOr<std::string> good = PosixFileSystem()->ReadFile(kFirst);
  ASSERT_TRUE(good.ok()) << good.status();
  const auto expect_refused = [&path](const std::string& bytes, std::string_view place) {
    ASSERT_TRUE(PosixFileSystem()->WriteFileAtomically(path, bytes).ok());
    const Status status = SliceTableReader::Open(PosixFileSystem(), path).status();
    ASSERT_EQ(status.code(), StatusCode::kDataLoss) << status;
    for (const std::string_view part :
         {std::string_view(path), place, std::string_view("expect")}) {
      ASSERT_NE(Message(status).find(part), std::string::npos) << part << " is not in: " << status;
    }
  };
  for (std::size_t i = 0; i < good->size(); ++i) {
    std::string bad = *good;
    bad[i] = static_cast<char>(bad[i] ^ (1 << i % 8));
    SCOPED_TRACE(StrCat("byte ", i));
    ASSERT_NO_FATAL_FAILURE(expect_refused(bad, "byte"));
    SCOPED_TRACE("cut there");
    ASSERT_NO_FATAL_FAILURE(expect_refused(good->substr(0, i), "byte"));
  }
  ASSERT_TRUE(PosixFileSystem()->DeleteFile(path).ok());
}

TEST(SliceTableTest, PartsThatOverlapOrHaveTooFewElementsAreRefused) {
  const std::string path = TemporaryFile("overlap");
  const Tensor two = Tensor::FromValues<float>({1, 2}, Shape({2}));
  SliceTableWriter writer;
  for (const char* slice : {"3 0,2", "3 1,2"}) ASSERT_TRUE(writer.Add("u", slice, two).ok());
  ASSERT_TRUE(writer.Write(PosixFileSystem(), path).ok());
  const auto overlapping = Open(path);
  ASSERT_NE(overlapping, nullptr);
  ExpectError(overlapping->Restore("u", "", kFloat).status(), StatusCode::kInternal,
              "Overlapping slices of u");

  pb::SavedTensorSlices meta, data;
  pb::SavedSliceMeta* const tensor = meta.mutable_meta()->add_tensor();
  tensor->set_name("u");
  tensor->set_type(pb::DT_FLOAT);
  tensor->mutable_shape()->add_dim()->set_size(int64_t{1} << 40);
  tensor->add_slice()->add_extent();
  data.mutable_data()->mutable_data()->add_float_val(1);
  ASSERT_TRUE(WriteTable(PosixFileSystem(), path,
                         {{"", meta.SerializeAsString()},
                          {EncodeSliceKey("u", TensorSlice::Whole(1)), data.SerializeAsString()}})
                  .ok());
  const auto damaged = Open(path);
  ASSERT_NE(damaged, nullptr);
  ExpectError(damaged->Restore("u", "", kFloat).status(), StatusCode::kDataLoss,
              "slice - of u has 1 elements; expected 1099511627776");

  tensor->add_slice()->add_extent();
  ASSERT_TRUE(WriteTable(PosixFileSystem(), path,
                         {{"", meta.SerializeAsString()},
                          {EncodeSliceKey("u", TensorSlice::Whole(1)), data.SerializeAsString()}})
                  .ok());
  ExpectError(SliceTableReader::Open(PosixFileSystem(), path).status(), StatusCode::kDataLoss,
              "slice - of u is named twice");
  ASSERT_TRUE(PosixFileSystem()->DeleteFile(path).ok());
}

}  // namespace
}  // namespace millrace
