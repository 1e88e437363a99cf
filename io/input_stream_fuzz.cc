// SPDX-License-Identifier: Apache-2.0
// The first byte says how the file is packed and how large a buffer is; the rest is the file. It
// is read as records and as lines: both give what is there, or an error.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/strings.h"
#include "io/filesystem.h"
#include "io/input_stream.h"

namespace millrace {
namespace {

constexpr const char* kPacked[] = {"", "ZLIB", "GZIP"};
// Packed bytes may stand for a thousand times as many: enough of them is enough.
constexpr std::size_t kMostBytes = 1 << 22;

const std::string& Path() {
  static const auto* const path = [] {
    const char* base = std::getenv("TEST_TMPDIR");
    return new std::string(
        StrCat(base != nullptr ? base : "/tmp", "/input_fuzz_", static_cast<int64_t>(getpid())));
  }();
  return *path;
}

std::string FileBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  std::vector<std::string> seeds;
  const std::string folder = "tests/goldens/records/";
  for (const char* name : {"plain", "bad_data_crc", "truncated_data", "truncated_header"}) {
    seeds.push_back(std::string(1, 0) + FileBytes(StrCat(folder, name, ".tfrecord")));
  }
  seeds.push_back(std::string(1, 1) + FileBytes(folder + "zlib.tfrecord"));
  seeds.push_back(std::string(1, 2) + FileBytes(folder + "gzip.tfrecord"));
  for (const std::string& seed : seeds) MR_CHECK(seed.size() > 8);
  return seeds;
}

}  // namespace millrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  using namespace millrace;  // NOLINT
  if (size == 0) return 0;
  const char* const packed = kPacked[data[0] % 3];
  const std::size_t buffer = 1 + data[0] / 3 * 7;
  std::ofstream(Path(), std::ios::binary)
      << std::string_view(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto open = [&] {
    auto stream = OpenInputStream(PosixFileSystem(), Path(), packed, buffer);
    MR_CHECK(stream.ok());
    return *std::move(stream);
  };
  RecordReader records(open(), Path());
  std::string text;
  uint64_t position = 0;
  Status end;
  while (position < kMostBytes && (end = records.ReadRecord(&text)).ok()) {
    MR_CHECK(records.position() >= position + 16 + text.size());
    position = records.position();
  }
  if (position < kMostBytes) {
    MR_CHECK(end.code() == StatusCode::kOutOfRange || end.code() == StatusCode::kDataLoss);
  }
  BufferedInput lines(open(), buffer);
  while (lines.position() < kMostBytes && lines.ReadLine(&text).ok()) {
  }
  return 0;
}
