// SPDX-License-Identifier: Apache-2.0
#include "io/image_samples.h"

#include <algorithm>
#include <cstdlib>

namespace millrace {
namespace {

void Put(std::string* out, uint32_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) *out += static_cast<char>(value >> (8 * i));
}

}  // namespace

std::vector<uint8_t> SamplePixels(std::size_t n, uint32_t seed) {
  std::vector<uint8_t> pixels(n);
  for (uint8_t& pixel : pixels) {
    seed = seed * 1664525u + 1013904223u;
    pixel = static_cast<uint8_t>(seed >> 24);
  }
  return pixels;
}

std::string BmpSample(const std::vector<uint8_t>& pixels, int height, int width, int channels) {
  const int rows = std::abs(height), row = width * channels;
  std::string body;
  for (int y = 0; y < rows; ++y) {
    body.append(reinterpret_cast<const char*>(pixels.data()) + y * row, row);
    body.append((4 - row % 4) % 4, '\0');
  }
  std::string file = "BM";
  Put(&file, static_cast<uint32_t>(54 + body.size()), 4);
  Put(&file, 0, 4);
  Put(&file, 54, 4);
  Put(&file, 40, 4);
  Put(&file, static_cast<uint32_t>(width), 4);
  Put(&file, static_cast<uint32_t>(height), 4);
  Put(&file, 1, 2);
  Put(&file, static_cast<uint32_t>(8 * channels), 2);
  file.append(24, '\0');
  return file + body;
}

std::string GifFile(const std::vector<GifSample>& frames) {
  std::string file = "GIF89a";
  Put(&file, 1, 2);
  Put(&file, 1, 2);
  file += std::string("\x81\0\0", 3);
  for (int i = 1; i <= 4; ++i) {
    for (const int level : {10, 20, 30}) file += static_cast<char>(level * i);
  }
  for (const GifSample& frame : frames) {
    if (frame.transparent >= 0) {
      file += std::string("\x21\xf9\x04\x01\0\0", 6);
      Put(&file, static_cast<uint32_t>(frame.transparent), 2);
    }
    file += ',';
    for (const int side : {frame.left, frame.top, frame.width, frame.height}) {
      Put(&file, static_cast<uint32_t>(side), 2);
    }
    file += frame.interlaced ? '\x40' : '\0';
    file += '\x02';
    std::string packed;
    uint32_t held = 0;
    int have = 0;
    const auto code = [&](uint32_t value) {
      held |= value << have;
      for (have += 3; have >= 8; have -= 8, held >>= 8) packed += static_cast<char>(held & 0xff);
    };
    for (std::size_t i = 0; i < frame.indices.size(); ++i) {
      if (i % 2 == 0) code(4);
      code(frame.indices[i]);
    }
    code(5);
    if (have > 0) packed += static_cast<char>(held);
    for (std::size_t at = 0; at < packed.size(); at += 255) {
      const std::size_t n = std::min<std::size_t>(255, packed.size() - at);
      file += static_cast<char>(n);
      file.append(packed, at, n);
    }
    file += '\0';
  }
  return file + ';';
}

}  // namespace millrace
