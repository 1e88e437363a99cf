// SPDX-License-Identifier: Apache-2.0
// The first byte says how a file is read, the rest is the file: JPEG, BMP and GIF give pixels, or
// say what is wrong.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/errors.h"
#include "base/log.h"
#include "io/bmp.h"
#include "io/gif.h"
#include "io/image_samples.h"
#include "io/jpeg.h"

namespace millrace {

std::vector<std::string> FuzzSeeds() {
  std::vector<std::string> seeds;
  for (const bool progressive : {false, true}) {
    for (const int channels : {1, 3}) {
      JpegWriting writing;
      writing.progressive = progressive;
      const auto file = EncodeJpeg(SamplePixels(35 * channels, 3), 5, 7, channels, writing);
      MR_CHECK(file.ok());
      for (const char how : {0, 1, 2, 7}) seeds.push_back(std::string(1, how) + *file);
    }
  }
  for (const int channels : {1, 3, 4}) {
    seeds.push_back('\0' + BmpSample(SamplePixels(15 * channels, 5), 3, 5, channels));
  }
  seeds.push_back('\0' + GifFile({{.width = 3, .height = 2, .indices = {0, 1, 2, 3, 2, 1}},
                                  {.left = 1,
                                   .top = 1,
                                   .width = 1,
                                   .height = 1,
                                   .interlaced = true,
                                   .transparent = 1,
                                   .indices = {3}}}));
  return seeds;
}

}  // namespace millrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  using namespace millrace;  // NOLINT
  if (size == 0) return 0;
  const std::string_view file(reinterpret_cast<const char*>(data) + 1, size - 1);
  constexpr int64_t kMost = 1 << 20;  // large images only take time
  std::vector<uint8_t> pixels;
  const PixelRoom room = [&](const ImageSize& image) -> StatusOr<uint8_t*> {
    const int64_t n = image.frames * image.height * image.width * image.channels;
    MR_CHECK(n > 0 && n <= static_cast<int64_t>(kMostImageBytes));
    if (n > kMost) return errors::InvalidArgument("enough");
    pixels.assign(static_cast<std::size_t>(n), 0);
    return pixels.data();
  };
  const auto check = [](const Status& status) {
    MR_CHECK(status.ok() || status.code() == StatusCode::kInvalidArgument);
  };
  JpegReading reading;
  reading.channels = (data[0] & 1) != 0 ? 3 : 0;
  reading.try_recover_truncated = (data[0] & 2) != 0;
  if ((data[0] & 4) != 0) reading.crop = JpegCrop{1, 1, 2, 3};
  const auto sizes = JpegFileSize(file);
  if (!sizes.ok() || sizes->height * sizes->width <= kMost) {
    check(DecodeJpeg(file, reading, room));
  }
  check(DecodeBmp(file, (data[0] & 8) != 0 ? 4 : 0, room));
  check(DecodeGif(file, (data[0] & 16) != 0, room));
  return 0;
}
