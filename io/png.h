// SPDX-License-Identifier: Apache-2.0
// Images as PNG files.
#ifndef IO_PNG_H_
#define IO_PNG_H_

#include <cstdint>
#include <span>
#include <string>

#include "millrace/status.h"

namespace millrace {

// `pixels`: rows of width * channels bytes from the top. Grey, grey and alpha, RGB or RGBA for 1 to
// 4 channels. InvalidArgument for a size of 0, another number of channels or of pixels, and more
// than 2 GiB; ResourceExhausted where the image cannot be packed.
StatusOr<std::string> EncodePng(std::span<const uint8_t> pixels, int64_t height, int64_t width,
                                int channels);

}  // namespace millrace

#endif  // IO_PNG_H_
