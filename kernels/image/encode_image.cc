// SPDX-License-Identifier: Apache-2.0
// Images as files.
#include <string>

#include "base/errors.h"
#include "base/status_macros.h"
#include "io/jpeg.h"
#include "io/png_encoder.h"
#include "kernels/common/kernel_util.h"
#include "kernels/host_kernels.h"
#include "kernels/kernel_context.h"

namespace millrace {
namespace {

Status CheckQuality(int64_t quality) {
  if (quality < 0 || quality > 100) {
    return errors::InvalidArgument("quality must be in [0,100], got ", quality);
  }
  return OkStatus();
}

// Both ops: the quality is an attribute, or input 1.
class EncodeJpegKernel : public Kernel {
 public:
  explicit EncodeJpegKernel(KernelConstruction& c)
      : Kernel(c), quality_given_(c.def().input_arg_size() > 1) {
    if (quality_given_) return;
    format_ = c.attr<std::string>("format");
    xmp_ = c.attr<std::string>("xmp_metadata");
    const auto quality = c.attr<int64_t>("quality");
    if (Status status = CheckQuality(quality); !status.ok()) c.SetError(std::move(status));
    writing_.quality = static_cast<int>(quality);
    writing_.progressive = c.attr<bool>("progressive");
    writing_.optimize_size = c.attr<bool>("optimize_size");
    writing_.chroma_downsampling = c.attr<bool>("chroma_downsampling");
    writing_.density_per_cm = c.attr<std::string>("density_unit") == "cm";
    writing_.x_density = static_cast<int>(c.attr<int64_t>("x_density"));
    writing_.y_density = static_cast<int>(c.attr<int64_t>("y_density"));
    writing_.xmp_metadata = xmp_;
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& image = ctx.input(0);
    if (image.rank() != 3) {
      return errors::InvalidArgument("image must be 3-dimensional", image.shape().DebugString());
    }
    const int64_t channels = image.dim(2);
    JpegWriting writing = writing_;
    if (quality_given_) {
      MR_ASSIGN_OR_RETURN(const int64_t quality, IntScalar(ctx.input(1), "quality"));
      MR_RETURN_IF_ERROR(CheckQuality(quality));
      writing.quality = static_cast<int>(quality);
    }
    const int64_t expected = format_ == "grayscale" ? 1 : 3;
    if (!format_.empty() && channels != expected) {
      return errors::InvalidArgument("format ", format_, " expects ", expected, " channels, got ",
                                     image.shape().DebugString());
    }
    if (channels != 1 && channels != 3) {
      return errors::InvalidArgument("image must have 1 or 3 channels, got ",
                                     image.shape().DebugString());
    }
    auto file = EncodeJpeg(image.flat<uint8_t>(), image.dim(0), image.dim(1),
                           static_cast<int>(channels), writing);
    if (!file.ok()) {
      return errors::Internal("JPEG encoding failed: ", file.status().message());
    }
    ctx.SetOutput(0, Tensor::String(*std::move(file)));
    return OkStatus();
  }

 private:
  const bool quality_given_;
  std::string format_, xmp_;
  JpegWriting writing_;
};

class EncodePngKernel : public Kernel {
 public:
  explicit EncodePngKernel(KernelConstruction& c)
      : Kernel(c), compression_(c.attr<int64_t>("compression")) {
    if (compression_ < -1 || compression_ > 9) {
      c.SetError(errors::InvalidArgument("compression should be in [-1,9], got ", compression_));
    }
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& images = ctx.input(0);
    const int rank = images.rank();
    if (rank < 3) {
      return errors::InvalidArgument("images must be at least rank 3",
                                     images.shape().DebugString());
    }
    const int64_t channels = images.dim(rank - 1);
    if (channels < 1 || channels > 4) {
      return errors::InvalidArgument("image must have 1, 2, 3, or 4 channels, got ", channels);
    }
    const Dims dims(images.shape().dims().begin(), images.shape().dims().end() - 3);
    MR_ASSIGN_OR_RETURN(const Shape shape, MakeShape(dims));
    if (images.num_elements() == 0 && shape.num_elements() != 0) {
      return errors::Internal("PNG encoding failed: there is no pixel in ",
                              images.shape().DebugString());
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    const int64_t size = static_cast<int64_t>(DataTypeSize(images.dtype()));
    PngSource image{images.raw_data(), images.dim(rank - 3), images.dim(rank - 2),
                    static_cast<int>(channels), static_cast<int>(8 * size)};
    const int64_t bytes =
        shape.num_elements() == 0 ? 0 : images.num_elements() / shape.num_elements() * size;
    for (int64_t i = 0; i < shape.num_elements(); ++i) {
      image.pixels = static_cast<const uint8_t*>(images.raw_data()) + i * bytes;
      auto file = PackPng(image, static_cast<int>(compression_));
      if (!file.ok()) {
        return errors::Internal("PNG encoding failed: ", file.status().message());
      }
      out->data<std::string>()[i] = *std::move(file);
    }
    return OkStatus();
  }

 private:
  const int64_t compression_;
};

}  // namespace

void RegisterEncodeImageKernels(KernelRegistry& r) {
  RegisterCpu<EncodeJpegKernel>(r, "EncodeJpeg");
  RegisterCpu<EncodeJpegKernel>(r, "EncodeJpegVariableQuality");
  RegisterCpu<EncodePngKernel>(r, "EncodePng");
}

}  // namespace millrace
