// Images in another size: ResizeBilinear and ResizeNearestNeighbor.
#include <algorithm>
#include <cmath>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/all_kernels.h"
#include "kernels/dtype_dispatch.h"
#include "kernels/kernel_context.h"
#include "kernels/kernel_util.h"

namespace millrace {
namespace {

class ResizeKernel : public Kernel {
 public:
  explicit ResizeKernel(KernelConstruction& c)
      : Kernel(c),
        align_corners_(c.attr<bool>("align_corners")),
        half_pixel_(c.attr<bool>("half_pixel_centers")) {
    if (align_corners_ && half_pixel_) {
      c.SetError(
          errors::InvalidArgument("If half_pixel_centers is True, align_corners must be False."));
    }
  }

 protected:
  // [batch, rows, columns, channels] of the result.
  StatusOr<Shape> ResultShape(KernelContext& ctx) const {
    const Tensor& images = ctx.input(0);
    if (images.rank() != 4) {
      return errors::InvalidArgument("input must be 4-dimensional", images.shape().DebugString());
    }
    const Tensor& size = ctx.input(1);
    if (size.rank() != 1 || size.dim(0) != 2) {
      return errors::InvalidArgument("shape_t must have two elements", size.shape().DebugString());
    }
    const int64_t rows = size.data<int32_t>()[0], columns = size.data<int32_t>()[1];
    if (rows <= 0 || columns <= 0) {
      return errors::InvalidArgument("output dimensions must be positive");
    }
    if (images.dim(1) <= 0 || images.dim(2) <= 0) {
      return errors::InvalidArgument("input image must be of non-zero size");
    }
    return MakeShape(std::vector<int64_t>{images.dim(0), rows, columns, images.dim(3)});
  }

  float Scale(int64_t in, int64_t out) const {
    return align_corners_ && out > 1 ? static_cast<float>(in - 1) / static_cast<float>(out - 1)
                                     : static_cast<float>(in) / static_cast<float>(out);
  }

  const bool align_corners_, half_pixel_;
};

class ResizeBilinearKernel : public ResizeKernel {
 public:
  using ResizeKernel::ResizeKernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& images = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const Shape shape, ResultShape(ctx));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    const std::vector<Mix> rows = MixesOf(images.dim(1), shape.dim(1));
    const std::vector<Mix> columns = MixesOf(images.dim(2), shape.dim(2));
    DispatchType(RealTypes(), images.dtype(), [&]<typename T>() {
      Run<T>(ctx, images, shape, rows, columns, out->data<float>());
    });
    return OkStatus();
  }

 private:
  // A place between two neighbours; `weight` is the upper one's.
  struct Mix {
    int64_t lower, upper;
    float weight;
  };

  std::vector<Mix> MixesOf(int64_t in, int64_t out) const {
    const float scale = Scale(in, out);
    std::vector<Mix> mixes(static_cast<std::size_t>(out));
    for (int64_t i = 0; i < out; ++i) {
      const float at = half_pixel_ ? (static_cast<float>(i) + 0.5f) * scale - 0.5f
                                   : static_cast<float>(i) * scale;
      const float floor = std::floor(at);
      mixes[static_cast<std::size_t>(i)] = {
          std::clamp<int64_t>(static_cast<int64_t>(floor), 0, in - 1),
          std::clamp<int64_t>(static_cast<int64_t>(std::ceil(at)), 0, in - 1), at - floor};
    }
    return mixes;
  }

  template <typename T>
  static void Run(KernelContext& ctx, const Tensor& images, const Shape& shape,
                  const std::vector<Mix>& rows, const std::vector<Mix>& columns, float* out) {
    const int64_t in_rows = images.dim(1), in_columns = images.dim(2), channels = images.dim(3);
    const int64_t out_rows = shape.dim(1), out_columns = shape.dim(2);
    const T* in = images.data<T>();
    ctx.ParallelFor(shape.dim(0) * out_rows, 2.0 * static_cast<double>(out_columns * channels),
                    [&](int64_t begin, int64_t end) {
                      for (int64_t r = begin; r < end; ++r) {
                        const Mix& y = rows[static_cast<std::size_t>(r % out_rows)];
                        const T* image = in + r / out_rows * in_rows * in_columns * channels;
                        const T* top = image + y.lower * in_columns * channels;
                        const T* bottom = image + y.upper * in_columns * channels;
                        for (int64_t x = 0; x < out_columns; ++x) {
                          const Mix& m = columns[static_cast<std::size_t>(x)];
                          float* to = out + (r * out_columns + x) * channels;
                          for (int64_t c = 0; c < channels; ++c) {
                            const float a = Between(top[m.lower * channels + c],
                                                    top[m.upper * channels + c], m.weight);
                            const float b = Between(bottom[m.lower * channels + c],
                                                    bottom[m.upper * channels + c], m.weight);
                            to[c] = a + (b - a) * y.weight;
                          }
                        }
                      }
                    });
  }

  template <typename T>
  static float Between(const T& a, const T& b, float weight) {
    const float x = static_cast<float>(a), y = static_cast<float>(b);
    return x + (y - x) * weight;
  }
};

class ResizeNearestKernel : public ResizeKernel {
 public:
  using ResizeKernel::ResizeKernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& images = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const Shape shape, ResultShape(ctx));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    const std::vector<int64_t> rows = NearestOf(images.dim(1), shape.dim(1));
    const std::vector<int64_t> columns = NearestOf(images.dim(2), shape.dim(2));
    const int64_t in_rows = images.dim(1), in_columns = images.dim(2), channels = images.dim(3);
    const int64_t out_rows = shape.dim(1), out_columns = shape.dim(2);
    DispatchMovable(images.dtype(), [&]<typename T>() {
      const T* in = static_cast<const T*>(images.raw_data());
      T* to = static_cast<T*>(out->raw_data());
      ctx.ParallelFor(shape.dim(0) * out_rows, static_cast<double>(out_columns * channels),
                      [&](int64_t begin, int64_t end) {
                        for (int64_t r = begin; r < end; ++r) {
                          const int64_t row =
                              r / out_rows * in_rows + rows[static_cast<std::size_t>(r % out_rows)];
                          for (int64_t x = 0; x < out_columns; ++x) {
                            const int64_t column = columns[static_cast<std::size_t>(x)];
                            std::copy_n(in + (row * in_columns + column) * channels, channels,
                                        to + (r * out_columns + x) * channels);
                          }
                        }
                      });
    });
    return OkStatus();
  }

 private:
  std::vector<int64_t> NearestOf(int64_t in, int64_t out) const {
    const float scale = Scale(in, out);
    std::vector<int64_t> nearest(static_cast<std::size_t>(out));
    for (int64_t i = 0; i < out; ++i) {
      const float at =
          half_pixel_ ? (static_cast<float>(i) + 0.5f) * scale : static_cast<float>(i) * scale;
      const float whole = align_corners_ ? std::round(at) : std::floor(at);
      nearest[static_cast<std::size_t>(i)] =
          std::clamp<int64_t>(static_cast<int64_t>(whole), 0, in - 1);
    }
    return nearest;
  }
};

}  // namespace

void RegisterResizeKernels(KernelRegistry& r) {
  r.Register(KernelDef("ResizeBilinear").Types("T", DataTypesOf(RealTypes())),
             MakeKernel<ResizeBilinearKernel>);
  r.Register(KernelDef("ResizeNearestNeighbor").Types("T", DataTypesOf(RealTypes())),
             MakeKernel<ResizeNearestKernel>);
}

}  // namespace millrace
