// SPDX-License-Identifier: Apache-2.0
// Images in summaries, packed as PNG.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "io/png.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/kernel_util.h"
#include "kernels/common/message_text.h"
#include "kernels/host_kernels.h"
#include "kernels/kernel_context.h"
#include "proto/summary.pb.h"

namespace millrace {
namespace {

class ImageSummaryKernel : public Kernel {
 public:
  explicit ImageSummaryKernel(KernelConstruction& c)
      : Kernel(c), max_images_(c.attr<int64_t>("max_images")) {
    const Tensor bad = c.attr<Tensor>("bad_color");
    if (bad.dtype() != kUint8 || bad.rank() != 1) {
      c.SetError(errors::InvalidArgument("bad_color must be a vector of uint8"));
      return;
    }
    for (int64_t i = 0; i < bad.num_elements(); ++i) bad_.push_back(bad.data<uint8_t>()[i]);
  }
  Status Compute(KernelContext& ctx) override {
    const Tensor &tag = ctx.input(0), images = ctx.locked_input(1);
    if (tag.num_elements() != 1) return errors::InvalidArgument("Tag must be a scalar");
    const int64_t channels = images.rank() == 4 ? images.dim(3) : 0;
    if (channels != 1 && channels != 3 && channels != 4) {
      return errors::InvalidArgument("Tensor must be 4-D with last dim 1, 3, or 4, not ",
                                     images.shape().DebugString());
    }
    const int64_t height = images.dim(1), width = images.dim(2);
    const int64_t count = std::min(max_images_, images.dim(0));
    if (height <= 0 || width <= 0 || height > (1 << 24) || width > (1 << 24) ||
        height * width * channels > std::numeric_limits<int32_t>::max()) {
      return errors::InvalidArgument("Tensor too large or empty for summary ",
                                     images.shape().DebugString());
    }
    if (static_cast<int64_t>(bad_.size()) < channels) {
      return errors::InvalidArgument("expected depth <= bad_color.size, got depth = ", channels,
                                     ", bad_color.size = ", bad_.size());
    }
    pb::Summary summary;
    for (int64_t i = 0; i < count; ++i) {
      pb::Summary::Value* value = summary.add_value();
      value->set_tag(
          StrCat(tag.data<std::string>()[0], "/image", max_images_ > 1 ? StrCat("/", i) : ""));
      pb::Summary::Image* image = value->mutable_image();
      image->set_height(static_cast<int32_t>(height));
      image->set_width(static_cast<int32_t>(width));
      image->set_colorspace(static_cast<int32_t>(channels));
      MR_ASSIGN_OR_RETURN(*image->mutable_encoded_image_string(),
                          EncodePng(Pixels(images, i, height * width, static_cast<int>(channels)),
                                    height, width, static_cast<int>(channels)));
    }
    MR_ASSIGN_OR_RETURN(std::string text, MessageText(summary));
    ctx.SetOutput(0, Tensor::String(std::move(text)));
    return OkStatus();
  }

 private:
  std::vector<uint8_t> Pixels(const Tensor& images, int64_t i, int64_t points, int channels) const {
    const int64_t n = points * channels;
    if (images.dtype() == kUint8) {
      const uint8_t* from = images.data<uint8_t>() + i * n;
      return {from, from + n};
    }
    std::vector<float> values(n);
    DispatchType(TypeList<float, double, Half>(), images.dtype(), [&]<typename T>() {
      const T* from = images.data<T>() + i * n;
      for (int64_t k = 0; k < n; ++k) {
        values[k] = static_cast<float>(static_cast<ComputeType<T>>(from[k]));
      }
    });
    return Scale(values, points, channels);
  }

  // Onto 0 to 255: zero stays black, or grey if there are negative values.
  std::vector<uint8_t> Scale(const std::vector<float>& values, int64_t points, int channels) const {
    const auto finite = [&](int64_t p) {
      return std::all_of(values.begin() + p * channels, values.begin() + (p + 1) * channels,
                         [](float v) { return std::isfinite(v); });
    };
    float least = std::numeric_limits<float>::infinity(), most = -least;
    for (int64_t p = 0; p < points; ++p) {
      if (!finite(p)) continue;
      for (int k = 0; k < channels; ++k) {
        least = std::min(least, values[p * channels + k]);
        most = std::max(most, values[p * channels + k]);
      }
    }
    constexpr float kTiny = 1e-6f;
    float scale, offset;
    if (least < 0) {
      const float largest = std::max(std::abs(least), std::abs(most));
      scale = largest < kTiny ? 0.0f : 127.0f / largest;
      offset = 128.0f;
    } else {
      scale = most < kTiny ? 0.0f : 255.0f / most;
      offset = 0.0f;
    }
    std::vector<uint8_t> pixels(values.size());
    for (int64_t p = 0; p < points; ++p) {
      const bool good = finite(p);
      for (int k = 0; k < channels; ++k) {
        const int64_t at = p * channels + k;
        pixels[at] = good ? static_cast<uint8_t>(values[at] * scale + offset) : bad_[k];
      }
    }
    return pixels;
  }

  const int64_t max_images_;
  std::vector<uint8_t> bad_;
};

}  // namespace

void RegisterImageSummaryKernels(KernelRegistry& r) {
  RegisterCpu<ImageSummaryKernel>(r, "ImageSummary");
}

}  // namespace millrace
