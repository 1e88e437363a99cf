// SPDX-License-Identifier: Apache-2.0
// PNG files of 8 or 16 bits, by libpng: what TensorFlow's EncodePng writes.
#ifndef IO_PNG_ENCODER_H_
#define IO_PNG_ENCODER_H_

#include <cstdint>
#include <string>

#include "millrace/status.h"

namespace millrace {

// Pixels to pack, in rows from the top, channels innermost, 1 to 4 of them (grey, grey and alpha,
// RGB, RGBA). Samples of 16 bits are in the byte order of the machine.
struct PngSource {
  const void* pixels = nullptr;
  int64_t height = 0;
  int64_t width = 0;
  int channels = 1;
  int bits = 8;
};

// `compression`: 0 to 9, or -1 for zlib's default. InvalidArgument for what libpng refuses, such as
// a side of 0.
StatusOr<std::string> PackPng(const PngSource& image, int compression);

}  // namespace millrace

#endif  // IO_PNG_ENCODER_H_
