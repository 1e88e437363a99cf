// SPDX-License-Identifier: Apache-2.0
// Writing JPEG files. See io/jpeg_errors.h for what functions with setjmp may not have.
#include <cstdlib>
#include <memory>

#include "base/errors.h"
#include "io/jpeg.h"
#include "io/jpeg_errors.h"

namespace millrace {
namespace {

constexpr char kXmpName[] = "http://ns.adobe.com/xap/1.0/";  // with its zero
constexpr int64_t kLongestSide = JPEG_MAX_DIMENSION;

class JpegWriter {
 public:
  JpegWriter() { info_.err = ManagerOf(&errors_); }
  ~JpegWriter() {
    jpeg_destroy_compress(&info_);
    std::free(bytes_);
  }
  JpegWriter(const JpegWriter&) = delete;
  JpegWriter& operator=(const JpegWriter&) = delete;

  bool Start(int64_t height, int64_t width, int channels, const JpegWriting& writing,
             const std::string* xmp) {
    if (setjmp(errors_.back) != 0) return false;
    jpeg_create_compress(&info_);
    jpeg_mem_dest(&info_, &bytes_, &size_);
    info_.image_height = static_cast<JDIMENSION>(height);
    info_.image_width = static_cast<JDIMENSION>(width);
    info_.input_components = channels;
    info_.in_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&info_);
    if (writing.optimize_size) info_.optimize_coding = TRUE;
    info_.density_unit = writing.density_per_cm ? 2 : 1;
    info_.X_density = static_cast<UINT16>(writing.x_density);
    info_.Y_density = static_cast<UINT16>(writing.y_density);
    jpeg_set_quality(&info_, writing.quality, TRUE);
    if (writing.progressive) jpeg_simple_progression(&info_);
    if (!writing.chroma_downsampling) {
      info_.comp_info[0].h_samp_factor = info_.comp_info[0].v_samp_factor = 1;
    }
    jpeg_start_compress(&info_, TRUE);
    if (!xmp->empty()) {
      jpeg_write_marker(&info_, JPEG_APP0 + 1, reinterpret_cast<const JOCTET*>(xmp->data()),
                        static_cast<unsigned>(xmp->size()));
    }
    return true;
  }

  bool Write(const uint8_t* pixels, std::size_t row_bytes) {
    if (setjmp(errors_.back) != 0) return false;
    while (info_.next_scanline < info_.image_height) {
      JSAMPROW row[] = {const_cast<uint8_t*>(pixels) + info_.next_scanline * row_bytes};
      jpeg_write_scanlines(&info_, row, 1);
    }
    jpeg_finish_compress(&info_);
    return true;
  }

  std::string_view bytes() const { return {reinterpret_cast<const char*>(bytes_), size_}; }
  Status Refused() const {
    return errors::InvalidArgument("An image cannot be packed as JPEG: ", errors_.text);
  }

 private:
  JpegErrors errors_;
  jpeg_compress_struct info_ = {};
  unsigned char* bytes_ = nullptr;
  unsigned long size_ = 0;
};

}  // namespace

StatusOr<std::string> EncodeJpeg(std::span<const uint8_t> pixels, int64_t height, int64_t width,
                                 int channels, const JpegWriting& writing) {
  if (height <= 0 || width <= 0 || height > kLongestSide || width > kLongestSide ||
      (channels != 1 && channels != 3) ||
      height * width * channels != static_cast<int64_t>(pixels.size())) {
    return errors::InvalidArgument("An image cannot be packed as JPEG: ", height, "x", width,
                                   " with ", channels, " channels in ", pixels.size(), " bytes");
  }
  std::string xmp;
  if (!writing.xmp_metadata.empty()) {
    xmp.assign(kXmpName, sizeof(kXmpName));
    xmp += writing.xmp_metadata;
  }
  JpegWriter writer;
  if (!writer.Start(height, width, channels, writing, &xmp) ||
      !writer.Write(pixels.data(), static_cast<std::size_t>(width) * channels)) {
    return writer.Refused();
  }
  return std::string(writer.bytes());
}

}  // namespace millrace
