// SPDX-License-Identifier: Apache-2.0
#include "io/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <cstddef>

namespace millrace {

uint32_t ExtendCrc32c(uint32_t crc, std::string_view bytes) {
  constexpr std::size_t kMax = std::size_t{1} << 30;  // the library takes an int
  while (!bytes.empty()) {
    const std::size_t n = std::min(bytes.size(), kMax);
    // It does not write, although it takes a pointer to non-const.
    auto* data = reinterpret_cast<unsigned char*>(const_cast<char*>(bytes.data()));
    crc = ~crc32_iscsi(data, static_cast<int>(n), ~crc);
    bytes.remove_prefix(n);
  }
  return crc;
}

}  // namespace millrace
