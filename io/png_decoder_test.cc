// SPDX-License-Identifier: Apache-2.0
// Pixels that come back from files that io/png.h writes, and files that are none.
#include "io/png_decoder.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "io/png.h"
#include "io/png_encoder.h"

namespace millrace {
namespace {

std::string File(const std::vector<uint8_t>& pixels, int64_t height, int64_t width, int channels) {
  auto file = EncodePng(pixels, height, width, channels);
  EXPECT_TRUE(file.ok());
  return file.ok() ? *file : "";
}

TEST(PngDecoder, PixelsComeBackForEveryNumberOfChannels) {
  for (int channels = 1; channels <= 4; ++channels) {
    std::vector<uint8_t> pixels(5 * 7 * channels);
    for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i * 37 + 11);
    const auto got = DecodePng(File(pixels, 5, 7, channels), 0, 8);
    ASSERT_TRUE(got.ok()) << channels;
    EXPECT_EQ(got->height, 5);
    EXPECT_EQ(got->width, 7);
    EXPECT_EQ(got->channels, channels);
    EXPECT_EQ(got->bytes, pixels);
  }
}

TEST(PngDecoder, ChannelsAreConverted) {
  using Bytes = std::vector<uint8_t>;
  const auto rgba = DecodePng(File({7, 200}, 1, 2, 1), 4, 8);
  ASSERT_TRUE(rgba.ok());
  EXPECT_EQ(rgba->bytes, (Bytes{7, 7, 7, 255, 200, 200, 200, 255}));
  const auto rgb = DecodePng(File({1, 2, 3, 4}, 1, 1, 4), 3, 8);
  ASSERT_TRUE(rgb.ok());
  EXPECT_EQ(rgb->bytes, (Bytes{1, 2, 3}));
  const auto grey = DecodePng(File({9, 9, 9}, 1, 1, 3), 1, 8);
  ASSERT_TRUE(grey.ok());
  EXPECT_EQ(grey->bytes, (Bytes{9}));
}

TEST(PngDecoder, SixteenBitsRepeatTheByte) {
  const auto got = DecodePng(File({0x12}, 1, 1, 1), 1, 16);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->bytes, (std::vector<uint8_t>{0x12, 0x12}));
}

TEST(PngDecoder, WhatTheEncoderPacksComesBack) {
  for (const int bits : {8, 16}) {
    for (int channels = 1; channels <= 4; ++channels) {
      std::vector<uint8_t> pixels(3 * 5 * channels * (bits / 8));
      for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i * 37 + 1);
      const auto file = PackPng({pixels.data(), 3, 5, channels, bits}, channels * 2);
      ASSERT_TRUE(file.ok()) << file.status();
      const auto got = DecodePng(*file, 0, bits);
      ASSERT_TRUE(got.ok()) << got.status();
      EXPECT_EQ(got->channels, channels);
      EXPECT_EQ(got->bytes, pixels);
    }
  }
  const uint8_t one = 1;
  EXPECT_FALSE(PackPng({&one, 0, 1, 1, 8}, -1).ok());
  EXPECT_FALSE(PackPng({&one, 1, 1, 5, 8}, -1).ok());
  EXPECT_FALSE(PackPng({&one, 1, 1, 1, 8}, 10).ok());
}

TEST(PngDecoder, EveryTruncationAndOtherBytesAreRefused) {
  const std::string file = File(std::vector<uint8_t>(48, 5), 4, 4, 3);
  for (std::size_t n = 0; n < file.size(); ++n) {
    const auto got = DecodePng(file.substr(0, n), 0, 8);
    ASSERT_FALSE(got.ok()) << n;
    EXPECT_EQ(got.status().code(), StatusCode::kInvalidArgument) << n;
  }
  EXPECT_FALSE(DecodePng("GIF89a, or something else", 0, 8).ok());
  EXPECT_FALSE(DecodePng(file, 5, 8).ok());
  EXPECT_FALSE(DecodePng(file, 0, 12).ok());
}

// A flipped bit anywhere must end in pixels or a status.
TEST(PngDecoder, DamagedFilesEnd) {
  const std::string file = File(std::vector<uint8_t>(48, 5), 4, 4, 3);
  int refused = 0;
  for (std::size_t bit = 0; bit < file.size() * 8; ++bit) {
    std::string damaged = file;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    refused += DecodePng(damaged, 0, 8).ok() ? 0 : 1;
  }
  EXPECT_GT(refused, 0);
}

// The header of an image of 1000 x 1000 pixels, and nearly nothing after it.
TEST(PngDecoder, SizesThatTheBytesCannotHoldAreRefusedFirst) {
  const std::string big = File(std::vector<uint8_t>(1000000, 0), 1000, 1000, 1);
  const auto got = DecodePng(std::string_view(big).substr(0, 64), 0, 8);
  ASSERT_FALSE(got.ok());
  EXPECT_NE(got.status().message().find("more than it can hold"), std::string_view::npos)
      << got.status().message();
}

}  // namespace
}  // namespace millrace
