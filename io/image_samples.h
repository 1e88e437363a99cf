// SPDX-License-Identifier: Apache-2.0
// Files of images made here, for tests and fuzzers of their readers.
#ifndef IO_IMAGE_SAMPLES_H_
#define IO_IMAGE_SAMPLES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace millrace {

// Bytes that follow from `seed`.
std::vector<uint8_t> SamplePixels(std::size_t n, uint32_t seed);

// Rows from the bottom of `height`, from the top if that is negative; `pixels` are stored as they
// are, as BGR and BGRA.
std::string BmpSample(const std::vector<uint8_t>& pixels, int height, int width, int channels);

struct GifSample {
  int left = 0, top = 0, width = 1, height = 1;
  bool interlaced = false;
  int transparent = -1;
  std::vector<uint8_t> indices = {};  // below 4, in the order of the file
};

// The four colours are (10, 20, 30) times 1 to 4. Codes are never longer than three bits: they are
// cleared in time.
std::string GifFile(const std::vector<GifSample>& frames);

}  // namespace millrace

#endif  // IO_IMAGE_SAMPLES_H_
