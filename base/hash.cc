// SPDX-License-Identifier: Apache-2.0
// MurmurHash64A, after Austin Appleby's public-domain description.
#include "base/hash.h"

#include <bit>
#include <cstring>

namespace millrace {
namespace {

constexpr uint64_t kMultiplier = 0xc6a4a7935bd1e995ull;
constexpr int kShift = 47;

uint64_t LoadLittleEndian(const char* data, std::size_t count) {
  static_assert(std::endian::native == std::endian::little);
  uint64_t word = 0;
  std::memcpy(&word, data, count);
  return word;
}

}  // namespace

uint64_t Hash64(std::string_view data, uint64_t seed) {
  uint64_t hash = seed ^ (data.size() * kMultiplier);
  while (data.size() >= 8) {
    uint64_t word = LoadLittleEndian(data.data(), 8);
    data.remove_prefix(8);
    word *= kMultiplier;
    word ^= word >> kShift;
    word *= kMultiplier;
    hash = (hash ^ word) * kMultiplier;
  }
  if (!data.empty()) {
    hash = (hash ^ LoadLittleEndian(data.data(), data.size())) * kMultiplier;
  }
  hash ^= hash >> kShift;
  hash *= kMultiplier;
  hash ^= hash >> kShift;
  return hash;
}

}  // namespace millrace
