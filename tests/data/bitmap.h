// SPDX-License-Identifier: Apache-2.0
// Files of images, to be read by tests.
#ifndef TESTS_DATA_BITMAP_H_
#define TESTS_DATA_BITMAP_H_

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

namespace millrace::testing {

// A BMP file in which every byte of every pixel (blue, green, red) is `shade`.
inline std::string Bitmap(uint32_t height, uint32_t width, char shade) {
  std::string file = "BM";
  const auto put = [&file](uint32_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) file.push_back(static_cast<char>(value >> (8 * i)));
  };
  const uint32_t row = (3 * width + 3) / 4 * 4;
  put(54 + row * height, 4);
  put(0, 4);
  put(54, 4);
  put(40, 4);
  put(width, 4);
  put(height, 4);
  put(1, 2);
  put(24, 2);
  put(0, 4);
  put(row * height, 4);
  for (int i = 0; i < 4; ++i) put(0, 4);
  return file + std::string(row * height, shade);
}

// With the folders on the way.
inline void WriteTestFile(const std::string& path, const std::string& content) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << content;
}

}  // namespace millrace::testing

#endif  // TESTS_DATA_BITMAP_H_
