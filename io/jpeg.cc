// SPDX-License-Identifier: Apache-2.0
// Reading JPEG files. See io/jpeg_errors.h for what functions with setjmp may not have.
#include "io/jpeg.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "io/jpeg_errors.h"

namespace millrace {
namespace {

constexpr long kMostWorkingBytes = 1L << 30;
// Each pass over a large image takes long; progressive files have about ten.
constexpr int kMostScans = 200;
constexpr JOCTET kEndMarker[] = {0xff, JPEG_EOI};

struct Source {
  jpeg_source_mgr manager;
  bool recover;
};

class JpegReader {
 public:
  JpegReader(std::string_view file, bool recover) {
    info_.err = ManagerOf(&errors_);
    source_.manager.init_source = [](j_decompress_ptr) {};
    source_.manager.term_source = [](j_decompress_ptr) {};
    source_.manager.fill_input_buffer = Fill;
    source_.manager.skip_input_data = Skip;
    source_.manager.resync_to_restart = jpeg_resync_to_restart;
    source_.manager.next_input_byte = reinterpret_cast<const JOCTET*>(file.data());
    source_.manager.bytes_in_buffer = file.size();
    source_.recover = recover;
    progress_.progress_monitor = [](j_common_ptr info) {
      const int scans = reinterpret_cast<j_decompress_ptr>(info)->input_scan_number;
      if (scans > kMostScans) Fail(info, "it has too many scans");
    };
  }
  ~JpegReader() { jpeg_destroy_decompress(&info_); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  bool ReadHeader() {
    if (setjmp(errors_.back) != 0) return false;
    jpeg_create_decompress(&info_);
    info_.mem->max_memory_to_use = kMostWorkingBytes;
    info_.progress = &progress_;
    info_.src = &source_.manager;
    if (jpeg_read_header(&info_, TRUE) == JPEG_HEADER_OK) return true;
    Fail(reinterpret_cast<j_common_ptr>(&info_), "the file ends within its header");
  }

  // Sizes of the output, and what it is converted to; memory is not taken yet.
  bool Plan(const JpegReading& reading) {
    if (setjmp(errors_.back) != 0) return false;
    channels_ = reading.channels != 0 ? reading.channels : std::min(info_.num_components, 3);
    inks_ = info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK;
    if (inks_) {
      info_.out_color_space = JCS_CMYK;
      if (reading.channels == 0) channels_ = 3;
    } else {
      info_.out_color_space = channels_ == 1 ? JCS_GRAYSCALE : JCS_RGB;
    }
    info_.scale_num = 1;
    info_.scale_denom = static_cast<unsigned>(reading.ratio);
    info_.do_fancy_upsampling = reading.fancy_upscaling ? TRUE : FALSE;
    info_.dct_method = reading.accurate_transform ? JDCT_ISLOW : JDCT_IFAST;
    jpeg_calc_output_dimensions(&info_);
    return true;
  }

  // Left of `left`, libjpeg decodes up to a border of blocks; `*skip` is how far it is from there.
  bool Start(const JpegCrop& crop, bool crops, unsigned* skip) {
    if (setjmp(errors_.back) != 0) return false;
    *skip = 0;
    if (jpeg_start_decompress(&info_) != TRUE) FailEarlyEnd();
    if (!crops) return true;
    auto left = static_cast<JDIMENSION>(crop.left);
    auto width = static_cast<JDIMENSION>(crop.width);
    jpeg_crop_scanline(&info_, &left, &width);
    *skip = static_cast<unsigned>(crop.left) - left;
    const auto top = static_cast<JDIMENSION>(crop.top);
    if (top != 0 && jpeg_skip_scanlines(&info_, top) != top) FailEarlyEnd();
    return true;
  }

  bool ReadRow(uint8_t* row) {
    if (setjmp(errors_.back) != 0) return false;
    JSAMPROW rows[] = {row};
    if (jpeg_read_scanlines(&info_, rows, 1) != 1) FailEarlyEnd();
    return true;
  }

  // What follows the last row may be damaged or missing, too.
  bool Finish() {
    if (setjmp(errors_.back) != 0) return false;
    if (jpeg_finish_decompress(&info_) != TRUE) FailEarlyEnd();
    return true;
  }

  const jpeg_decompress_struct& info() const { return info_; }
  int channels() const { return channels_; }
  bool inks() const { return inks_; }
  Status Refused() const {
    return errors::InvalidArgument("Invalid JPEG data or crop window: ", errors_.text);
  }

 private:
  [[noreturn]] static void Fail(j_common_ptr info, const char* why) {
    auto* const errors = reinterpret_cast<JpegErrors*>(info->err);
    std::snprintf(errors->text, sizeof(errors->text), "%s", why);
    std::longjmp(errors->back, 1);
  }
  [[noreturn]] void FailEarlyEnd() {
    Fail(reinterpret_cast<j_common_ptr>(&info_), "the file ends too early");
  }

  static boolean Fill(j_decompress_ptr info) {
    auto* const source = reinterpret_cast<Source*>(info->src);
    if (!source->recover) return FALSE;
    source->manager.next_input_byte = kEndMarker;
    source->manager.bytes_in_buffer = sizeof(kEndMarker);
    return TRUE;
  }
  static void Skip(j_decompress_ptr info, long n) {
    if (n <= 0) return;
    const std::size_t step = std::min(info->src->bytes_in_buffer, static_cast<std::size_t>(n));
    info->src->next_input_byte += step;
    info->src->bytes_in_buffer -= step;
  }

  JpegErrors errors_;
  Source source_ = {};
  jpeg_progress_mgr progress_ = {};
  jpeg_decompress_struct info_ = {};
  int channels_ = 0;
  bool inks_ = false;
};

// Inks are stored as Adobe does, inverted, or not.
void FromInks(const uint8_t* from, int64_t n, int channels, bool inverted, uint8_t* to) {
  for (int64_t i = 0; i < n; ++i, from += 4, to += channels) {
    const int k = inverted ? from[3] : 255 - from[3];
    int rgb[3];
    for (int c = 0; c < 3; ++c) rgb[c] = k * (inverted ? from[c] : 255 - from[c]) / 255;
    if (channels == 3) {
      for (int c = 0; c < 3; ++c) to[c] = static_cast<uint8_t>(rgb[c]);
    } else {
      to[0] = static_cast<uint8_t>((rgb[0] * 77 + rgb[1] * 150 + rgb[2] * 29) / 256);
    }
  }
}

Status CheckCrop(const JpegCrop& crop, int64_t height, int64_t width) {
  if (crop.top < 0 || crop.left < 0 || crop.height <= 0 || crop.width <= 0 || crop.top >= height ||
      crop.left >= width || crop.height > height - crop.top || crop.width > width - crop.left) {
    return errors::InvalidArgument("Invalid JPEG data or crop window: ", crop.height, "x",
                                   crop.width, " from (", crop.top, ", ", crop.left, ") of ",
                                   height, "x", width);
  }
  return OkStatus();
}

}  // namespace

StatusOr<ImageSize> JpegFileSize(std::string_view file) {
  JpegReader reader(file, false);
  if (!reader.ReadHeader()) return reader.Refused();
  ImageSize size;
  size.height = reader.info().image_height;
  size.width = reader.info().image_width;
  size.channels = reader.info().num_components;
  return size;
}

Status DecodeJpeg(std::string_view file, const JpegReading& reading, const PixelRoom& room) {
  if ((reading.channels != 0 && reading.channels != 1 && reading.channels != 3) ||
      (reading.ratio != 1 && reading.ratio != 2 && reading.ratio != 4 && reading.ratio != 8)) {
    return errors::InvalidArgument("A JPEG file is read to 0, 1 or 3 channels by a ratio of 1, 2, ",
                                   "4 or 8, not to ", reading.channels, " by ", reading.ratio);
  }
  JpegReader reader(file, reading.try_recover_truncated);
  if (!reader.ReadHeader() || !reader.Plan(reading)) return reader.Refused();
  ImageSize size;
  size.height = reader.info().output_height;
  size.width = reader.info().output_width;
  size.channels = reader.channels();
  const auto whole = static_cast<uint64_t>(size.height) * static_cast<uint64_t>(size.width);
  if (whole * static_cast<uint64_t>(reader.info().output_components) >= kMostImageBytes) {
    return errors::InvalidArgument("A JPEG image of ", size.height, "x", size.width,
                                   " is too large");
  }
  const JpegCrop crop = reading.crop.value_or(JpegCrop{0, 0, size.height, size.width});
  if (reading.crop.has_value()) MR_RETURN_IF_ERROR(CheckCrop(crop, size.height, size.width));
  size.height = crop.height;
  size.width = crop.width;
  unsigned skip = 0;
  if (!reader.Start(crop, reading.crop.has_value(), &skip)) return reader.Refused();
  MR_ASSIGN_OR_RETURN(uint8_t* to, room(size));
  const std::size_t row_bytes = static_cast<std::size_t>(size.width) * size.channels;
  const bool direct = !reader.inks() && !reading.crop.has_value();
  const int components = reader.info().output_components;
  std::vector<uint8_t> row(direct ? 0 : std::size_t{reader.info().output_width} * components);
  for (int64_t y = 0; y < size.height; ++y, to += row_bytes) {
    if (!reader.ReadRow(direct ? to : row.data())) return reader.Refused();
    if (direct) continue;
    const uint8_t* const from = row.data() + std::size_t{skip} * components;
    if (reader.inks()) {
      FromInks(from, size.width, size.channels, reader.info().saw_Adobe_marker != 0, to);
    } else {
      std::memcpy(to, from, row_bytes);
    }
  }
  if (!reading.crop.has_value() && !reader.Finish()) return reader.Refused();
  return OkStatus();
}

}  // namespace millrace
