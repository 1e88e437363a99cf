// SPDX-License-Identifier: Apache-2.0
// Format: PKWARE, "APPNOTE.TXT - .ZIP File Format Specification", with Zip64.
#include <zlib.h>

#include <algorithm>
#include <cstdint>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "data/pipeline/array_bytes.h"

namespace millrace {
namespace {

constexpr uint32_t kEndOfDirectory = 0x06054b50, kDirectoryEntry = 0x02014b50,
                   kLocalHeader = 0x04034b50, kZip64End = 0x06064b50, kZip64Locator = 0x07064b50;
constexpr std::size_t kEndBytes = 22, kEntryBytes = 46, kLocalBytes = 30;
// Deflate does not pack more than about a thousand to one: a larger claim is a lie.
constexpr uint64_t kMostInflation = 1100;

// Little-endian numbers at offsets; 0 beyond the end.
class Bytes {
 public:
  explicit Bytes(std::string_view bytes) : bytes_(bytes) {}
  std::size_t size() const { return bytes_.size(); }
  uint64_t Number(uint64_t at, std::size_t width) const {
    if (at > bytes_.size() || bytes_.size() - at < width) return 0;
    uint64_t value = 0;
    for (std::size_t i = width; i-- > 0;) {
      value = (value << 8) | static_cast<uint8_t>(bytes_[at + i]);
    }
    return value;
  }
  bool Has(uint64_t at, uint64_t n) const { return at <= bytes_.size() && bytes_.size() - at >= n; }
  std::string_view Part(uint64_t at, uint64_t n) const { return bytes_.substr(at, n); }

 private:
  const std::string_view bytes_;
};

struct Entry {
  std::string name;
  uint64_t method = 0, flags = 0, crc = 0, packed = 0, size = 0, offset = 0;
  uint64_t next = 0;  // where the following entry begins
};

// What does not fit in 32 bits stands in an extra field, in this order.
void ReadZip64(const Bytes& zip, uint64_t extra, uint64_t length, Entry* entry) {
  for (uint64_t at = extra; at + 4 <= extra + length;) {
    const uint64_t id = zip.Number(at, 2), size = zip.Number(at + 2, 2);
    if (id == 1) {
      uint64_t value = at + 4;
      for (uint64_t* field : {&entry->size, &entry->packed, &entry->offset}) {
        if (*field != UINT32_MAX || value + 8 > at + 4 + size) continue;
        *field = zip.Number(value, 8);
        value += 8;
      }
    }
    at += 4 + size;
  }
}

StatusOr<Entry> ReadEntry(const Bytes& zip, uint64_t at, std::string_view name) {
  if (!zip.Has(at, kEntryBytes) || zip.Number(at, 4) != kDirectoryEntry) {
    return errors::DataLoss(name, " is damaged: its directory is not where it should be");
  }
  Entry entry;
  entry.flags = zip.Number(at + 8, 2);
  entry.method = zip.Number(at + 10, 2);
  entry.crc = zip.Number(at + 16, 4);
  entry.packed = zip.Number(at + 20, 4);
  entry.size = zip.Number(at + 24, 4);
  entry.offset = zip.Number(at + 42, 4);
  const uint64_t name_bytes = zip.Number(at + 28, 2), extra = zip.Number(at + 30, 2),
                 comment = zip.Number(at + 32, 2);
  entry.next = at + kEntryBytes + name_bytes + extra + comment;
  if (!zip.Has(at, entry.next - at)) {
    return errors::DataLoss(name, " is damaged: its directory is cut off");
  }
  entry.name = std::string(zip.Part(at + kEntryBytes, name_bytes));
  ReadZip64(zip, at + kEntryBytes + name_bytes, extra, &entry);
  return entry;
}

StatusOr<std::string> Inflate(std::string_view packed, uint64_t size, std::string_view name) {
  if (size / kMostInflation > packed.size()) {
    return errors::DataLoss(name, " is damaged: it claims to hold ", size, " bytes");
  }
  std::string content(size, '\0');
  z_stream stream = {};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) return errors::ResourceExhausted("zlib");
  std::size_t read = 0, written = 0;
  int code = Z_OK;
  // One more byte to write to than there should be: whoever fills it is too long.
  char beyond = 0;
  while (code == Z_OK) {
    constexpr std::size_t kMost = 1 << 30;
    const bool full = written == size;
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data() + read));
    stream.avail_in = static_cast<uInt>(std::min(packed.size() - read, kMost));
    stream.next_out = reinterpret_cast<Bytef*>(full ? &beyond : content.data() + written);
    stream.avail_out = static_cast<uInt>(full ? 1 : std::min<std::size_t>(size - written, kMost));
    const std::size_t in = stream.avail_in, out = stream.avail_out;
    code = inflate(&stream, Z_NO_FLUSH);
    read += in - stream.avail_in;
    if (full && stream.avail_out == 0) break;
    if (!full) written += out - stream.avail_out;
  }
  inflateEnd(&stream);
  if (code != Z_STREAM_END || written != size) {
    return errors::DataLoss(name, " is damaged: it cannot be unpacked to its ", size, " bytes");
  }
  return content;
}

