// SPDX-License-Identifier: Apache-2.0
// Where a table is damaged: LevelDB tells neither the place nor what was expected there.
#include "io/bundle_index.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/strings.h"
#include "io/crc32c.h"

namespace millrace {
namespace {

// A table is blocks, each followed by a byte for its compression and a checksum of both, and a
// footer: where two of the blocks are (that of filters, and the index, which names all others),
// zeros, and the magic number.
constexpr std::size_t kTrailer = 5, kHandles = 40, kFooter = 48;
constexpr char kMagic[] = "\x57\xfb\x80\x8b\x24\x75\x47\xdb";

struct Handle {
  uint64_t offset = 0, size = 0;
};

bool TakeVarint(std::string_view* bytes, uint64_t* value) {
  *value = 0;
  for (int shift = 0; shift < 64 && !bytes->empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes->front());
    bytes->remove_prefix(1);
    *value |= uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

bool TakeHandle(std::string_view* bytes, Handle* handle) {
  return TakeVarint(bytes, &handle->offset) && TakeVarint(bytes, &handle->size);
}

void AppendVarint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}

uint32_t FixedAt(std::string_view bytes, std::size_t at) {
  uint32_t value = 0;
  for (int i = 3; i >= 0; --i) {
    value = value << 8 | static_cast<unsigned char>(bytes[at + static_cast<std::size_t>(i)]);
  }
  return value;
}

// Bytes that the handles leave are zeros, and each number is written in the shortest way: then
// there is one form only, and any other is damage.
std::string FooterDamage(std::string_view file, Handle* filters, Handle* index) {
  if (file.size() < kFooter) {
    return StrCat("file is too short to be an sstable: it ends at byte ", file.size(),
                  "; expected a footer of ", kFooter, " bytes");
  }
  const std::size_t at = file.size() - kFooter;
  if (file.substr(at + kHandles) != std::string_view(kMagic, kFooter - kHandles)) {
    return StrCat("not an sstable (bad magic number): expected 57fb808b247547db at byte ",
                  at + kHandles, ", where the file's last 8 bytes are");
  }
  std::string_view handles = file.substr(at, kHandles);
  std::string expected;
  if (!TakeHandle(&handles, filters) || !TakeHandle(&handles, index)) {
    return StrCat("bad block handle: expected the places of two blocks at byte ", at);
  }
  for (const Handle* handle : {filters, index}) {
    AppendVarint(handle->offset, &expected);
    AppendVarint(handle->size, &expected);
  }
  expected.resize(kHandles, '\0');
  const std::string_view got = file.substr(at, kHandles);
  for (std::size_t i = 0; i < kHandles; ++i) {
    if (got[i] == expected[i]) continue;
    return StrCat("bad block handle: byte ", at + i, " is ", static_cast<unsigned char>(got[i]),
                  "; expected ", static_cast<unsigned char>(expected[i]),
                  " behind the places of two blocks");
  }
  return "";
}

// The bytes of a block, and what is wrong with them.
std::string BlockDamage(std::string_view file, const Handle& handle, std::string_view name,
                        std::string_view* block) {
  const uint64_t end = file.size() - kFooter;
  if (handle.offset > end || handle.size > end - handle.offset ||
      end - handle.offset - handle.size < kTrailer) {
    return StrCat("truncated block read: ", name, " should be ", handle.size, " bytes at byte ",
                  handle.offset, "; expected it and its checksum before the footer at byte ", end);
  }
  *block = file.substr(handle.offset, handle.size + kTrailer);
  const std::size_t stored_at = handle.size + 1;
  const uint32_t stored = FixedAt(*block, stored_at);
  const uint32_t crc = MaskCrc(Crc32c(block->substr(0, stored_at)));
  if (stored == crc) return "";
  return StrCat("block checksum mismatch: ", name, ", bytes ", handle.offset, " to ",
                handle.offset + stored_at, ", has the checksum ", crc, "; expected ", stored,
                ", as is stored at byte ", handle.offset + stored_at);
}

// Calls `visit` with each value of a block that is not compressed: false if it is no block. Each
// entry has how much of its key is that of the one before, how much is not, and how long the value
// is; behind all of them are places of some, and how many places these are.
template <typename Visit>
bool ForEachValue(std::string_view block, const Visit& visit) {
  if (block.size() < 4) return false;
  const uint64_t places = FixedAt(block, block.size() - 4);
  if (places > (block.size() - 4) / 4) return false;
  std::string_view left = block.substr(0, block.size() - 4 - places * 4);
  while (!left.empty()) {
    uint64_t shared = 0, own = 0, length = 0;
    if (!TakeVarint(&left, &shared) || !TakeVarint(&left, &own) || !TakeVarint(&left, &length) ||
        own > left.size() || length > left.size() - own) {
      return false;
    }
    if (!visit(left.substr(own, length))) return false;
    left.remove_prefix(own + length);
  }
  return true;
}

}  // namespace

std::string DescribeTableDamage(std::string_view file) {
  Handle filters, index;
  if (std::string wrong = FooterDamage(file, &filters, &index); !wrong.empty()) return wrong;
  std::string_view block;
  std::string wrong = BlockDamage(file, filters, "the block of filters", &block);
  if (wrong.empty()) wrong = BlockDamage(file, index, "the index block", &block);
  if (!wrong.empty()) return wrong;
  const bool is_compressed = block[index.size] != 0;
  if (is_compressed) return "";
  const bool is_index = ForEachValue(block.substr(0, index.size), [&](std::string_view value) {
    Handle handle;
    if (!TakeHandle(&value, &handle)) return false;
    if (wrong.empty()) wrong = BlockDamage(file, handle, "a block of entries", &block);
    return true;
  });
  if (!wrong.empty() || is_index) return wrong;
  return StrCat("bad entry in block: expected places of blocks in the index block, ", index.size,
                " bytes at byte ", index.offset);
}

}  // namespace millrace
