// SPDX-License-Identifier: Apache-2.0
// Colours of images: between red, green, blue and hue, saturation, value; contrast; and the
// response normalisation of networks that came before batch normalisation.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/kernel_util.h"
#include "kernels/host_kernels.h"
#include "kernels/image/lrn_plan.h"
#include "kernels/kernel_context.h"

namespace millrace {
namespace {

// Hue, saturation and value within [0, 1], as are red, green and blue.
template <typename C>
void ToHsv(const C* rgb, C* hsv) {
  const C r = rgb[0], g = rgb[1], b = rgb[2];
  const C value = std::max({r, g, b}), range = value - std::min({r, g, b});
  const C sixth = range > C(0) ? C(1) / (C(6) * range) : C(0);
  C hue = value == r   ? sixth * (g - b)
          : value == g ? sixth * (b - r) + C(2) / C(6)
                       : sixth * (r - g) + C(4) / C(6);
  if (!(range > C(0))) hue = C(0);
  hsv[0] = hue < C(0) ? hue + C(1) : hue;
  hsv[1] = value > C(0) ? range / value : C(0);
  hsv[2] = value;
}

template <typename C>
void ToRgb(const C* hsv, C* rgb) {
  const C h = hsv[0] * C(6), s = hsv[1], v = hsv[2];
  const C parts[3] = {std::abs(h - C(3)) - C(1), C(2) - std::abs(h - C(2)),
                      C(2) - std::abs(h - C(4))};
  for (int i = 0; i < 3; ++i) {
    rgb[i] = (C(1) - s + s * std::clamp(parts[i], C(0), C(1))) * v;
  }
}

struct RgbToHsv {
  template <typename C>
  static void Do(C, const C* in, C* out) {
    ToHsv(in, out);
  }
};
struct HsvToRgb {
  template <typename C>
  static void Do(C, const C* in, C* out) {
    ToRgb(in, out);
  }
};
// Turns the hue, keeping the largest and the smallest of the three.
struct TurnHue {
  template <typename C>
  static void Do(C delta, const C* in, C* out) {
    const C high = std::max({in[0], in[1], in[2]}), low = std::min({in[0], in[1], in[2]});
    const C range = high - low;
    C hsv[3] = {};
    ToHsv(in, hsv);
    C hue = hsv[0] + delta;
    hue -= std::floor(hue);
    const C full[3] = {hue, C(1), C(1)};
    C pure[3];
    ToRgb(full, pure);
    for (int i = 0; i < 3; ++i) out[i] = low + pure[i] * range;
  }
};
struct ScaleSaturation {
  template <typename C>
  static void Do(C scale, const C* in, C* out) {
    C hsv[3];
    ToHsv(in, hsv);
    hsv[1] = std::clamp(hsv[1] * scale, C(0), C(1));
    ToRgb(hsv, out);
  }
};

// Pixel by pixel; `kTakesNumber`: a float besides the images.
template <typename Op, bool kTakesNumber>
class PixelKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& images = ctx.input(0);
    constexpr int kLeastRank = kTakesNumber ? 3 : 1;
    if (images.rank() < kLeastRank || images.dim(images.rank() - 1) != 3) {
      const std::string what =
          StrCat("input must be at least ", kLeastRank, "-D and have 3 channels, got shape ",
                 images.shape().DebugString());
      const bool by_depth = !kTakesNumber && images.rank() >= kLeastRank;  // as in TensorFlow
      return by_depth ? errors::FailedPrecondition(what) : errors::InvalidArgument(what);
    }
    float number = 0;
    if (kTakesNumber) {
      if (ctx.input(1).rank() != 0) {
        return errors::InvalidArgument(def().input_arg(1).name(),
                                       " must be scalar: ", ctx.input(1).shape().DebugString());
      }
      number = ctx.input(1).scalar<float>();
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, images.shape()));
    DispatchType(FloatTypes(), images.dtype(), [&]<typename T>() {
      using C = ComputeType<T>;
      const T* from = images.data<T>();
      T* to = out->data<T>();
      ctx.ParallelFor(images.num_elements() / 3, 10, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          C in[3], made[3];
          for (int k = 0; k < 3; ++k) in[k] = static_cast<C>(from[3 * i + k]);
          Op::Do(static_cast<C>(number), in, made);
          for (int k = 0; k < 3; ++k) to[3 * i + k] = static_cast<T>(made[k]);
        }
      });
    });
    return OkStatus();
  }
};

// Away from the mean of each channel of each image.
class AdjustContrastKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor &images = ctx.input(0), &factor = ctx.input(1);
    if (images.rank() < 3) {
      return errors::InvalidArgument("input must be at least 3-D, got shape",
                                     images.shape().DebugString());
    }
    if (factor.rank() != 0) {
      return errors::InvalidArgument("contrast_factor must be scalar: ",
                                     factor.shape().DebugString());
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, images.shape()));
    if (images.num_elements() == 0) return OkStatus();
    const int64_t channels = images.dim(images.rank() - 1);
    const int64_t pixels = images.dim(images.rank() - 2) * images.dim(images.rank() - 3);
    const float by = factor.scalar<float>();
    DispatchType(FloatTypes(), images.dtype(), [&]<typename T>() {
      const int64_t size = pixels * channels;
      ctx.ParallelFor(images.num_elements() / size, 2.0 * static_cast<double>(size),
                      [&](int64_t begin, int64_t end) {
                        for (int64_t i = begin; i < end; ++i) {
                          Adjust(images.data<T>() + i * size, pixels, channels, by,
                                 out->data<T>() + i * size);
                        }
                      });
    });
    return OkStatus();
  }

 private:
  template <typename T>
  static void Adjust(const T* in, int64_t pixels, int64_t channels, float by, T* out) {
    for (int64_t c = 0; c < channels; ++c) {
      double sum = 0;
      for (int64_t p = 0; p < pixels; ++p)
        sum += static_cast<double>(static_cast<ComputeType<T>>(in[p * channels + c]));
      const auto mean = static_cast<float>(sum / static_cast<double>(pixels));
      for (int64_t p = 0; p < pixels; ++p) {
        const auto x = static_cast<float>(in[p * channels + c]);
        out[p * channels + c] = static_cast<T>((x - mean) * by + mean);
      }
    }
  }
};

