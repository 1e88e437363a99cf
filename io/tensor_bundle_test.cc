// SPDX-License-Identifier: Apache-2.0
// Checkpoints that TensorFlow wrote are read, and written again byte for byte.
#include "io/tensor_bundle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "base/errors.h"
#include "io/bundle_index.h"
#include "io/filesystem.h"
#include "tensor/allocator.h"
#include "tensor/tensor_proto.h"

namespace millrace {
namespace {

using Json = nlohmann::json;

constexpr char kGoldens[] = "tests/goldens/checkpoints/";

const Json& Expected() {
  static const Json* const kExpected =
      new Json(Json::parse(std::ifstream(StrCat(kGoldens, "expected.json"))));
  return *kExpected;
}

std::unique_ptr<BundleReader> OpenGolden(std::string_view name) {
  auto reader = BundleReader::Open(PosixFileSystem(), StrCat(kGoldens, name));
  EXPECT_TRUE(reader.ok()) << name << ": " << reader.status();
  return reader.ok() ? *std::move(reader) : nullptr;
}

std::string Hex(std::string_view bytes) {
  std::string out;
  for (const unsigned char c : bytes) {
    out += "0123456789abcdef"[c >> 4];
    out += "0123456789abcdef"[c & 15];
  }
  return out;
}

std::string HexNumber(uint32_t value) {
  char text[9];
  std::snprintf(text, sizeof(text), "%08x", value);
  return text;
}

// JSON spells special values as text and strings in latin-1.
bool Equals(const Json& want, double got) {
  if (want.is_string()) {
    const std::string text = want;
    return text == "nan" ? std::isnan(got) : std::isinf(got) && (text == "-inf") == (got < 0);
  }
  if (want.is_boolean()) return (got != 0) == want.get<bool>();
  return want.get<double>() == got;
}

std::string FromLatin1(const std::string& utf8) {
  std::string out;
  for (std::size_t i = 0; i < utf8.size(); ++i) {
    const auto c = static_cast<unsigned char>(utf8[i]);
    if (c < 0x80) {
      out += utf8[i];
    } else {
      out += static_cast<char>((c & 3) << 6 | (utf8[++i] & 0x3f));
    }
  }
  return out;
}

template <typename T>
double AsDouble(T value) {
  return static_cast<double>(value);
}
double AsDouble(Half value) { return static_cast<float>(value); }
double AsDouble(BFloat16 value) { return static_cast<float>(value); }
double AsDouble(Float8E5m2 value) { return static_cast<float>(value); }
double AsDouble(Float8E4m3fn value) { return static_cast<float>(value); }

template <typename T>
void CompareAs(const Tensor& got, const Json& want, const std::string& key) {
  for (std::size_t i = 0; i < want.size(); ++i) {
    EXPECT_TRUE(Equals(want[i], AsDouble(got.data<T>()[i]))) << key << "[" << i << "]";
  }
}

template <typename T>
void CompareComplex(const Tensor& got, const Json& want, const std::string& key) {
  for (std::size_t i = 0; i < want.size(); ++i) {
    const std::complex<T> value = got.data<std::complex<T>>()[i];
    EXPECT_TRUE(Equals(want[i][0], value.real()) && Equals(want[i][1], value.imag())) << key;
  }
}

void Compare(const Tensor& got, const Json& want, const std::string& key) {
  ASSERT_EQ(static_cast<int64_t>(want.size()), got.num_elements()) << key;
  switch (got.dtype()) {
    case DataType::kFloat:
      return CompareAs<float>(got, want, key);
    case DataType::kDouble:
      return CompareAs<double>(got, want, key);
    case DataType::kInt32:
      return CompareAs<int32_t>(got, want, key);
    case DataType::kInt64:
      return CompareAs<int64_t>(got, want, key);
    case DataType::kInt16:
      return CompareAs<int16_t>(got, want, key);
    case DataType::kInt8:
      return CompareAs<int8_t>(got, want, key);
    case DataType::kUint8:
      return CompareAs<uint8_t>(got, want, key);
    case DataType::kUint16:
      return CompareAs<uint16_t>(got, want, key);
    case DataType::kUint32:
      return CompareAs<uint32_t>(got, want, key);
    case DataType::kUint64:
      return CompareAs<uint64_t>(got, want, key);
    case DataType::kBool:
      return CompareAs<bool>(got, want, key);
    case DataType::kHalf:
      return CompareAs<Half>(got, want, key);
    case DataType::kBfloat16:
      return CompareAs<BFloat16>(got, want, key);
    case DataType::kFloat8E5m2:
      return CompareAs<Float8E5m2>(got, want, key);
    case DataType::kFloat8E4m3fn:
      return CompareAs<Float8E4m3fn>(got, want, key);
    case DataType::kComplex64:
      return CompareComplex<float>(got, want, key);
    case DataType::kComplex128:
      return CompareComplex<double>(got, want, key);
    case DataType::kString:
      for (std::size_t i = 0; i < want.size(); ++i) {
        EXPECT_EQ(got.data<std::string>()[i], FromLatin1(want[i])) << key;
      }
      return;
    default:
      ADD_FAILURE() << key << " has a type that the test does not know";
  }
}

// False for types that are numbers on the wire and have no kernels.
bool HasElementsHere(const pb::BundleEntryProto& entry) {
  return DataTypeSize(static_cast<DataType>(entry.dtype())) > 0;
}

class GoldenCheckpoint : public testing::TestWithParam<const char*> {};

TEST_P(GoldenCheckpoint, HasTheEntriesAndValuesThatTensorFlowWrote) {
  const Json& expected = Expected()[GetParam()];
  const auto reader = OpenGolden(GetParam());
  ASSERT_NE(reader, nullptr);
  EXPECT_EQ(reader->header().num_shards(), expected["num_shards"].get<int>());
  std::size_t count = 0;  // the list of entries may be an extract
  for (const Json& block : expected["index_file"]["blocks"]) {
    count += block["entries"].get<std::size_t>();
  }
  EXPECT_EQ(reader->entries().size() + 1, count);  // and the header
  std::map<std::string, const BundleReader::Entry*> by_key;
  for (const BundleReader::Entry& entry : reader->entries()) by_key[Hex(entry.key)] = &entry;
  int compared = 0;
  for (const Json& want : expected["entries"]) {
    const auto it = by_key.find(want["key_hex"]);
    ASSERT_NE(it, by_key.end()) << want["key_hex"];
    const auto& [key, entry] = *it->second;
    EXPECT_EQ(static_cast<int>(entry.dtype()), want["dtype"].get<int>());
    const std::vector<int64_t> shape = want["shape"];
    EXPECT_EQ(ShapeFromProto(entry.shape()), PartialShape(shape));
    EXPECT_EQ(entry.offset(), want["offset"].get<int64_t>());
    EXPECT_EQ(entry.size(), want["size"].get<int64_t>());
    EXPECT_EQ(entry.shard_id(), want["shard"].get<int>());
    if (want.contains("crc32c_masked") && entry.slices().empty()) {
      EXPECT_EQ(HexNumber(entry.crc32c()), want["crc32c_masked"]);
    }
    const auto value = reader->Read(key);
    if (!HasElementsHere(entry)) {
      EXPECT_EQ(value.status().code(), StatusCode::kUnimplemented) << key;
      continue;
    }
    ASSERT_TRUE(value.ok()) << key << ": " << value.status();
    if (want.contains("value") && want["value"].is_array()) {
      Compare(*value, want["value"], key);
      ++compared;
    }
  }
  EXPECT_GT(compared, 0);
}

INSTANTIATE_TEST_SUITE_P(All, GoldenCheckpoint,
                         testing::Values("small", "dtypes", "many_keys", "sliced", "three_shards",
                                         "big_endian", "object", "saver/model.ckpt-2",
                                         "saver/model.ckpt-3"));

class DamagedCheckpoint : public testing::TestWithParam<const char*> {};

// But for a data file that is cut off: by TensorFlow's OutOfRange, which programs that read to the
// end of their data wait for, a damaged file would end them as if they were done.
TEST_P(DamagedCheckpoint, FailsWithTensorFlowsCode) {
  const Json& expected = Expected()[GetParam()];
  const bool is_cut = std::string_view(GetParam()) == "short_data";
  const auto reader = BundleReader::Open(PosixFileSystem(), StrCat(kGoldens, GetParam()));
  Status status = reader.status();
  if (reader.ok()) {
    status = (*reader)->Restore(expected["reading"].get<std::string>(), "", kFloat).status();
  }
  EXPECT_EQ(static_cast<int>(status.code()),
            is_cut ? static_cast<int>(StatusCode::kDataLoss) : expected["error_code"].get<int>())
      << status;
  EXPECT_NE(std::string(Message(status)).find(GetParam()), std::string::npos)
      << "the file is not named: " << status;
}

// Each of these was one entry of strings or floats before it was damaged.
TEST(DamagedCheckpoint, ErrorsNameTheFileThePlaceAndWhatWasExpected) {
  const std::string prefix = StrCat(std::getenv("TEST_TMPDIR"), "/damaged");
  const std::string data = BundleDataName(prefix, 0, 1);
  {
    auto writer = BundleWriter::Create(PosixFileSystem(), prefix);
    ASSERT_TRUE(writer.ok()) << writer.status();
    ASSERT_TRUE((*writer)->Add("floats", Tensor::FromValues<float>({1, 2, 3})).ok());
    ASSERT_TRUE((*writer)->Add("texts", Tensor::FromValues<std::string>({"ab", "cde"})).ok());
    ASSERT_TRUE((*writer)->Finish().ok());
  }
  const std::string whole = *PosixFileSystem()->ReadFile(data);
  ASSERT_EQ(whole.size(), 12u + 2 + 4 + 5);
  struct Damage {
    std::size_t at;
    const char* key;
    std::vector<std::string> said;
  };
  const Damage damages[] = {
      {3, "floats", {"Checksum does not match: stored ", StrCat("bytes 0 to 12 of ", data)}},
      {12, "texts", {StrCat("bytes 12 to 23 of ", data), "at 14 there should be the checksum"}},
      {15, "texts", {StrCat("bytes 12 to 23 of ", data), "at 14 there should be the checksum"}},
      {20, "texts", {StrCat("bytes 12 to 23 of ", data), "bytes with the checksum "}},
  };
  for (const Damage& damage : damages) {
    std::string bytes = whole;
    bytes[damage.at] ^= 1;
    ASSERT_TRUE(PosixFileSystem()->WriteFileAtomically(data, bytes).ok());
    const auto reader = BundleReader::Open(PosixFileSystem(), prefix);
    ASSERT_TRUE(reader.ok()) << reader.status();
    const Status status = (*reader)->Read(damage.key).status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status;
    for (const std::string& part : damage.said) {
      EXPECT_NE(std::string(Message(status)).find(part), std::string::npos)
          << part << " is not in: " << status;
    }
  }
}

// Each bit of an index, and each length that it may be cut to.
TEST(DamagedCheckpoint, ErrorsOfAnIndexNameThePlaceAndWhatWasExpected) {
  for (const char* golden : {"small", "sliced"}) {
    const std::string whole =
        *PosixFileSystem()->ReadFile(BundleIndexName(StrCat(kGoldens, golden)));
    ASSERT_EQ(DescribeTableDamage(whole), "");
    for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
      std::string damaged = whole;
      damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
      const std::string said = DescribeTableDamage(damaged);
      ASSERT_NE(said.find("byte"), std::string::npos) << bit << ": " << said;
      ASSERT_NE(said.find("expected "), std::string::npos) << bit << ": " << said;
    }
    for (std::size_t size = 0; size < whole.size(); ++size) {
      const std::string said = DescribeTableDamage(whole.substr(0, size));
      ASSERT_NE(said.find("expected "), std::string::npos) << size << ": " << said;
    }
  }
  const std::string whole =
      *PosixFileSystem()->ReadFile(BundleIndexName(StrCat(kGoldens, "small")));
  const std::string prefix = StrCat(std::getenv("TEST_TMPDIR"), "/damaged_index");
  std::string damaged = whole;
  damaged[3] ^= 4;
  ASSERT_TRUE(PosixFileSystem()->WriteFileAtomically(BundleIndexName(prefix), damaged).ok());
  const Status status = BundleReader::Open(PosixFileSystem(), prefix).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status;
  const std::string said(Message(status));
  EXPECT_NE(
      said.find(StrCat("cannot read the table ", BundleIndexName(prefix),
                       ": Corruption: block checksum mismatch: a block of entries, bytes 0 ")),
      std::string::npos)
      << said;
}

INSTANTIATE_TEST_SUITE_P(All, DamagedCheckpoint,
                         testing::Values("bad_block_crc", "bad_data_crc", "bad_magic", "no_data",
                                         "no_index", "short_data", "short_index"));

TEST(SlicedCheckpoint, GivesAnySliceThatIsCovered) {
  const auto reader = OpenGolden("sliced");
  ASSERT_NE(reader, nullptr);
  for (const Json& read : Expected()["sliced"]["reads"]) {
    const std::string name = read["name"], spec = read["shape_and_slice"];
    DataType dtype;
    Shape shape;
    ASSERT_TRUE(reader->Lookup(name, &dtype, &shape).ok());
    const auto value = reader->Restore(name, spec, dtype);
    ASSERT_TRUE(value.ok()) << name << " " << spec << ": " << value.status();
    const std::vector<int64_t> want_shape = read["shape"];
    EXPECT_EQ(value->shape(), Shape(std::span<const int64_t>(want_shape)));
    Compare(*value, read["value"], name);
  }
}

TEST(SlicedCheckpoint, RefusesBadSlicesWithTensorFlowsCodes) {
  const auto reader = OpenGolden("sliced");
  ASSERT_NE(reader, nullptr);
  for (const Json& read : Expected()["sliced"]["read_errors"]) {
    const auto dtype = static_cast<DataType>(read.value("dtype", 1));
    const auto value = reader->Restore(read["name"].get<std::string>(),
                                       read["shape_and_slice"].get<std::string>(), dtype);
    EXPECT_EQ(static_cast<int>(value.status().code()), read["error_code"].get<int>())
        << read.dump() << ": " << value.status();
  }
}

TEST(SlicedCheckpoint, RefusesSlicesThatOverlap) {
  const std::string prefix = StrCat(testing::TempDir(), "/overlap");
  const auto rows = [](int64_t begin, int64_t count) {
    return TensorSlice{{{begin, count}, {0, -1}}};
  };
  const auto write = [&](const std::vector<std::pair<int64_t, int64_t>>& parts) {
    auto writer = BundleWriter::Create(PosixFileSystem(), prefix);
    ASSERT_TRUE(writer.ok()) << writer.status();
    for (const auto& [begin, count] : parts) {
      ASSERT_TRUE((*writer)
                      ->AddSlice("w", Shape({6, 2}), rows(begin, count),
                                 Tensor::FromValues<float>(std::vector<float>(2 * count, 1.0f),
                                                           Shape({count, 2})))
                      .ok());
    }
    ASSERT_TRUE((*writer)->Finish().ok());
  };
  // As many elements as the whole has; the last two rows are nowhere.
  write({{0, 2}, {2, 2}, {1, 2}});
  const auto reader = BundleReader::Open(PosixFileSystem(), prefix);
  ASSERT_TRUE(reader.ok()) << reader.status();
  const Status status = (*reader)->Read("w").status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status;
  EXPECT_NE(status.ToString().find("0,2:0,2 and 1,2:0,2 of w"), std::string::npos) << status;

  write({{4, 2}, {0, 1}, {1, 3}});
  const auto whole = BundleReader::Open(PosixFileSystem(), prefix);
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_TRUE((*whole)->Read("w").ok());
}

// One call of the writer.
struct Call {
  std::string key;
  const pb::TensorSliceProto* slice;  // null: a whole tensor
  PartialShape whole;
  int64_t offset, size;
  Tensor value;
};

class RewrittenCheckpoint : public testing::TestWithParam<const char*> {};

TEST_P(RewrittenCheckpoint, HasTheBytesThatTensorFlowWrote) {
  const auto reader = OpenGolden(GetParam());
  ASSERT_NE(reader, nullptr);
  FileSystem* fs = PosixFileSystem();
  const std::string golden = StrCat(kGoldens, GetParam());
  std::string expected_data = *fs->ReadFile(BundleDataName(golden, 0, 1));
  bool complete = true;
  std::vector<Call> calls;
  for (const auto& [key, entry] : reader->entries()) {
    if (key[0] == '\0') continue;  // a slice: comes with its tensor
    if (!HasElementsHere(entry)) {
      // Zeros stand for it, on both sides.
      complete = false;
      std::fill_n(expected_data.begin() + entry.offset(), entry.size(), '\0');
      calls.push_back(
          {key, nullptr, {}, entry.offset(), entry.size(), Tensor(kUint8, Shape({entry.size()}))});
      std::fill_n(calls.back().value.data<uint8_t>(), entry.size(), uint8_t{0});
      continue;
    }
    if (entry.slices().empty()) {
      calls.push_back({key, nullptr, {}, entry.offset(), entry.size(), *reader->Read(key)});
    }
    for (const auto& slice : entry.slices()) {
      const std::string slice_key = EncodeSliceKey(key, TensorSlice::FromProto(slice));
      const pb::BundleEntryProto* data = reader->Find(slice_key);
      ASSERT_NE(data, nullptr);
      calls.push_back({key, &slice, ShapeFromProto(entry.shape()), data->offset(), data->size(),
                       *reader->Read(slice_key)});
    }
  }
  std::stable_sort(calls.begin(), calls.end(), [](const Call& a, const Call& b) {
    return std::pair(a.offset, a.size) < std::pair(b.offset, b.size);
  });
  const std::string prefix = StrCat(testing::TempDir(), "/rewritten_", GetParam());
  auto writer = BundleWriter::Create(fs, prefix);
  ASSERT_TRUE(writer.ok()) << writer.status();
  for (const Call& call : calls) {
    const Status status =
        call.slice == nullptr
            ? (*writer)->Add(call.key, call.value)
            : (*writer)->AddSlice(call.key, *call.whole.AsShape(),
                                  TensorSlice::FromProto(*call.slice), call.value);
    ASSERT_TRUE(status.ok()) << status;
  }
  ASSERT_TRUE((*writer)->Finish().ok());
  EXPECT_TRUE(*fs->ReadFile(BundleDataName(prefix, 0, 1)) == expected_data);
  if (complete) {
    EXPECT_TRUE(*fs->ReadFile(BundleIndexName(prefix)) == *fs->ReadFile(BundleIndexName(golden)));
  }
}

INSTANTIATE_TEST_SUITE_P(All, RewrittenCheckpoint,
                         testing::Values("small", "dtypes", "many_keys", "sliced", "variants"));

TEST(SliceKey, FollowsTheOrderedCode) {
  EXPECT_EQ(Hex(EncodeSliceKey("foo", {{{0, -1}, {1, 9}}})),
            "00666f6f000101"
            "02807f8189");
  EXPECT_EQ(Hex(EncodeSliceKey("", {{{63, 64}}})), "0000010101bfc040");
  EXPECT_EQ(Hex(EncodeSliceKey("", {{{-65, INT64_MAX}}})), "00000101013fbfffc07fffffffffffffff");
}

TEST(VariantsInCheckpoints, AreRefusedWhereverAByteDiffers) {
  FileSystem* fs = PosixFileSystem();
  const std::string golden = StrCat(kGoldens, "variants");
  const std::string prefix = StrCat(testing::TempDir(), "/damaged_variants");
  const std::string index = *fs->ReadFile(BundleIndexName(golden));
  std::ofstream(BundleIndexName(prefix), std::ios::binary) << index;
  const std::string data = *fs->ReadFile(BundleDataName(golden, 0, 1));
  for (std::size_t at = 0; at < data.size(); ++at) {
    std::string damaged = data;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    std::ofstream(BundleDataName(prefix, 0, 1), std::ios::binary) << damaged;
    const auto reader = BundleReader::Open(fs, prefix);
    ASSERT_TRUE(reader.ok()) << reader.status();
    int failed = 0;
    for (const char* key : {"list", "nested", "none", "numbers", "optional"}) {
      const Status status = (*reader)->Read(key).status();
      if (status.ok()) continue;
      EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status;
      ++failed;
    }
    EXPECT_EQ(failed, 1) << at;
  }
}

TEST(VariantsInCheckpoints, NeedAFormInFiles) {
  class Private : public RefCounted {};
  Tensor tensor(kVariant, Shape({1}));
  static_cast<RefPtr<RefCounted>*>(tensor.raw_data())[0] = RefPtr<RefCounted>(new Private);
  auto writer =
      BundleWriter::Create(PosixFileSystem(), StrCat(testing::TempDir(), "/private_variant"));
  ASSERT_TRUE(writer.ok()) << writer.status();
  EXPECT_EQ((*writer)->Add("x", tensor).code(), StatusCode::kUnimplemented);
}

TEST(BundleWriter, RefusesAKeyTwiceAndLeavesNothingBehind) {
  FileSystem* fs = PosixFileSystem();
  const std::string directory = StrCat(testing::TempDir(), "/refused");
  {
    auto writer = BundleWriter::Create(fs, StrCat(directory, "/ckpt"));
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE((*writer)->Add("a", Tensor::Scalar<float>(1)).ok());
    const Status status = (*writer)->Add("a", Tensor::Scalar<float>(2));
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.ToString().find("Adding duplicate key"), std::string::npos);
  }
  EXPECT_TRUE(fs->List(directory)->empty());
}

