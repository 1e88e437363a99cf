// SPDX-License-Identifier: Apache-2.0
// Images out of the bytes of files. Every op reads whatever format the bytes are in, as
// TensorFlow's do; what an op is named after only says which attributes it has and which formats it
// refuses.
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "io/bmp.h"
#include "io/gif.h"
#include "io/jpeg.h"
#include "io/png_decoder.h"
#include "kernels/common/kernel_util.h"
#include "kernels/host_kernels.h"
#include "kernels/kernel_context.h"

namespace millrace {
namespace {

StatusOr<std::string_view> ContentsOf(const Tensor& contents) {
  if (contents.num_elements() != 1) {
    return errors::InvalidArgument("`contents` must be scalar but got shape",
                                   contents.shape().DebugString());
  }
  const std::string& file = contents.data<std::string>()[0];
  if (file.size() > static_cast<std::size_t>(std::numeric_limits<int32_t>::max())) {
    return errors::InvalidArgument("Input contents are too large: ", file.size(), " bytes");
  }
  return std::string_view(file);
}

class DecodeImageKernel : public Kernel {
 public:
  explicit DecodeImageKernel(KernelConstruction& c)
      : Kernel(c),
        op_(c.def().name()),
        crops_(op_ == "DecodeAndCropJpeg"),
        channels_(op_ == "DecodeGif" ? 3 : c.attr<int64_t>("channels")),
        expand_(op_ == "DecodeGif" || c.attrs().GetOr<bool>("expand_animations", false)),
        dtype_(c.output_types()[0]) {
    if (channels_ != 0 && channels_ != 1 && channels_ != 3 && channels_ != 4) {
      c.SetError(errors::InvalidArgument("`channels` must be 0, 1, 3 or 4 but got ", channels_));
    }
    jpeg_.channels = static_cast<int>(channels_);
    if (op_ == "DecodeJpeg" || crops_) ReadJpegAttributes(c);
  }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const std::string_view file, ContentsOf(ctx.input(0)));
    if (file.empty()) return errors::InvalidArgument("Input is empty.");
    if (file.starts_with("\xff\xd8\xff")) return DecodeJpegFile(ctx, file);
    if (file.starts_with("\x89PNG\r\n\x1a\n")) return DecodePngFile(ctx, file);
    if (file.starts_with("GIF8")) return DecodeGifFile(ctx, file);
    if (file.starts_with("BM")) return DecodeBmpFile(ctx, file);
    return errors::InvalidArgument(
        "Unknown image file format. One of JPEG, PNG, GIF, BMP required.");
  }

 private:
  void ReadJpegAttributes(KernelConstruction& c) {
    const auto ratio = c.attr<int64_t>("ratio");
    if (ratio != 1 && ratio != 2 && ratio != 4 && ratio != 8) {
      c.SetError(errors::InvalidArgument("ratio must be 1, 2, 4, or 8, got ", ratio));
    }
    jpeg_.ratio = static_cast<int>(ratio);
    jpeg_.fancy_upscaling = c.attr<bool>("fancy_upscaling");
    jpeg_.try_recover_truncated = c.attr<bool>("try_recover_truncated");
    const auto method = c.attr<std::string>("dct_method");
    if (method != "" && method != "INTEGER_FAST" && method != "INTEGER_ACCURATE") {
      c.SetError(errors::InvalidArgument(
          "dct_method must be one of {'', 'INTEGER_FAST', 'INTEGER_ACCURATE'}"));
    }
    jpeg_.accurate_transform = method == "INTEGER_ACCURATE";
  }

  Status Check(std::string_view format, std::string_view use) const {
    if (crops_ && format != "JPEG") {
      return errors::InvalidArgument(
          "DecodeAndCropJpeg operation can run on JPEG only, but detected ", format, ".");
    }
    if (op_ == "DecodeBmp" && format != "BMP") {
      return errors::InvalidArgument("Trying to decode ", format,
                                     " format using DecodeBmp op. Use `", use,
                                     "` or `decode_image` instead.");
    }
    return OkStatus();
  }

  StatusOr<Tensor*> Output(KernelContext& ctx, const ImageSize& size, bool frames) const {
    Dims dims = {size.height, size.width, size.channels};
    if (frames) dims.insert(dims.begin(), size.frames);
    MR_ASSIGN_OR_RETURN(const Shape shape, MakeShape(dims));
    return ctx.AllocateOutput(0, shape);
  }

