// SPDX-License-Identifier: Apache-2.0
// PNG files through libpng, whose errors are jumps: no function below that calls setjmp owns an
// object with a destructor, so that a jump leaks nothing.
#include "io/png_decoder.h"

#include <png.h>

#include <bit>
#include <csetjmp>
#include <cstdio>
#include <cstring>

#include "base/errors.h"

namespace millrace {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{1} << 30;
// Deflate packs at most 1032 bytes into one: what claims more is refused before memory is taken.
constexpr uint64_t kMaxRatio = 1032;

struct Source {
  const char* data;
  std::size_t left;
  char error[128];
};

[[noreturn]] void OnError(png_structp png, png_const_charp message) {
  auto* source = static_cast<Source*>(png_get_error_ptr(png));
  std::snprintf(source->error, sizeof(source->error), "%s", message);
  png_longjmp(png, 1);
}

void OnWarning(png_structp, png_const_charp) {}

void OnRead(png_structp png, png_bytep to, png_size_t n) {
  auto* source = static_cast<Source*>(png_get_io_ptr(png));
  if (n > source->left) png_error(png, "the file ends too early");
  std::memcpy(to, source->data, n);
  source->data += n;
  source->left -= n;
}

class Reader {
 public:
  explicit Reader(Source* source) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, source, OnError, OnWarning);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
    if (info_ != nullptr) png_set_read_fn(png_, source, OnRead);
  }
  ~Reader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  bool ok() const { return info_ != nullptr; }

  bool ReadHeader() {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_read_info(png_, info_);
    return true;
  }

  int64_t height() const { return png_get_image_height(png_, info_); }
  int64_t width() const { return png_get_image_width(png_, info_); }
  uint64_t packed_row_bytes() const { return png_get_rowbytes(png_, info_); }
  bool palette() const { return png_get_color_type(png_, info_) == PNG_COLOR_TYPE_PALETTE; }
  bool transparent() const { return png_get_valid(png_, info_, PNG_INFO_tRNS) != 0; }
  int file_channels() const {
    if (palette()) return transparent() ? 4 : 3;
    return png_get_channels(png_, info_);
  }

  // Conversions to `channels` samples of `bits`; false also where the rows have another length.
  bool Convert(int channels, int bits, std::size_t row_bytes) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    const bool alpha_wanted = channels % 2 == 0;
    const int type = png_get_color_type(png_, info_);
    const bool color = (type & PNG_COLOR_MASK_COLOR) != 0;
    const bool alpha = (type & PNG_COLOR_MASK_ALPHA) != 0;
    if (palette()) png_set_palette_to_rgb(png_);
    if (!color && png_get_bit_depth(png_, info_) < 8) png_set_expand_gray_1_2_4_to_8(png_);
    if (transparent()) png_set_tRNS_to_alpha(png_);
    if (bits == 8) png_set_strip_16(png_);
    if (bits == 16) png_set_expand_16(png_);
    if (bits == 16 && std::endian::native == std::endian::little) png_set_swap(png_);
    if (!alpha_wanted) png_set_strip_alpha(png_);
    if (alpha_wanted && !alpha && !transparent()) {
      png_set_add_alpha(png_, bits == 16 ? 0xffff : 0xff, PNG_FILLER_AFTER);
    }
    if (channels >= 3 && !color) png_set_gray_to_rgb(png_);
    if (channels <= 2 && color) png_set_rgb_to_gray(png_, 1, 0.299, 0.587);
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    if (png_get_rowbytes(png_, info_) == row_bytes) return true;
    png_error(png_, "its rows cannot be converted to these channels");
  }

  bool ReadRows(png_bytepp rows) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_read_image(png_, rows);
    png_read_end(png_, nullptr);
    return true;
  }

 private:
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

Status Refused(const Source& source) {
  return errors::InvalidArgument("Not a whole PNG file: ", source.error);
}

}  // namespace

StatusOr<PngPixels> DecodePng(std::string_view file, int channels, int bits) {
  if (channels < 0 || channels > 4 || (bits != 8 && bits != 16)) {
    return errors::InvalidArgument("A PNG file is read to 0 to 4 channels of 8 or 16 bits, not to ",
                                   channels, " of ", bits);
  }
  Source source{file.data(), file.size(), ""};
  Reader reader(&source);
  if (!reader.ok()) return errors::ResourceExhausted("No memory to read a PNG file");
  if (!reader.ReadHeader()) return Refused(source);
  PngPixels out;
  out.height = reader.height();
  out.width = reader.width();
  out.channels = channels == 0 ? reader.file_channels() : channels;
  const uint64_t row = static_cast<uint64_t>(out.width) * out.channels * (bits / 8);
  const auto height = static_cast<uint64_t>(out.height);
  if (row > kMaxBytes / height || reader.packed_row_bytes() * height > kMaxRatio * file.size()) {
    return errors::InvalidArgument("A PNG file of ", file.size(), " bytes says that it has ",
                                   out.height, " rows of ", out.width,
                                   " pixels: more than it can hold, or than 1 GiB");
  }
  if (!reader.Convert(out.channels, bits, row)) return Refused(source);
  out.bytes.resize(row * height);
  std::vector<png_bytep> rows(height);
  for (uint64_t y = 0; y < height; ++y) rows[y] = out.bytes.data() + y * row;
  if (!reader.ReadRows(rows.data())) return Refused(source);
  return out;
}

}  // namespace millrace