StatusOr<std::string> ReadContent(const Bytes& zip, const Entry& entry, std::string_view name) {
  if ((entry.flags & 1) != 0) return errors::Unimplemented(name, " is encrypted");
  if (!zip.Has(entry.offset, kLocalBytes) || zip.Number(entry.offset, 4) != kLocalHeader) {
    return errors::DataLoss(name, " is damaged: it is not where the archive's directory says");
  }
  const uint64_t start = entry.offset + kLocalBytes + zip.Number(entry.offset + 26, 2) +
                         zip.Number(entry.offset + 28, 2);
  if (!zip.Has(start, entry.packed)) return errors::DataLoss(name, " is cut off");
  const std::string_view packed = zip.Part(start, entry.packed);
  std::string content;
  if (entry.method == 0) {
    if (entry.packed != entry.size) return errors::DataLoss(name, " is damaged: two sizes");
    content = std::string(packed);
  } else if (entry.method == 8) {
    MR_ASSIGN_OR_RETURN(content, Inflate(packed, entry.size, name));
  } else {
    return errors::Unimplemented(name, " is packed by method ", entry.method,
                                 "; known are 0 (not packed) and 8 (deflate)");
  }
  const uint64_t crc = crc32_z(0, reinterpret_cast<const Bytef*>(content.data()), content.size());
  if (crc != entry.crc) return errors::DataLoss(name, " is damaged: its checksum is wrong");
  return content;
}

// Where the directory is, and how many entries it has.
StatusOr<std::pair<uint64_t, uint64_t>> FindDirectory(const Bytes& zip, std::string_view name) {
  const uint64_t size = zip.size();
  for (uint64_t back = kEndBytes; back <= std::min<uint64_t>(size, kEndBytes + 0xffff); ++back) {
    const uint64_t end = size - back;
    if (zip.Number(end, 4) != kEndOfDirectory) continue;
    uint64_t count = zip.Number(end + 10, 2), offset = zip.Number(end + 16, 4);
    if (end >= 20 && zip.Number(end - 20, 4) == kZip64Locator) {
      const uint64_t end64 = zip.Number(end - 20 + 8, 8);
      if (zip.Number(end64, 4) == kZip64End) {
        count = zip.Number(end64 + 32, 8);
        offset = zip.Number(end64 + 48, 8);
      }
    }
    return std::make_pair(offset, count);
  }
  return errors::DataLoss(name, " is not a zip archive, or its end is missing");
}

}  // namespace

StatusOr<std::map<std::string, std::string>> ParseZip(std::string_view bytes,
                                                      std::string_view name) {
  const Bytes zip(bytes);
  MR_ASSIGN_OR_RETURN(const auto directory, FindDirectory(zip, name));
  auto [at, count] = directory;
  std::map<std::string, std::string> files;
  for (uint64_t i = 0; i < count; ++i) {
    MR_ASSIGN_OR_RETURN(const Entry entry, ReadEntry(zip, at, name));
    at = entry.next;
    if (entry.name.ends_with("/")) continue;
    MR_ASSIGN_OR_RETURN(files[entry.name],
                        ReadContent(zip, entry, StrCat(name, "(", entry.name, ")")));
  }
  return files;
}

}  // namespace millrace
