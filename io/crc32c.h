// SPDX-License-Identifier: Apache-2.0
// CRC-32C (Castagnoli), and the masked form in which files store it.
#ifndef IO_CRC32C_H_
#define IO_CRC32C_H_

#include <cstdint>
#include <string_view>

namespace millrace {

// The checksum of some bytes followed by `bytes`, given the checksum of the former.
uint32_t ExtendCrc32c(uint32_t crc, std::string_view bytes);
inline uint32_t Crc32c(std::string_view bytes) { return ExtendCrc32c(0, bytes); }

// A checksum stored beside its data is rotated and shifted, so that a checksum over data that
// holds checksums stays good.
inline uint32_t MaskCrc(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8u; }
inline uint32_t UnmaskCrc(uint32_t masked) {
  const uint32_t rotated = masked - 0xa282ead8u;
  return (rotated >> 17) | (rotated << 15);
}

}  // namespace millrace

#endif  // IO_CRC32C_H_
