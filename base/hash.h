// SPDX-License-Identifier: Apache-2.0
// Hashes whose values are visible on the wire.
#ifndef BASE_HASH_H_
#define BASE_HASH_H_

#include <cstdint>
#include <string_view>

namespace millrace {

// MurmurHash64A with TensorFlow's default seed 0xDECAFCAFFE: frame ids in rendezvous keys
// and StringToHashBucketFast-like ops depend on it.
uint64_t Hash64(std::string_view data, uint64_t seed = 0xDECAFCAFFEull);

inline uint64_t Hash64Combine(uint64_t a, uint64_t b) {
  return a ^ (b + 0x9e3779b97f4a7800ull + (a << 10) + (a >> 4));
}

}  // namespace millrace

#endif  // BASE_HASH_H_
