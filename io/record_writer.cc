// SPDX-License-Identifier: Apache-2.0
#include "io/record_writer.h"

#include <cstdint>

#include "io/crc32c.h"

namespace millrace {
namespace {

void AppendLittleEndian(uint64_t value, int bytes, std::string* out) {
  for (int i = 0; i < bytes; ++i) *out += static_cast<char>(value >> (8 * i) & 0xff);
}

}  // namespace

void AppendRecord(std::string_view record, std::string* out) {
  const std::size_t begin = out->size();
  AppendLittleEndian(record.size(), 8, out);
  AppendLittleEndian(MaskCrc(Crc32c({out->data() + begin, 8})), 4, out);
  out->append(record);
  AppendLittleEndian(MaskCrc(Crc32c(record)), 4, out);
}

}  // namespace millrace
