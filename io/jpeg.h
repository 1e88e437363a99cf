// SPDX-License-Identifier: Apache-2.0
// JPEG files, read and written by libjpeg-turbo.
#ifndef IO_JPEG_H_
#define IO_JPEG_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "io/image_size.h"
#include "millrace/status.h"

namespace millrace {

// Part of an image, in pixels of what is decoded.
struct JpegCrop {
  int64_t top = 0, left = 0, height = 0, width = 0;
};

struct JpegReading {
  int channels = 0;  // 1 (grey), 3 (RGB), or 0 for those of the file; four inks become RGB
  int ratio = 1;     // 1, 2, 4 or 8: sides are divided by it
  bool fancy_upscaling = true;
  bool try_recover_truncated = false;  // what is missing at the end becomes grey
  bool accurate_transform = false;     // else the fast one
  std::optional<JpegCrop> crop;
};

struct JpegWriting {
  int quality = 95;  // 0 to 100
  bool progressive = false;
  bool optimize_size = false;
  bool chroma_downsampling = true;
  bool density_per_cm = false;  // else per inch
  int x_density = 300, y_density = 300;
  std::string_view xmp_metadata;
};

// What the header of a file says, for one without ratio or crop. InvalidArgument if there is none.
StatusOr<ImageSize> JpegFileSize(std::string_view file);

// InvalidArgument for a file that is damaged or cut off, a crop that lies outside, and images of
// more than kMostImageBytes.
Status DecodeJpeg(std::string_view file, const JpegReading& reading, const PixelRoom& room);

// `pixels`: rows of width * channels bytes, 1 (grey) or 3 (RGB) channels. InvalidArgument where
// libjpeg refuses them, such as for a side of 0 or above 65500.
StatusOr<std::string> EncodeJpeg(std::span<const uint8_t> pixels, int64_t height, int64_t width,
                                 int channels, const JpegWriting& writing);

}  // namespace millrace

#endif  // IO_JPEG_H_
