// SPDX-License-Identifier: Apache-2.0
#include "io/input_stream.h"

#include <cstdlib>
#include <initializer_list>
#include <string>
#include <vector>

#include "base/errors.h"
#include "gtest/gtest.h"
#include "io/crc32c.h"

namespace millrace {
namespace {

std::unique_ptr<InputStream> Open(const std::string& path, std::string_view compression,
                                  std::size_t buffer = 4096) {
  auto stream = OpenInputStream(PosixFileSystem(), path, compression, buffer);
  EXPECT_TRUE(stream.ok()) << stream.status();
  return *std::move(stream);
}

struct Records {
  std::vector<std::string> read;
  Status end;
};

Records ReadAll(const std::string& name, std::string_view compression = "") {
  const std::string path = "tests/goldens/records/" + name;
  RecordReader reader(Open(path, compression), path);
  Records records;
  std::string record;
  for (;;) {
    records.end = reader.ReadRecord(&record);
    if (!records.end.ok()) return records;
    records.read.push_back(record);
  }
}

std::string Written(const std::string& name, std::string_view content) {
  const std::string path = JoinPath(std::getenv("TEST_TMPDIR"), name);
  const Status status = PosixFileSystem()->WriteFileAtomically(path, content);
  EXPECT_TRUE(status.ok()) << status;
  return path;
}

TEST(RecordReaderTest, ReadsWhatTensorFlowWrote) {
  const Records plain = ReadAll("plain.tfrecord");
  EXPECT_EQ(plain.end.code(), StatusCode::kOutOfRange);
  ASSERT_EQ(plain.read.size(), 5u);
  EXPECT_EQ(plain.read[0], "");
  EXPECT_EQ(plain.read[1], "hello");
  EXPECT_EQ(plain.read[2].size(), 256u);
  EXPECT_EQ(Crc32c(plain.read[3]), 0x5626e691u);
  EXPECT_EQ(Crc32c(plain.read[4]), 0xdd994561u);
  EXPECT_EQ(ReadAll("zlib.tfrecord", "ZLIB").read, plain.read);
  EXPECT_EQ(ReadAll("gzip.tfrecord", "GZIP").read, plain.read);
}

void ExpectInText(const Status& status, std::initializer_list<std::string> parts) {
  for (const std::string& part : parts) {
    EXPECT_NE(std::string(Message(status)).find(part), std::string::npos) << part << ": " << status;
  }
}

TEST(RecordReaderTest, SaysWhichRecordIsDamagedAndWhatWasExpected) {
  for (const std::string name :
       {"bad_data_crc.tfrecord", "bad_length_crc.tfrecord", "truncated_data.tfrecord"}) {
    const Records records = ReadAll(name);
    ASSERT_EQ(records.read.size(), 1u) << name;
    EXPECT_EQ(records.end.code(), StatusCode::kDataLoss) << name;
    const std::size_t at = 8 + 4 + records.read[0].size() + 4;  // behind the first record
    ExpectInText(records.end, {"record at " + std::to_string(at) + " in ", name,
                               name.starts_with("bad") ? "the stored checksum is " : "expected"});
  }
}

TEST(RecordReaderTest, EndsWhereAHeaderIsCutOff) {
  const Records records = ReadAll("truncated_header.tfrecord");
  EXPECT_EQ(records.read.size(), 1u);
  EXPECT_EQ(records.end.code(), StatusCode::kOutOfRange);
}

TEST(RecordReaderTest, DoesNotTakeMemoryForALengthThatIsALie) {
  std::string header("\0\0\0\0\0\x10\0\0", 8);
  const uint32_t crc = MaskCrc(Crc32c(header));
  header.append(reinterpret_cast<const char*>(&crc), 4);
  const std::string path = Written("lie", header + "some bytes");
  RecordReader reader(Open(path, ""), path);
  std::string record;
  EXPECT_EQ(reader.ReadRecord(&record).code(), StatusCode::kDataLoss);
}

TEST(InputStreamTest, ReportsPackedDataThatIsDamagedOrCutOff) {
  const Status plain = ReadAll("plain.tfrecord", "GZIP").end;
  EXPECT_EQ(plain.code(), StatusCode::kDataLoss);
  ExpectInText(plain, {"plain.tfrecord", " at ", "expected GZIP"});
  std::string packed = *PosixFileSystem()->ReadFile("tests/goldens/records/gzip.tfrecord");
  packed.resize(packed.size() / 2);
  const std::string path = Written("half.gz", packed);
  RecordReader reader(Open(path, "GZIP"), path);
  std::string record;
  Status end;
  while ((end = reader.ReadRecord(&record)).ok()) {
  }
  EXPECT_EQ(end.code(), StatusCode::kDataLoss) << end;
  ExpectInText(end, {"half.gz", "at " + std::to_string(packed.size()), "expected"});
}

TEST(BufferedInputTest, ReadsLinesAcrossItsBuffer) {
  const std::string path = Written("lines", "one\r\n\nthe third line\nlast");
  BufferedInput input(Open(path, ""), 3);
  std::string line;
  for (const char* want : {"one", "", "the third line", "last"}) {
    ASSERT_TRUE(input.ReadLine(&line).ok());
    EXPECT_EQ(line, want);
  }
  EXPECT_EQ(input.ReadLine(&line).code(), StatusCode::kOutOfRange);
}

TEST(BufferedInputTest, SkipsAndCounts) {
  const std::string path = Written("bytes", "0123456789");
  BufferedInput input(Open(path, ""), 4);
  EXPECT_TRUE(*input.Skip(6));
  std::string text;
  ASSERT_TRUE(input.ReadUpTo(100, &text).ok());
  EXPECT_EQ(text, "6789");
  EXPECT_EQ(input.position(), 10u);
  EXPECT_FALSE(*input.Skip(1));
}

TEST(InputStreamTest, RefusesWhatItCannotOpen) {
  EXPECT_EQ(OpenInputStream(PosixFileSystem(), "/no/such/file", "").status().code(),
            StatusCode::kNotFound);
  EXPECT_EQ(OpenInputStream(PosixFileSystem(), "/dev/null", "LZ4").status().code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace millrace
