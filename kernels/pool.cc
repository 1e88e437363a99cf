// MaxPool, AvgPool and their gradients over NHWC images.
#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/dtype_dispatch.h"
#include "kernels/kernel.h"
#include "kernels/kernel_context.h"
#include "kernels/kernel_registry.h"
#include "kernels/window.h"

namespace millrace {
namespace {

// The window over depth is of max pools only: it neither overlaps nor is padded.
struct Geometry {
  int64_t batch = 0, channels = 0, depth_window = 1;
  WindowAxis rows, cols;

  int64_t out_channels() const { return channels / depth_window; }
  int64_t image() const { return rows.input * cols.input * channels; }
  int64_t out_image() const { return rows.output * cols.output * out_channels(); }
  Shape OutputShape() const { return {batch, rows.output, cols.output, out_channels()}; }
};

class PoolKernel : public Kernel {
 public:
  explicit PoolKernel(KernelConstruction& c)
      : Kernel(c), attrs_(c), ksize_(c.attr<std::vector<int64_t>>("ksize")) {
    if (ksize_.size() != 4 || *std::min_element(ksize_.begin(), ksize_.end()) < 1 ||
        ksize_[0] != 1) {
      c.SetError(
          errors::InvalidArgument("ksize must have 4 positive elements, the first of them 1"));
      ksize_ = {1, 1, 1, 1};
    }
  }

 protected:
  StatusOr<Geometry> MakeGeometry(const Shape& input) const {
    if (input.rank() != 4) {
      return errors::InvalidArgument("tensor_in must be 4-dimensional: ", input.DebugString());
    }
    Geometry g;
    g.batch = input.dim(0);
    g.channels = input.dim(3);
    g.depth_window = ksize_[3];
    MR_ASSIGN_OR_RETURN(g.rows, attrs_.Axis(1, input.dim(1), ksize_[1]));
    MR_ASSIGN_OR_RETURN(g.cols, attrs_.Axis(2, input.dim(2), ksize_[2]));
    if (g.depth_window > 1 &&
        (ksize_[1] != 1 || ksize_[2] != 1 || attrs_.stride(3) != g.depth_window ||
         g.channels % g.depth_window != 0)) {
      return errors::Unimplemented("a window over depth must divide it, be as wide as its stride ",
                                   "and be the only one");
    }
    return g;
  }

