// SPDX-License-Identifier: Apache-2.0
#include "io/bmp.h"

#include "base/errors.h"
#include "base/status_macros.h"

namespace millrace {
namespace {

uint32_t Number(std::string_view file, std::size_t at, int bytes) {
  uint32_t value = 0;
  for (int i = 0; i < bytes; ++i) {
    value |= static_cast<uint32_t>(static_cast<uint8_t>(file[at + i])) << (8 * i);
  }
  return value;
}

}  // namespace

Status DecodeBmp(std::string_view file, int channels, const PixelRoom& room) {
  constexpr std::size_t kLeast = 32;
  if (file.size() < kLeast || !file.starts_with("BM")) {
    return errors::InvalidArgument("Incomplete bmp content: it has to begin with BM and a header ",
                                   "of ", kLeast, " bytes; the file has ", file.size());
  }
  const auto begin = static_cast<int32_t>(Number(file, 10, 4));
  const auto width = static_cast<int32_t>(Number(file, 18, 4));
  const auto rows = static_cast<int32_t>(Number(file, 22, 4));
  const uint32_t bits = Number(file, 28, 2);
  const int64_t height = rows < 0 ? -int64_t{rows} : rows;
  if (begin < 0) return errors::InvalidArgument("bmp content has a header of negative size");
  if (width <= 0) return errors::InvalidArgument("bmp width must be positive, got ", width);
  if (rows == 0) return errors::InvalidArgument("bmp height must not be 0");
  if (bits != 8 && bits != 24 && bits != 32) {
    return errors::InvalidArgument("Number of channels inherent in the image must be 1, 3 or 4, ",
                                   "was ", bits / 8, " (", bits, " bits for a pixel)");
  }
  if (channels != 0 && channels != 3 && channels != 4) {
    return errors::InvalidArgument("`channels` must be 0, 3 or 4 for BMP, but got ", channels);
  }
  const int found = static_cast<int>(bits / 8), wanted = channels == 0 ? found : channels;
  const int64_t stride = (int64_t{width} * found + 3) / 4 * 4;
  if (height > static_cast<int64_t>(kMostImageBytes) / (int64_t{width} * 4)) {
    return errors::InvalidArgument("A bmp image of ", height, "x", width, " is too large");
  }
  const int64_t needed = int64_t{begin} + height * stride;
  if (needed != static_cast<int64_t>(file.size())) {
    return errors::InvalidArgument("Input size should match that of the header, ", needed,
                                   " bytes, but it is ", file.size());
  }
  MR_ASSIGN_OR_RETURN(uint8_t* to, room({height, width, wanted}));
  for (int64_t y = 0; y < height; ++y) {
    const int64_t line = rows > 0 ? height - 1 - y : y;
    const auto* from = reinterpret_cast<const uint8_t*>(file.data()) + begin + line * stride;
    for (int64_t x = 0; x < width; ++x, from += found, to += wanted) {
      to[0] = from[found == 1 ? 0 : 2];
      if (wanted == 1) continue;
      to[1] = from[found == 1 ? 0 : 1];
      to[2] = from[0];
      if (wanted == 4) to[3] = found == 4 ? from[3] : 0xff;
    }
  }
  return OkStatus();
}

}  // namespace millrace
