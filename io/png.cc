// SPDX-License-Identifier: Apache-2.0
#include "io/png.h"

#include <zlib.h>

#include <limits>
#include <string_view>

#include "base/errors.h"

namespace millrace {
namespace {

void AppendBigEndian(uint32_t value, std::string* out) {
  for (int shift = 24; shift >= 0; shift -= 8) *out += static_cast<char>(value >> shift & 0xff);
}

// A chunk of a PNG file: length, kind, content, checksum.
void AppendChunk(std::string_view kind, std::string_view content, std::string* out) {
  AppendBigEndian(static_cast<uint32_t>(content.size()), out);
  const std::size_t begin = out->size();
  out->append(kind);
  out->append(content);
  const auto* bytes = reinterpret_cast<const Bytef*>(out->data() + begin);
  AppendBigEndian(static_cast<uint32_t>(crc32(0, bytes, static_cast<uInt>(out->size() - begin))),
                  out);
}

}  // namespace

StatusOr<std::string> EncodePng(std::span<const uint8_t> pixels, int64_t height, int64_t width,
                                int channels) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (height <= 0 || width <= 0 || channels < 1 || channels > 4 || height > kMost ||
      width > kMost || height > kMost / width / channels ||
      height * width * channels != static_cast<int64_t>(pixels.size())) {
    return errors::InvalidArgument("an image of ", height, "x", width, " with ", channels,
                                   " channels in ", pixels.size(), " bytes cannot be packed");
  }
  std::string rows;
  const int64_t stride = width * channels;
  rows.reserve(pixels.size() + height);
  for (int64_t y = 0; y < height; ++y) {
    rows += '\0';  // no filter
    rows.append(reinterpret_cast<const char*>(pixels.data()) + y * stride, stride);
  }
  uLongf size = compressBound(rows.size());
  std::string packed(size, '\0');
  if (compress2(reinterpret_cast<Bytef*>(packed.data()), &size,
                reinterpret_cast<const Bytef*>(rows.data()), rows.size(),
                Z_DEFAULT_COMPRESSION) != Z_OK) {
    return errors::ResourceExhausted("an image of ", height, "x", width, " cannot be packed");
  }
  packed.resize(size);
  static constexpr char kColour[] = {0, 0, 4, 2, 6};
  std::string header;
  AppendBigEndian(static_cast<uint32_t>(width), &header);
  AppendBigEndian(static_cast<uint32_t>(height), &header);
  header += '\x08';  // bits
  header += kColour[channels];
  header.append(3, '\0');
  std::string png = "\x89PNG\r\n\x1a\n";
  AppendChunk("IHDR", header, &png);
  AppendChunk("IDAT", packed, &png);
  AppendChunk("IEND", "", &png);
  return png;
}

}  // namespace millrace