// Krizhevsky, Sutskever and Hinton, "ImageNet Classification with Deep Convolutional Neural
// Networks" (2012), section 3.3: each channel is divided by a power of
// bias + alpha * (squares of it and its neighbours).
class LrnKernel : public Kernel {
 public:
  explicit LrnKernel(KernelConstruction& c)
      : Kernel(c), attrs_(c), is_gradient_(c.def().name() == "LRNGrad") {}

  Status Compute(KernelContext& ctx) override {
    const Tensor& images = ctx.input(is_gradient_ ? 1 : 0);
    MR_RETURN_IF_ERROR(CheckLrnImages(images.shape()));
    for (int i = 0; i < ctx.num_inputs(); ++i) {
      MR_RETURN_IF_ERROR(CheckLrnInput(images.shape(), ctx.input(i).shape()));
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, images.shape()));
    const int64_t depth = images.dim(3);
    if (images.num_elements() == 0) return OkStatus();
    DispatchType(TypeList<float, Half, BFloat16>(), images.dtype(), [&]<typename T>() {
      ctx.ParallelFor(
          images.num_elements() / depth, 30.0 * static_cast<double>(depth),
          [&](int64_t begin, int64_t end) {
            std::vector<float> sums(static_cast<std::size_t>(depth));
            std::vector<float> gradient(static_cast<std::size_t>(depth));
            for (int64_t i = begin; i < end; ++i) {
              const T* in = images.data<T>() + i * depth;
              T* to = out->data<T>() + i * depth;
              Norms(in, depth, sums.data());
              if (!is_gradient_) {
                for (int64_t k = 0; k < depth; ++k) {
                  to[k] =
                      static_cast<T>(static_cast<float>(in[k]) * std::pow(sums[k], -attrs_.beta));
                }
                continue;
              }
              Back(in, ctx.input(0).data<T>() + i * depth, ctx.input(2).data<T>() + i * depth,
                   depth, sums.data(), gradient.data());
              for (int64_t k = 0; k < depth; ++k) to[k] = static_cast<T>(gradient[k]);
            }
          });
    });
    return OkStatus();
  }

 private:
  // sums[k] = bias + alpha * (squares of in[k - radius] to in[k + radius])
  template <typename T>
  void Norms(const T* in, int64_t depth, float* sums) const {
    for (int64_t k = 0; k < depth; ++k) {
      float sum = 0;
      for (int64_t j = First(k); j < Last(k, depth); ++j) {
        sum += static_cast<float>(in[j]) * static_cast<float>(in[j]);
      }
      sums[k] = attrs_.bias + attrs_.alpha * sum;
    }
  }

  template <typename T>
  void Back(const T* in, const T* above, const T* out, int64_t depth, const float* sums,
            float* gradient) const {
    std::fill_n(gradient, depth, 0.0f);
    for (int64_t j = 0; j < depth; ++j) {
      const auto g = static_cast<float>(above[j]);
      const float share = -2 * attrs_.alpha * attrs_.beta * static_cast<float>(out[j]) / sums[j];
      for (int64_t k = First(j); k < Last(j, depth); ++k) {
        float part = share * static_cast<float>(in[k]);
        if (k == j) part += std::pow(sums[j], -attrs_.beta);
        gradient[k] += part * g;
      }
    }
  }

  int64_t First(int64_t k) const { return k > attrs_.radius ? k - attrs_.radius : 0; }
  int64_t Last(int64_t k, int64_t depth) const {
    return depth - k > attrs_.radius ? k + attrs_.radius + 1 : depth;
  }

  const LrnAttrs attrs_;
  const bool is_gradient_;
};

}  // namespace

void RegisterImageColorKernels(KernelRegistry& r) {
  r.Register(KernelDef("RGBToHSV").Types("T", DataTypesOf(FloatTypes())),
             MakeKernel<PixelKernel<RgbToHsv, false>>);
  r.Register(KernelDef("HSVToRGB").Types("T", DataTypesOf(FloatTypes())),
             MakeKernel<PixelKernel<HsvToRgb, false>>);
  r.Register(KernelDef("AdjustHue").Types("T", {kFloat, kHalf}),
             MakeKernel<PixelKernel<TurnHue, true>>);
  r.Register(KernelDef("AdjustSaturation").Types("T", {kFloat, kHalf}),
             MakeKernel<PixelKernel<ScaleSaturation, true>>);
  r.Register(KernelDef("AdjustContrastv2").Types("T", {kFloat, kHalf}),
             MakeKernel<AdjustContrastKernel>);
  for (const char* op : {"LRN", "LRNGrad"}) {
    r.Register(KernelDef(op).Types("T", {kFloat, kHalf, kBfloat16}), MakeKernel<LrnKernel>);
  }
}

}  // namespace millrace
