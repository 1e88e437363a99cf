// SPDX-License-Identifier: Apache-2.0
// The first byte says how the rest becomes a checkpoint: as the bytes of an index file, or as
// the entries of one that is well formed. Reading it gives tensors or errors.
#include <unistd.h>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/strings.h"
#include "io/bundle_index.h"
#include "io/filesystem.h"
#include "io/tensor_bundle.h"

namespace millrace {
namespace {

std::string FileBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

// A folder of this process; of the machine, since a bundle opens its files by path.
const std::string& Prefix() {
  static const auto* const prefix = [] {
    const char* base = std::getenv("TEST_TMPDIR");
    const std::string folder =
        StrCat(base != nullptr ? base : "/tmp", "/bundle_fuzz_", static_cast<int64_t>(getpid()));
    std::filesystem::create_directories(folder);
    return new std::string(folder + "/b");
  }();
  return *prefix;
}

// Pairs of texts with a length of one byte each.
std::map<std::string, std::string> Pairs(std::string_view bytes) {
  std::map<std::string, std::string> pairs;
  const auto take = [&bytes] {
    if (bytes.empty()) return std::string();
    const std::size_t n = std::min<std::size_t>(static_cast<uint8_t>(bytes[0]), bytes.size() - 1);
    const std::string text(bytes.substr(1, n));
    bytes.remove_prefix(1 + n);
    return text;
  };
  while (!bytes.empty()) {
    std::string key = take();
    pairs[std::move(key)] = take();
  }
  return pairs;
}

void Append(std::string* out, const std::string& text) {
  MR_CHECK(text.size() < 256);
  out->push_back(static_cast<char>(text.size()));
  *out += text;
}

void ReadEverything() {
  const auto reader = BundleReader::Open(PosixFileSystem(), Prefix());
  if (!reader.ok()) return;
  for (const BundleReader::Entry& entry : (*reader)->entries()) {
    // The shape of an entry that is put together from parts may be any: it is not its bytes.
    int64_t elements = 1;
    bool large = false;
    for (const auto& dim : entry.proto.shape().dim()) {
      large |= __builtin_mul_overflow(elements, std::max<int64_t>(dim.size(), 1), &elements) ||
               elements > (1 << 20);
    }
    DataType dtype;
    Shape shape;
    (void)(*reader)->Lookup(entry.key, &dtype, &shape);
    if (large && entry.proto.slices_size() > 0) continue;
    const auto tensor = (*reader)->Read(entry.key);
    if (tensor.ok()) (void)(*reader)->Restore(entry.key, "", tensor->dtype());
    (void)(*reader)->Restore(entry.key, "4 4 0,2:-", kFloat);
  }
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  std::vector<std::string> seeds;
  for (const char* name : {"small", "sliced", "dtypes"}) {
    const std::string path = StrCat("tests/goldens/checkpoints/", name, ".index");
    seeds.push_back(std::string(1, '\0') + FileBytes(path));
    const auto table = ReadTable(PosixFileSystem(), path);
    MR_CHECK(table.ok());
    std::string pairs(1, '\1');
    for (const auto& [key, value] : *table) {
      if (key.size() > 255 || value.size() > 255) continue;
      Append(&pairs, key);
      Append(&pairs, value);
    }
    seeds.push_back(std::move(pairs));
  }
  return seeds;
}

}  // namespace millrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  using namespace millrace;  // NOLINT
  static const bool has_data = [] {
    std::ofstream(BundleDataName(Prefix(), 0, 1), std::ios::binary) << std::string(4096, '\x05');
    return true;
  }();
  if (size == 0 || !has_data) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string index = BundleIndexName(Prefix());
  if (data[0] % 2 == 0) {
    std::ofstream(index, std::ios::binary) << rest;
  } else if (!WriteTable(PosixFileSystem(), index, Pairs(rest)).ok()) {
    return 0;
  }
  ReadEverything();
  return 0;
}
