// SPDX-License-Identifier: Apache-2.0
// libpng's errors are jumps: see io/png_decoder.cc.
#include "io/png_encoder.h"

#include <png.h>

#include <bit>
#include <csetjmp>
#include <cstdio>
#include <exception>

#include "base/errors.h"

namespace millrace {
namespace {

struct Sink {
  std::string bytes;
  char error[128];
};

[[noreturn]] void OnWriteError(png_structp png, png_const_charp message) {
  auto* sink = static_cast<Sink*>(png_get_error_ptr(png));
  std::snprintf(sink->error, sizeof(sink->error), "%s", message);
  png_longjmp(png, 1);
}

// No exception may go through libpng.
bool Append(Sink* sink, png_const_bytep from, png_size_t n) {
  try {
    sink->bytes.append(reinterpret_cast<const char*>(from), n);
  } catch (const std::exception&) {
    return false;
  }
  return true;
}

void OnWrite(png_structp png, png_bytep from, png_size_t n) {
  if (!Append(static_cast<Sink*>(png_get_io_ptr(png)), from, n)) png_error(png, "no memory");
}

class PngWriter {
 public:
  explicit PngWriter(Sink* sink) {
    png_ = png_create_write_struct(PNG_LIBPNG_VER_STRING, sink, OnWriteError,
                                   [](png_structp, png_const_charp) {});
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
    if (info_ != nullptr) png_set_write_fn(png_, sink, OnWrite, [](png_structp) {});
  }
  ~PngWriter() { png_destroy_write_struct(&png_, &info_); }
  PngWriter(const PngWriter&) = delete;
  PngWriter& operator=(const PngWriter&) = delete;

  bool ok() const { return info_ != nullptr; }

  bool Write(const PngSource& image, int compression) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    static constexpr int kColours[] = {0, PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA,
                                       PNG_COLOR_TYPE_RGB, PNG_COLOR_TYPE_RGB_ALPHA};
    png_set_IHDR(png_, info_, static_cast<png_uint_32>(image.width),
                 static_cast<png_uint_32>(image.height), image.bits, kColours[image.channels],
                 PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_set_compression_level(png_, compression);
    png_write_info(png_, info_);
    if (image.bits == 16 && std::endian::native == std::endian::little) png_set_swap(png_);
    const auto* row = static_cast<png_const_bytep>(image.pixels);
    const int64_t row_bytes = image.width * image.channels * (image.bits / 8);
    for (int64_t y = 0; y < image.height; ++y) png_write_row(png_, row + y * row_bytes);
    png_write_end(png_, nullptr);
    return true;
  }

 private:
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

}  // namespace

StatusOr<std::string> PackPng(const PngSource& image, int compression) {
  constexpr int64_t kLongestSide = PNG_USER_WIDTH_MAX;
  if (image.height <= 0 || image.width <= 0 || image.height > kLongestSide ||
      image.width > kLongestSide || image.channels < 1 || image.channels > 4 ||
      (image.bits != 8 && image.bits != 16) || compression < -1 || compression > 9) {
    return errors::InvalidArgument("An image of ", image.height, "x", image.width, " with ",
                                   image.channels, " channels of ", image.bits,
                                   " bits cannot be packed as PNG by level ", compression);
  }
  Sink sink{"", ""};
  PngWriter writer(&sink);
  if (!writer.ok()) return errors::ResourceExhausted("No memory to write a PNG file");
  if (!writer.Write(image, compression)) {
    return errors::InvalidArgument("An image cannot be packed as PNG: ", sink.error);
  }
  return std::move(sink.bytes);
}

}  // namespace millrace