 private:
  const WindowAttrs attrs_;
  std::vector<int64_t> ksize_;
};

// Calls f(output offset, input offset) for every input position that an output position of
// image n sees; offsets are of the first channel. `start(output offset)` comes before and
// `end(output offset, number of inputs)` after them.
template <typename Start, typename F, typename End>
void ForEachWindow(const Geometry& g, int64_t n, Start&& start, F&& f, End&& finish) {
  for (int64_t oy = 0; oy < g.rows.output; ++oy) {
    const int64_t y0 = oy * g.rows.stride - g.rows.pad_before;
    const int64_t y_begin = std::max<int64_t>(0, y0);
    const int64_t y_end = std::min(g.rows.input, y0 + g.rows.size);
    for (int64_t ox = 0; ox < g.cols.output; ++ox) {
      const int64_t x0 = ox * g.cols.stride - g.cols.pad_before;
      const int64_t x_begin = std::max<int64_t>(0, x0);
      const int64_t x_end = std::min(g.cols.input, x0 + g.cols.size);
      const int64_t out = n * g.out_image() + (oy * g.cols.output + ox) * g.out_channels();
      start(out);
      for (int64_t y = y_begin; y < y_end; ++y) {
        for (int64_t x = x_begin; x < x_end; ++x) {
          f(out, n * g.image() + (y * g.cols.input + x) * g.channels);
        }
      }
      finish(out, std::max<int64_t>(0, y_end - y_begin) * std::max<int64_t>(0, x_end - x_begin));
    }
  }
}

double ImageCost(const Geometry& g) {
  return static_cast<double>(g.out_image() * g.rows.size * g.cols.size * g.depth_window);
}

template <typename T>
T Lowest() {
  if constexpr (kIsSmallFloat<T>) {
    return T(-std::numeric_limits<float>::infinity());
  } else if constexpr (std::is_floating_point_v<T>) {
    return -std::numeric_limits<T>::infinity();
  } else {
    return std::numeric_limits<T>::lowest();
  }
}

class MaxPoolKernel : public PoolKernel {
 public:
  using PoolKernel::PoolKernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const Geometry g, MakeGeometry(input.shape()));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, g.OutputShape()));
    DispatchType(RealTypes(), input.dtype(), [&]<typename T>() {
      const T* in = input.data<T>();
      T* to = out->data<T>();
      ctx.ParallelFor(g.batch, ImageCost(g), [&](int64_t begin, int64_t end) {
        for (int64_t n = begin; n < end; ++n) Pool<T>(g, n, in, to);
      });
    });
    return OkStatus();
  }

 private:
  template <typename T>
  static void Pool(const Geometry& g, int64_t n, const T* in, T* out) {
    ForEachWindow(
        g, n, [&](int64_t o) { std::fill_n(out + o, g.out_channels(), Lowest<T>()); },
        [&](int64_t o, int64_t i) {
          if (g.depth_window == 1) {
            for (int64_t c = 0; c < g.channels; ++c) {
              out[o + c] = out[o + c] < in[i + c] ? in[i + c] : out[o + c];
            }
            return;
          }
          for (int64_t c = 0; c < g.channels; ++c) {
            T& best = out[o + c / g.depth_window];
            if (best < in[i + c]) best = in[i + c];
          }
        },
        [](int64_t, int64_t) {});
  }
};

// The gradient of an output goes to the first of the largest inputs it saw.
class MaxPoolGradKernel : public PoolKernel {
 public:
  using PoolKernel::PoolKernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(0);
    const Tensor& gradient = ctx.input(2);
    MR_ASSIGN_OR_RETURN(const Geometry g, MakeGeometry(input.shape()));
    if (!(gradient.shape() == g.OutputShape()) || !(ctx.input(1).shape() == g.OutputShape())) {
      return errors::InvalidArgument(
          "orig_output and grad must have shape ", g.OutputShape().DebugString(), ", got ",
          ctx.input(1).shape().DebugString(), " and ", gradient.shape().DebugString());
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, input.shape()));
    Status status;
    DispatchType(RealTypes(), input.dtype(),
                 [&]<typename T>() { status = Run<T>(ctx, g, input, gradient, out); });
    return status;
  }

 private:
  template <typename T>
  static Status Run(KernelContext& ctx, const Geometry& g, const Tensor& input,
                    const Tensor& gradient, Tensor* out) {
    using C = ComputeType<T>;
    MR_ASSIGN_OR_RETURN(Tensor argmax, ctx.AllocateTemp(kInt64, gradient.shape()));
    const T* in = input.data<T>();
    const T* from = gradient.data<T>();
    T* to = out->data<T>();
    int64_t* best = argmax.data<int64_t>();
    ctx.ParallelFor(g.batch, 2 * ImageCost(g), [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        std::fill_n(to + n * g.image(), g.image(), T());
        ForEachWindow(
            g, n, [&](int64_t o) { std::fill_n(best + o, g.out_channels(), int64_t{-1}); },
            [&](int64_t o, int64_t i) {
              for (int64_t c = 0; c < g.channels; ++c) {
                int64_t& b = best[o + c / g.depth_window];
                if (b < 0 || in[b] < in[i + c]) b = i + c;
              }
            },
            [&](int64_t o, int64_t) {
              for (int64_t c = 0; c < g.out_channels(); ++c) {
                const int64_t b = best[o + c];
                if (b < 0) continue;
                to[b] = static_cast<T>(static_cast<C>(to[b]) + static_cast<C>(from[o + c]));
              }
            });
      }
    });
    return OkStatus();
  }
};