void WriteOne(const std::string& prefix, const std::string& key, float value) {
  auto writer = BundleWriter::Create(PosixFileSystem(), prefix);
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE((*writer)->Add(key, Tensor::Scalar<float>(value)).ok());
  ASSERT_TRUE((*writer)->Finish().ok());
}

// The footer of the index states a block of 2^63 - 1 bytes.
TEST(BundleReader, CallsAnIndexDamagedThatStatesAnAbsurdSize) {
  const std::string prefix = StrCat(::testing::TempDir(), "absurd_index");
  std::string footer("\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 12);
  footer.resize(40);
  footer += "\x57\xfb\x80\x8b\x24\x75\x47\xdb";
  std::ofstream(StrCat(prefix, ".index"), std::ios::binary) << std::string(100, 'x') << footer;
  const auto reader = BundleReader::Open(PosixFileSystem(), prefix);
  EXPECT_EQ(reader.status().code(), StatusCode::kDataLoss) << reader.status();
}

// An index of some bytes states 2^26 strings of a data file without any.
TEST(BundleReader, TakesNoMemoryForStringsThatAreNotThere) {
  const std::string prefix = StrCat(::testing::TempDir(), "absurd_strings");
  pb::BundleHeaderProto header;
  header.set_num_shards(1);
  header.mutable_version()->set_producer(1);
  pb::BundleEntryProto entry;
  entry.set_dtype(pb::DT_STRING);
  entry.mutable_shape()->add_dim()->set_size(int64_t{1} << 26);
  entry.set_size(int64_t{1} << 26);
  FileSystem* const fs = PosixFileSystem();
  ASSERT_TRUE(WriteTable(fs, BundleIndexName(prefix),
                         {{"", header.SerializeAsString()}, {"x", entry.SerializeAsString()}})
                  .ok());
  ASSERT_TRUE(fs->WriteFileAtomically(BundleDataName(prefix, 0, 1), "").ok());
  const auto reader = BundleReader::Open(fs, prefix);
  ASSERT_TRUE(reader.ok()) << reader.status();
  const int64_t before = HostAllocator()->stats().peak_bytes_in_use;
  const Status status = (*reader)->Read("x").status();
  EXPECT_TRUE(errors::IsDataLoss(status)) << status;
  EXPECT_LT(HostAllocator()->stats().peak_bytes_in_use - before, int64_t{64} << 20);
}

TEST(MergeBundles, UnitesShardsAndDeletesTheSourceIndexes) {
  FileSystem* fs = PosixFileSystem();
  const std::string base = StrCat(testing::TempDir(), "/merge/");
  WriteOne(base + "part/a", "x", 1);
  WriteOne(base + "part/b", "y", 2);
  ASSERT_TRUE(MergeBundles(fs, {base + "part/a", base + "part/b"}, base + "all", false).ok());
  EXPECT_TRUE(fs->List(base + "part")->empty());
  const auto reader = BundleReader::Open(fs, base + "all");
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ((*reader)->header().num_shards(), 2);
  EXPECT_EQ((*reader)->Read("x")->scalar<float>(), 1);
  EXPECT_EQ((*reader)->Read("y")->scalar<float>(), 2);
}

TEST(MergeBundles, RefusesTheSameTensorTwice) {
  const std::string base = StrCat(testing::TempDir(), "/merge_twice/");
  WriteOne(base + "a", "x", 1);
  WriteOne(base + "b", "x", 2);
  const Status status =
      MergeBundles(PosixFileSystem(), {base + "a", base + "b"}, base + "all", false);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.ToString().find("Duplicate tensor keyed by x"), std::string::npos);
}

TEST(MergeBundles, MaySkipMissingSources) {
  const std::string base = StrCat(testing::TempDir(), "/merge_missing/");
  WriteOne(base + "a", "x", 1);
  EXPECT_EQ(
      MergeBundles(PosixFileSystem(), {base + "a", base + "gone"}, base + "all", false).code(),
      StatusCode::kNotFound);
  EXPECT_TRUE(
      MergeBundles(PosixFileSystem(), {base + "a", base + "gone"}, base + "all", true).ok());
}

}  // namespace
}  // namespace millrace
