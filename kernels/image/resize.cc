// SPDX-License-Identifier: Apache-2.0
// Images in another size: ResizeBilinear and ResizeNearestNeighbor, and their gradients.
#include <algorithm>
#include <cmath>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/all_kernels.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/kernel_util.h"
#include "kernels/kernel_context.h"

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

  const bool align_corners_, half_pixel_;
};

class ResizeBilinearKernel : public ResizeKernel {
 public:
  using ResizeKernel::ResizeKernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& images = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const Shape shape, ResultShape(ctx));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    if (shape.num_elements() == 0) return OkStatus();  // its axes may be of any size
    const std::vector<Mix> rows = MixesOf(images.dim(1), shape.dim(1));
    const std::vector<Mix> columns = MixesOf(images.dim(2), shape.dim(2));
    DispatchType(RealTypes(), images.dtype(), [&]<typename T>() {
      Run<T>(ctx, images, shape, rows, columns, out->data<float>());
    });
    return OkStatus();
  }

 private:
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
    if (shape.num_elements() == 0) return OkStatus();
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
};

// The images whose enlargement has these gradients: each is shared among the four neighbours that
// it was made of.
template <typename T>
class ResizeBilinearGradKernel : public ResizeKernel {
 public:
  using ResizeKernel::ResizeKernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor &grads = ctx.input(0), &images = ctx.input(1);
    if (grads.rank() != 4 || images.rank() != 4 || grads.dim(0) != images.dim(0) ||
        grads.dim(3) != images.dim(3)) {
      return errors::InvalidArgument(
          "input_grad and original_image must be 4-dimensional and agree in batch and channels: ",
          grads.shape().DebugString(), ", ", images.shape().DebugString());
    }
    using C = ComputeType<T>;
    MR_ASSIGN_OR_RETURN(Tensor sums, ctx.AllocateTemp(DataTypeOf<C>(), images.shape()));
    C* sum = sums.data<C>();
    std::fill_n(sum, images.num_elements(), C(0));
    const int64_t in_rows = images.dim(1), in_columns = images.dim(2), channels = images.dim(3);
    const int64_t out_rows = grads.dim(1), out_columns = grads.dim(2);
    if (images.num_elements() > 0 && grads.num_elements() > 0) {
      const std::vector<Mix> rows = MixesOf(in_rows, out_rows);
      const std::vector<Mix> columns = MixesOf(in_columns, out_columns);
      const float* grad = grads.data<float>();
      for (int64_t r = 0; r < grads.dim(0) * out_rows; ++r) {
        const Mix& y = rows[static_cast<std::size_t>(r % out_rows)];
        C* image = sum + r / out_rows * in_rows * in_columns * channels;
        C *top = image + y.lower * in_columns * channels,
          *bottom = image + y.upper * in_columns * channels;
        for (int64_t x = 0; x < out_columns; ++x) {
          const Mix& m = columns[static_cast<std::size_t>(x)];
          for (int64_t c = 0; c < channels; ++c) {
            const C g = static_cast<C>(*grad++), v = static_cast<C>(y.weight),
                    h = static_cast<C>(m.weight);
            top[m.lower * channels + c] += g * (1 - v) * (1 - h);
            top[m.upper * channels + c] += g * (1 - v) * h;
            bottom[m.lower * channels + c] += g * v * (1 - h);
            bottom[m.upper * channels + c] += g * v * h;
          }
        }
      }
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, images.shape()));
    for (int64_t i = 0; i < out->num_elements(); ++i) out->data<T>()[i] = static_cast<T>(sum[i]);
    return OkStatus();
  }
};

template <typename T>
class ResizeNearestGradKernel : public ResizeKernel {
 public:
  using ResizeKernel::ResizeKernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& grads = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const Shape shape, ResultShape(ctx));
    using C = ComputeType<T>;
    MR_ASSIGN_OR_RETURN(Tensor sums, ctx.AllocateTemp(DataTypeOf<C>(), shape));
    C* sum = sums.data<C>();
    std::fill_n(sum, shape.num_elements(), C(0));
    const int64_t channels = grads.dim(3), out_rows = grads.dim(1), out_columns = grads.dim(2);
    if (grads.num_elements() > 0) {
      const std::vector<int64_t> rows = NearestOf(shape.dim(1), out_rows);
      const std::vector<int64_t> columns = NearestOf(shape.dim(2), out_columns);
      const T* grad = grads.data<T>();
      for (int64_t r = 0; r < grads.dim(0) * out_rows; ++r) {
        const int64_t row =
            r / out_rows * shape.dim(1) + rows[static_cast<std::size_t>(r % out_rows)];
        for (int64_t x = 0; x < out_columns; ++x) {
          C* to = sum + (row * shape.dim(2) + columns[static_cast<std::size_t>(x)]) * channels;
          for (int64_t c = 0; c < channels; ++c) {
            to[c] = static_cast<C>(to[c] + static_cast<C>(*grad++));
          }
        }
      }
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    for (int64_t i = 0; i < out->num_elements(); ++i) out->data<T>()[i] = static_cast<T>(sum[i]);
    return OkStatus();
  }
};

template <template <typename> class K, typename... Ts>
void RegisterResizeGrad(KernelRegistry& r, const char* op, TypeList<Ts...>) {
  (r.Register(KernelDef(op).Type<Ts>("T"), &MakeKernel<K<Ts>>), ...);
}

}  // namespace

void RegisterResizeKernels(KernelRegistry& r) {
  r.Register(KernelDef("ResizeBilinear").Types("T", DataTypesOf(RealTypes())),
             MakeKernel<ResizeBilinearKernel>);
  r.Register(KernelDef("ResizeNearestNeighbor").Types("T", DataTypesOf(RealTypes())),
             MakeKernel<ResizeNearestKernel>);
  RegisterResizeGrad<ResizeBilinearGradKernel>(r, "ResizeBilinearGrad", FloatTypes());
  RegisterResizeGrad<ResizeNearestGradKernel>(
      r, "ResizeNearestNeighborGrad",
      TypeList<uint8_t, int8_t, int32_t, Half, float, double, BFloat16>());
}

}  // namespace millrace
