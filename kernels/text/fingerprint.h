// SPDX-License-Identifier: Apache-2.0
// Hashes whose values programs keep: buckets of vocabularies.
#ifndef KERNELS_TEXT_FINGERPRINT_H_
#define KERNELS_TEXT_FINGERPRINT_H_

#include <cstdint>
#include <string_view>

namespace millrace {

// FarmHash's Fingerprint64.
uint64_t Fingerprint64(std::string_view text);
// SipHash-2-4 under a key of two words.
uint64_t SipHash(uint64_t key0, uint64_t key1, std::string_view text);

}  // namespace millrace

#endif  // KERNELS_TEXT_FINGERPRINT_H_