// Averages are over the inputs that exist: padding does not count.
class AvgPoolKernel : public PoolKernel {
 public:
  using PoolKernel::PoolKernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const Geometry g, MakeGeometry(input.shape()));
    if (g.depth_window != 1) return errors::Unimplemented("AvgPool over depth");
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, g.OutputShape()));
    DispatchType(FloatTypes(), input.dtype(), [&]<typename T>() {
      using C = ComputeType<T>;
      const T* in = input.data<T>();
      T* to = out->data<T>();
      ctx.ParallelFor(g.batch, ImageCost(g), [&](int64_t begin, int64_t end) {
        std::vector<C> sum(static_cast<std::size_t>(g.channels));
        for (int64_t n = begin; n < end; ++n) {
          ForEachWindow(
              g, n, [&](int64_t) { std::fill(sum.begin(), sum.end(), C(0)); },
              [&](int64_t, int64_t i) {
                for (int64_t c = 0; c < g.channels; ++c) sum[c] += static_cast<C>(in[i + c]);
              },
              [&](int64_t o, int64_t count) {
                for (int64_t c = 0; c < g.channels; ++c) {
                  to[o + c] = static_cast<T>(sum[c] / static_cast<C>(count));
                }
              });
        }
      });
    });
    return OkStatus();
  }
};

class AvgPoolGradKernel : public PoolKernel {
 public:
  using PoolKernel::PoolKernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& sizes = ctx.input(0);
    const Tensor& gradient = ctx.input(1);
    if (sizes.rank() != 1) {
      return errors::InvalidArgument("orig_input_shape must be 1-dimensional, got ",
                                     sizes.shape().DebugString());
    }
    const auto flat = sizes.flat<int32_t>();
    MR_ASSIGN_OR_RETURN(const Shape shape,
                        MakeShape(std::vector<int64_t>(flat.begin(), flat.end())));
    MR_ASSIGN_OR_RETURN(const Geometry g, MakeGeometry(shape));
    if (g.depth_window != 1) return errors::Unimplemented("AvgPoolGrad over depth");
    if (!(gradient.shape() == g.OutputShape())) {
      return errors::InvalidArgument("grad must have shape ", g.OutputShape().DebugString(),
                                     ", got ", gradient.shape().DebugString());
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    DispatchType(FloatTypes(), gradient.dtype(), [&]<typename T>() {
      using C = ComputeType<T>;
      const T* from = gradient.data<T>();
      T* to = out->data<T>();
      ctx.ParallelFor(g.batch, ImageCost(g), [&](int64_t begin, int64_t end) {
        std::vector<int64_t> seen;
        for (int64_t n = begin; n < end; ++n) {
          std::fill_n(to + n * g.image(), g.image(), T());
          ForEachWindow(
              g, n, [&](int64_t) { seen.clear(); }, [&](int64_t, int64_t i) { seen.push_back(i); },
              [&](int64_t o, int64_t count) {
                for (const int64_t i : seen) {
                  for (int64_t c = 0; c < g.channels; ++c) {
                    to[i + c] = static_cast<T>(static_cast<C>(to[i + c]) +
                                               static_cast<C>(from[o + c]) / static_cast<C>(count));
                  }
                }
              });
        }
      });
    });
    return OkStatus();
  }
};

}  // namespace

void RegisterPoolKernels(KernelRegistry& registry) {
  registry.Register(KernelDef("MaxPool").Types("T", DataTypesOf(RealTypes())),
                    MakeKernel<MaxPoolKernel>);
  registry.Register(KernelDef("MaxPoolGrad").Types("T", DataTypesOf(RealTypes())),
                    MakeKernel<MaxPoolGradKernel>);
  registry.Register(KernelDef("AvgPool").Types("T", DataTypesOf(FloatTypes())),
                    MakeKernel<AvgPoolKernel>);
  registry.Register(KernelDef("AvgPoolGrad").Types("T", DataTypesOf(FloatTypes())),
                    MakeKernel<AvgPoolGradKernel>);
}

}  // namespace millrace