  // Runs `decode`, which takes room for bytes, and makes of these what the op gives.
  template <typename Decode>
  Status DecodeBytes(KernelContext& ctx, bool frames, const Decode& decode) const {
    Tensor bytes;
    Tensor* out = nullptr;
    const PixelRoom room = [&](const ImageSize& size) -> StatusOr<uint8_t*> {
      MR_ASSIGN_OR_RETURN(out, Output(ctx, size, frames));
      if (dtype_ == kUint8) return out->data<uint8_t>();
      MR_ASSIGN_OR_RETURN(bytes, ctx.AllocateTemp(kUint8, out->shape()));
      return bytes.data<uint8_t>();
    };
    MR_RETURN_IF_ERROR(decode(room));
    if (dtype_ == kUint8) return OkStatus();
    const uint8_t* const from = bytes.data<uint8_t>();
    const int64_t n = bytes.num_elements();
    if (dtype_ == kUint16) {
      auto* to = out->data<uint16_t>();
      for (int64_t i = 0; i < n; ++i) to[i] = static_cast<uint16_t>(from[i] * 256);
    } else {
      auto* to = out->data<float>();
      for (int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(from[i]) * (1.0f / 255.0f);
    }
    return OkStatus();
  }

  Status DecodeJpegFile(KernelContext& ctx, std::string_view file) const {
    MR_RETURN_IF_ERROR(Check("JPEG", "decode_jpeg"));
    if (channels_ == 4) return errors::InvalidArgument("JPEG does not support 4 channels");
    JpegReading reading = jpeg_;
    if (crops_) {
      const Tensor& window = ctx.input(1);
      if (window.rank() != 1) {
        return errors::InvalidArgument("crop_window must be 1-D, got shape ",
                                       window.shape().DebugString());
      }
      if (window.num_elements() != 4) {
        return errors::InvalidArgument("crop_size must have four elements ",
                                       window.shape().DebugString());
      }
      const int32_t* const at = window.data<int32_t>();
      reading.crop = JpegCrop{at[0], at[1], at[2], at[3]};
    }
    return DecodeBytes(ctx, op_ == "DecodeGif",
                       [&](const PixelRoom& room) { return DecodeJpeg(file, reading, room); });
  }

  Status DecodePngFile(KernelContext& ctx, std::string_view file) const {
    MR_RETURN_IF_ERROR(Check("PNG", "decode_png"));
    const int bits = dtype_ == kUint8 ? 8 : 16;
    MR_ASSIGN_OR_RETURN(const PngPixels image, DecodePng(file, static_cast<int>(channels_), bits));
    MR_ASSIGN_OR_RETURN(
        Tensor * out, Output(ctx, {image.height, image.width, image.channels}, op_ == "DecodeGif"));
    if (dtype_ != kFloat) {
      std::memcpy(out->raw_data(), image.bytes.data(), image.bytes.size());
      return OkStatus();
    }
    const auto* from = reinterpret_cast<const uint16_t*>(image.bytes.data());
    auto* to = out->data<float>();
    for (int64_t i = 0; i < out->num_elements(); ++i) {
      to[i] = static_cast<float>(from[i]) * (1.0f / 65535.0f);
    }
    return OkStatus();
  }

  Status DecodeGifFile(KernelContext& ctx, std::string_view file) const {
    MR_RETURN_IF_ERROR(Check("GIF", "decode_gif"));
    if (channels_ != 0 && channels_ != 3) {
      return errors::InvalidArgument("channels must be 0 or 3 for GIF, got ", channels_);
    }
    const bool first_only = op_ == "DecodeImage" && !expand_;
    return DecodeBytes(ctx, expand_, [&](const PixelRoom& room) {
      return DecodeGif(file, first_only, [&](const ImageSize& size) -> StatusOr<uint8_t*> {
        if (!expand_ && size.frames != 1) {
          return errors::InvalidArgument("Got ", size.frames,
                                         " frames, but animated gifs can only be decoded by "
                                         "tf.io.decode_gif or tf.io.decode_image");
        }
        return room(size);
      });
    });
  }

  Status DecodeBmpFile(KernelContext& ctx, std::string_view file) const {
    MR_RETURN_IF_ERROR(Check("BMP", "decode_bmp"));
    if (op_ != "DecodeBmp" && op_ != "DecodeImage") {
      return errors::InvalidArgument("Trying to decode BMP format using a wrong op. Use ",
                                     "`decode_bmp` or `decode_image` instead. Op used: ", op_);
    }
    return DecodeBytes(ctx, false, [&](const PixelRoom& room) {
      return DecodeBmp(file, static_cast<int>(channels_), room);
    });
  }

  const std::string op_;
  const bool crops_;
  const int64_t channels_;
  const bool expand_;
  JpegReading jpeg_;
  const DataType dtype_;
};

class ExtractJpegShapeKernel : public Kernel {
 public:
  explicit ExtractJpegShapeKernel(KernelConstruction& c) : Kernel(c), dtype_(c.output_types()[0]) {}

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const std::string_view file, ContentsOf(ctx.input(0)));
    MR_ASSIGN_OR_RETURN(const ImageSize size, JpegFileSize(file));
    const int64_t sizes[] = {size.height, size.width, size.channels};
    ctx.SetOutput(0, IndexTensor(dtype_, sizes));
    return OkStatus();
  }

 private:
  const DataType dtype_;
};

}  // namespace

void RegisterDecodeImageKernels(KernelRegistry& r) {
  for (const char* op :
       {"DecodeAndCropJpeg", "DecodeBmp", "DecodeGif", "DecodeImage", "DecodeJpeg", "DecodePng"}) {
    RegisterCpu<DecodeImageKernel>(r, op);
  }
  RegisterCpu<ExtractJpegShapeKernel>(r, "ExtractJpegShape");
}

}  // namespace millrace
