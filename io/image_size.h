// SPDX-License-Identifier: Apache-2.0
// What readers of images ask their callers for before they read pixels.
#ifndef IO_IMAGE_SIZE_H_
#define IO_IMAGE_SIZE_H_

#include <cstdint>
#include <functional>

#include "millrace/status.h"

namespace millrace {

// Pixels lie frame by frame, in rows from the top, channels innermost.
struct ImageSize {
  int64_t height = 0;
  int64_t width = 0;
  int channels = 0;
  int64_t frames = 1;
};

// More bytes of pixels than this are refused before memory is asked for, as TensorFlow does.
inline constexpr uint64_t kMostImageBytes = uint64_t{1} << 29;

// Gives room for the pixels of an image, frames * height * width * channels bytes, all of which are
// written unless an error is returned. Called at most once, with sizes that have been checked.
using PixelRoom = std::function<StatusOr<uint8_t*>(const ImageSize&)>;

}  // namespace millrace

#endif  // IO_IMAGE_SIZE_H_
