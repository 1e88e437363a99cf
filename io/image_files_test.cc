// SPDX-License-Identifier: Apache-2.0
// Pixels of JPEG, BMP and GIF files made here, and files that are damaged. How TensorFlow reads
// them is in tests/goldens/kernels.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "io/bmp.h"
#include "io/gif.h"
#include "io/image_samples.h"
#include "io/jpeg.h"

namespace millrace {
namespace {

using Pixels = std::vector<uint8_t>;

struct Image {
  Status status;
  ImageSize size;
  Pixels pixels;
};

Image Read(const std::function<Status(const PixelRoom&)>& decode) {
  Image image;
  image.status = decode([&](const ImageSize& size) -> StatusOr<uint8_t*> {
    image.size = size;
    image.pixels.resize(size.frames * size.height * size.width * size.channels);
    return image.pixels.data();
  });
  return image;
}

Image ReadJpeg(std::string_view file, const JpegReading& reading = {}) {
  return Read([&](const PixelRoom& room) { return DecodeJpeg(file, reading, room); });
}
Image ReadBmp(std::string_view file, int channels = 0) {
  return Read([&](const PixelRoom& room) { return DecodeBmp(file, channels, room); });
}
Image ReadGif(std::string_view file, bool first_only = false) {
  return Read([&](const PixelRoom& room) { return DecodeGif(file, first_only, room); });
}

// A slope, which hardly loses anything.
std::string Jpeg(int height, int width, int channels, const JpegWriting& writing = {}) {
  Pixels pixels;
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width * channels; ++x) pixels.push_back(static_cast<uint8_t>(4 * y + 50));
  }
  auto file = EncodeJpeg(pixels, height, width, channels, writing);
  EXPECT_TRUE(file.ok()) << file.status();
  return file.ok() ? *file : "";
}

void ExpectRefused(const Image& image, std::size_t at) {
  ASSERT_FALSE(image.status.ok()) << at;
  EXPECT_EQ(image.status.code(), StatusCode::kInvalidArgument) << at;
  EXPECT_FALSE(image.status.message().empty());
}

TEST(ImageFiles, JpegComesBack) {
  for (const bool progressive : {false, true}) {
    for (const int channels : {1, 3}) {
      JpegWriting writing;
      writing.progressive = progressive;
      writing.optimize_size = progressive;
      writing.chroma_downsampling = !progressive;
      const std::string file = Jpeg(17, 23, channels, writing);
      const auto size = JpegFileSize(file);
      ASSERT_TRUE(size.ok());
      EXPECT_EQ(size->height, 17);
      EXPECT_EQ(size->width, 23);
      EXPECT_EQ(size->channels, channels);
      const Image image = ReadJpeg(file);
      ASSERT_TRUE(image.status.ok()) << image.status;
      EXPECT_EQ(image.size.channels, channels);
      for (int y = 0; y < 17; ++y) {
        for (int x = 0; x < 23 * channels; ++x) {
          ASSERT_LE(std::abs(image.pixels[y * 23 * channels + x] - (4 * y + 50)), 4);
        }
      }
    }
  }
}

TEST(ImageFiles, JpegIsReadToOtherChannelsAndSizes) {
  JpegReading reading;
  reading.channels = 3;
  reading.ratio = 4;
  const Image image = ReadJpeg(Jpeg(17, 23, 1), reading);
  ASSERT_TRUE(image.status.ok());
  EXPECT_EQ(image.size.height, 5);
  EXPECT_EQ(image.size.width, 6);
  EXPECT_EQ(image.size.channels, 3);
  reading.ratio = 3;
  ExpectRefused(ReadJpeg(Jpeg(17, 23, 1), reading), 0);
}

