// SPDX-License-Identifier: Apache-2.0
// Pixels of PNG files.
#ifndef IO_PNG_DECODER_H_
#define IO_PNG_DECODER_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "millrace/status.h"

namespace millrace {

// Rows from the top, channels innermost. Samples of 16 bits are in the byte order of the machine.
struct PngPixels {
  int64_t height = 0;
  int64_t width = 0;
  int channels = 0;
  std::vector<uint8_t> bytes;
};

// `channels`: 1 to 4 (grey, grey and alpha, RGB, RGBA), or 0 for those of the file, where a palette
// counts as RGB or RGBA. `bits` of a sample: 8 or 16. InvalidArgument for other values, for bytes
// that are no whole PNG file, and for sizes that the bytes cannot hold or above 1 GiB of pixels.
StatusOr<PngPixels> DecodePng(std::string_view file, int channels, int bits);

}  // namespace millrace

#endif  // IO_PNG_DECODER_H_