TEST(ImageFiles, JpegCropIsPartOfTheWholeImage) {
  const std::string file = Jpeg(40, 50, 1);
  const Image whole = ReadJpeg(file);
  ASSERT_TRUE(whole.status.ok());
  for (const JpegCrop& crop : {JpegCrop{0, 0, 40, 50}, JpegCrop{7, 19, 13, 5}, {39, 49, 1, 1}}) {
    JpegReading reading;
    reading.crop = crop;
    const Image part = ReadJpeg(file, reading);
    ASSERT_TRUE(part.status.ok()) << part.status;
    ASSERT_EQ(part.size.height, crop.height);
    ASSERT_EQ(part.size.width, crop.width);
    for (int y = 0; y < crop.height; ++y) {
      for (int x = 0; x < crop.width; ++x) {
        ASSERT_EQ(part.pixels[y * crop.width + x],
                  whole.pixels[(crop.top + y) * 50 + crop.left + x]);
      }
    }
  }
  for (const JpegCrop& crop : {JpegCrop{0, 0, 41, 50},
                               JpegCrop{-1, 0, 2, 2},
                               {0, 0, 0, 1},
                               {39, 49, 1, 2},
                               {0, INT32_MAX, 1, INT32_MAX}}) {
    JpegReading reading;
    reading.crop = crop;
    ExpectRefused(ReadJpeg(file, reading), 0);
  }
}

TEST(ImageFiles, TruncatedJpegIsRefusedOrFilledUp) {
  const std::string file = Jpeg(64, 64, 3);
  for (std::size_t n = 0; n + 2 < file.size(); ++n) ExpectRefused(ReadJpeg(file.substr(0, n)), n);
  JpegReading reading;
  reading.try_recover_truncated = true;
  const Image image = ReadJpeg(file.substr(0, file.size() - 30), reading);
  EXPECT_TRUE(image.status.ok()) << image.status;
  EXPECT_EQ(image.size.height, 64);
}

TEST(ImageFiles, WhatFollowsTheLastRowOfJpegIsReadToo) {
  std::string file = Jpeg(64, 64, 3);
  const std::size_t end = file.size() - 2;
  ExpectRefused(ReadJpeg(file.substr(0, end)), end);
  file.insert(end, "\xff\x5d");  // a marker that nobody knows
  ExpectRefused(ReadJpeg(file), end);
  JpegReading reading;
  reading.crop = JpegCrop{0, 0, 8, 8};
  EXPECT_TRUE(ReadJpeg(file, reading).status.ok()) << "of a part nobody reads on";
}

TEST(ImageFiles, WhatJpegCannotHoldIsRefused) {
  EXPECT_FALSE(EncodeJpeg({}, 0, 3, 3, {}).ok());
  EXPECT_FALSE(EncodeJpeg(SamplePixels(8, 1), 2, 2, 2, {}).ok());
  EXPECT_FALSE(EncodeJpeg(SamplePixels(70000, 1), 1, 70000, 1, {}).ok());
  JpegWriting writing;
  const std::string long_text(70000, 'x');
  writing.xmp_metadata = long_text;
  EXPECT_FALSE(EncodeJpeg(SamplePixels(4, 1), 2, 2, 1, writing).ok());
}

TEST(ImageFiles, JpegMetadataComesBehindTheHeader) {
  JpegWriting writing;
  writing.xmp_metadata = "<x/>";
  EXPECT_NE(Jpeg(2, 2, 1, writing).find(std::string("http://ns.adobe.com/xap/1.0/\0<x/>", 33)),
            std::string::npos);
}

TEST(ImageFiles, BmpRowsAndColoursAreTurned) {
  const std::string rising = BmpSample({1, 2, 3, 4, 5, 6}, 2, 1, 3);
  EXPECT_EQ(ReadBmp(rising).pixels, (Pixels{6, 5, 4, 3, 2, 1}));
  EXPECT_EQ(ReadBmp(BmpSample({1, 2, 3, 4, 5, 6}, -2, 1, 3)).pixels, (Pixels{3, 2, 1, 6, 5, 4}));
  EXPECT_EQ(ReadBmp(rising, 4).pixels, (Pixels{6, 5, 4, 255, 3, 2, 1, 255}));
  const std::string alpha = BmpSample({1, 2, 3, 9}, 1, 1, 4);
  EXPECT_EQ(ReadBmp(alpha).pixels, (Pixels{3, 2, 1, 9}));
  EXPECT_EQ(ReadBmp(alpha, 3).pixels, (Pixels{3, 2, 1}));
  const std::string grey = BmpSample({7, 8}, 1, 2, 1);
  EXPECT_EQ(ReadBmp(grey).pixels, (Pixels{7, 8}));
  EXPECT_EQ(ReadBmp(grey, 3).pixels, (Pixels{7, 7, 7, 8, 8, 8}));
  ExpectRefused(ReadBmp(grey, 1), 0);
}

TEST(ImageFiles, GifFramesLieOverEachOther) {
  const std::string file =
      GifFile({{.width = 2, .height = 2, .indices = {0, 1, 2, 3}},
               {.left = 1, .width = 1, .height = 2, .transparent = 3, .indices = {0, 3}}});
  const Image image = ReadGif(file);
  ASSERT_TRUE(image.status.ok()) << image.status;
  EXPECT_EQ(image.size.frames, 2);
  EXPECT_EQ(image.pixels, (Pixels{10, 20, 30, 20, 40, 60, 30, 60, 90, 40, 80, 120,  //
                                  10, 20, 30, 10, 20, 30, 30, 60, 90, 40, 80, 120}));
  EXPECT_EQ(ReadGif(file, true).size.frames, 1);
}

TEST(ImageFiles, InterlacedGifLinesFindTheirPlaces) {
  GifSample frame{.width = 1, .height = 9, .interlaced = true};
  frame.indices = {0, 0, 1, 2, 2, 3, 3, 3, 3};  // lines 0, 8; 4; 2, 6; 1, 3, 5, 7
  const Image image = ReadGif(GifFile({frame}));
  ASSERT_TRUE(image.status.ok()) << image.status;
  Pixels first;
  for (std::size_t i = 0; i < image.pixels.size(); i += 3) first.push_back(image.pixels[i]);
  EXPECT_EQ(first, (Pixels{10, 40, 30, 40, 20, 40, 30, 40, 10}));
}

// Every byte of every file changed and every beginning of it: pixels, or a status.
TEST(ImageFiles, DamagedFilesEnd) {
  const std::string gif =
      GifFile({{.width = 5, .height = 9, .interlaced = true, .indices = Pixels(45, 2)}});
  const std::vector<std::pair<std::string, std::function<Image(std::string_view)>>> readers = {
      {Jpeg(20, 20, 3), [](std::string_view file) { return ReadJpeg(file); }},
      {BmpSample(SamplePixels(45, 1), 3, 5, 3),
       [](std::string_view file) { return ReadBmp(file); }},
      {gif, [](std::string_view file) { return ReadGif(file); }}};
  for (const auto& [file, read] : readers) {
    ASSERT_TRUE(read(file).status.ok()) << read(file).status;
    std::size_t refused = 0;
    for (std::size_t at = 0; at < file.size(); ++at) {
      for (const int value : {0x00, 0x01, 0x7f, 0x80, 0xff}) {
        std::string damaged = file;
        damaged[at] = static_cast<char>(damaged[at] ^ value);
        const Image image = read(damaged);
        if (image.status.ok()) continue;
        ExpectRefused(image, at);
        ++refused;
      }
    }
    EXPECT_GT(refused, 10u);
    for (std::size_t n = 0; n + 2 < file.size(); ++n) ExpectRefused(read(file.substr(0, n)), n);
  }
}

// Headers of images of 65535 x 65535 with nothing behind: nobody is asked for memory.
TEST(ImageFiles, SizesThatAreTooLargeAreRefusedFirst) {
  const auto no_room = [](const ImageSize&) -> StatusOr<uint8_t*> { std::abort(); };
  std::string gif = GifFile({{.indices = {1}}});
  const std::size_t at = gif.find(',') + 5;
  gif.replace(at, 4, "\xff\xff\xff\xff");
  EXPECT_EQ(DecodeGif(gif, false, no_room).code(), StatusCode::kInvalidArgument);
  std::string bmp = BmpSample({1, 2, 3}, 1, 1, 3);
  bmp.replace(18, 8, "\xff\xff\xff\x7f\xff\xff\xff\x7f");
  EXPECT_EQ(DecodeBmp(bmp, 0, no_room).code(), StatusCode::kInvalidArgument);
  std::string jpeg = Jpeg(2, 2, 3);
  jpeg.replace(jpeg.find("\xff\xc0") + 5, 4, "\xff\xdc\xff\xdc");
  EXPECT_EQ(DecodeJpeg(jpeg, {}, no_room).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace millrace
