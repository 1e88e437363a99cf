// Conv2D and its gradients as matrix products over patches ("im2col"): a matrix with one row
// per output position and one column per filter tap is made for a part of an image at a time,
// small enough to stay in cache.
#include <algorithm>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "kernels/dtype_dispatch.h"
#include "kernels/gemm.h"
#include "kernels/kernel.h"
#include "kernels/kernel_context.h"
#include "kernels/kernel_registry.h"
#include "kernels/window.h"

namespace millrace {
namespace {

// A convolution of NHWC images with an HWIO filter. With groups > 1 the channels fall into
// as many parts, which do not see each other.
struct Geometry {
  int64_t batch = 0, channels = 0, out_channels = 0, groups = 1;
  WindowAxis rows, cols;

  int64_t group_channels() const { return channels / groups; }
  int64_t group_outputs() const { return out_channels / groups; }
  int64_t taps() const { return rows.size * cols.size * group_channels(); }
  int64_t image() const { return rows.input * cols.input * channels; }
  int64_t out_image() const { return rows.output * cols.output * out_channels; }
  Shape InputShape() const { return {batch, rows.input, cols.input, channels}; }
  Shape FilterShape() const { return {rows.size, cols.size, group_channels(), out_channels}; }
  Shape OutputShape() const { return {batch, rows.output, cols.output, out_channels}; }
};

StatusOr<Geometry> MakeGeometry(const WindowAttrs& attrs, const Shape& input, const Shape& filter) {
  if (input.rank() != 4) {
    return errors::InvalidArgument("input must be 4-dimensional: ", input.DebugString());
  }
  if (filter.rank() != 4) {
    return errors::InvalidArgument("filter must be 4-dimensional: ", filter.DebugString());
  }
  if (attrs.stride(3) != 1) {
    return errors::InvalidArgument("strides over channels are not supported");
  }
  Geometry g;
  g.batch = input.dim(0);
  g.channels = input.dim(3);
  g.out_channels = filter.dim(3);
  if (filter.dim(2) <= 0 || g.channels % filter.dim(2) != 0) {
    return errors::InvalidArgument("input depth must be evenly divisible by filter depth: ",
                                   g.channels, " vs ", filter.dim(2));
  }
  g.groups = g.channels / filter.dim(2);
  if (g.groups < 1 || g.out_channels % g.groups != 0) {
    return errors::InvalidArgument("output depth ", g.out_channels,
                                   " must be evenly divisible by the number of groups ", g.groups);
  }
  MR_ASSIGN_OR_RETURN(g.rows, attrs.Axis(1, input.dim(1), filter.dim(0)));
  MR_ASSIGN_OR_RETURN(g.cols, attrs.Axis(2, input.dim(2), filter.dim(1)));
  return g;
}

// Calls f(patch offset, image offset or -1) for every tap of the output rows [begin, end).
template <typename F>
void ForEachTap(const Geometry& g, int64_t group, int64_t begin, int64_t end, F&& f) {
  const int64_t depth = g.group_channels();
  int64_t at = 0;
  for (int64_t oy = begin; oy < end; ++oy) {
    for (int64_t ox = 0; ox < g.cols.output; ++ox) {
      for (int64_t ky = 0; ky < g.rows.size; ++ky) {
        const int64_t y = oy * g.rows.stride - g.rows.pad_before + ky * g.rows.dilation;
        for (int64_t kx = 0; kx < g.cols.size; ++kx, at += depth) {
          const int64_t x = ox * g.cols.stride - g.cols.pad_before + kx * g.cols.dilation;
          const bool inside = y >= 0 && y < g.rows.input && x >= 0 && x < g.cols.input;
          f(at, inside ? (y * g.cols.input + x) * g.channels + group * depth : -1);
        }
      }
    }
  }
}

template <typename C>
void GatherPatches(const Geometry& g, int64_t group, int64_t begin, int64_t end, const C* image,
                   C* patches) {
  const int64_t depth = g.group_channels();
  ForEachTap(g, group, begin, end, [&](int64_t at, int64_t from) {
    if (from < 0) {
      std::fill_n(patches + at, depth, C(0));
    } else {
      std::copy_n(image + from, depth, patches + at);
    }
  });
}

template <typename C>
void ScatterPatches(const Geometry& g, int64_t group, int64_t begin, int64_t end, const C* patches,
                    C* image) {
  const int64_t depth = g.group_channels();
  ForEachTap(g, group, begin, end, [&](int64_t at, int64_t to) {
    if (to < 0) return;
    for (int64_t i = 0; i < depth; ++i) image[to + i] += patches[at + i];
  });
}

void RunHere(int64_t n, double, absl::FunctionRef<void(int64_t, int64_t)> body) { body(0, n); }

// Output rows per patch matrix: about a thousand positions.
int64_t RowsPerBlock(const Geometry& g) {
  return std::clamp<int64_t>(1024 / std::max<int64_t>(1, g.cols.output), 1,
                             std::max<int64_t>(1, g.rows.output));
}

template <typename C>
Status Forward(KernelContext& ctx, const Geometry& g, const C* input, const C* filter, C* out) {
  const int64_t step = RowsPerBlock(g), blocks = (g.rows.output + step - 1) / step;
  const int64_t taps = g.taps();
  if (g.batch * g.out_image() == 0) return OkStatus();
  Status failed;
  const double cost = static_cast<double>(step * g.cols.output * taps * g.group_outputs()) / 20;
  Mutex mu;
  ctx.ParallelFor(g.batch * blocks, cost, [&](int64_t begin, int64_t end) {
    StatusOr<Tensor> patches =
        ctx.AllocateTemp(DataTypeOf<C>(), Shape({step * g.cols.output, taps}));
    if (!patches.ok()) {
      MutexLock lock(&mu);
      failed = patches.status();
      return;
    }
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t n = unit / blocks, first = unit % blocks * step;
      const int64_t last = std::min(g.rows.output, first + step);
      const int64_t positions = (last - first) * g.cols.output;
      for (int64_t group = 0; group < g.groups; ++group) {
        GatherPatches(g, group, first, last, input + n * g.image(), patches->data<C>());
        Gemm<C>(positions, g.group_outputs(), taps, {patches->data<C>(), taps, 1},
                {filter + group * g.group_outputs(), g.out_channels, 1},
                out + n * g.out_image() + first * g.cols.output * g.out_channels +
                    group * g.group_outputs(),
                g.out_channels, false, RunHere);
      }
    }
  });
  return failed;
}

template <typename C>
Status BackwardInput(KernelContext& ctx, const Geometry& g, const C* filter, const C* gradient,
                     C* out) {
  std::fill_n(out, g.batch * g.image(), C(0));
  const int64_t taps = g.taps(), step = RowsPerBlock(g);
  if (g.batch * g.out_image() == 0) return OkStatus();
  Status failed;
  Mutex mu;
  const double cost = static_cast<double>(g.out_image() * taps) / 20;
  // One image at a time: patches overlap.
  ctx.ParallelFor(g.batch, cost, [&](int64_t begin, int64_t end) {
    StatusOr<Tensor> patches =
        ctx.AllocateTemp(DataTypeOf<C>(), Shape({step * g.cols.output, taps}));
    if (!patches.ok()) {
      MutexLock lock(&mu);
      failed = patches.status();
      return;
    }
    for (int64_t n = begin; n < end; ++n) {
      for (int64_t first = 0; first < g.rows.output; first += step) {
        const int64_t last = std::min(g.rows.output, first + step);
        for (int64_t group = 0; group < g.groups; ++group) {
          Gemm<C>((last - first) * g.cols.output, taps, g.group_outputs(),
                  {gradient + n * g.out_image() + first * g.cols.output * g.out_channels +
                       group * g.group_outputs(),
                   g.out_channels, 1},
                  {filter + group * g.group_outputs(), 1, g.out_channels}, patches->data<C>(), taps,
                  false, RunHere);
          ScatterPatches(g, group, first, last, patches->data<C>(), out + n * g.image());
        }
      }
    }
  });
  return failed;
}

template <typename C>
Status BackwardFilter(KernelContext& ctx, const Geometry& g, const C* input, const C* gradient,
                      C* out) {
  const int64_t taps = g.taps(), step = RowsPerBlock(g);
  std::fill_n(out, taps * g.out_channels, C(0));
  if (g.batch * g.out_image() == 0) return OkStatus();
  MR_ASSIGN_OR_RETURN(Tensor patches,
                      ctx.AllocateTemp(DataTypeOf<C>(), Shape({step * g.cols.output, taps})));
  // Blocks are added one after the other, whatever the number of threads; within a block the
  // product is shared between them.
  for (int64_t n = 0; n < g.batch; ++n) {
    for (int64_t first = 0; first < g.rows.output; first += step) {
      const int64_t last = std::min(g.rows.output, first + step);
      for (int64_t group = 0; group < g.groups; ++group) {
        GatherPatches(g, group, first, last, input + n * g.image(), patches.data<C>());
        Gemm<C>(taps, g.group_outputs(), (last - first) * g.cols.output,
                {patches.data<C>(), 1, taps},
                {gradient + n * g.out_image() + first * g.cols.output * g.out_channels +
                     group * g.group_outputs(),
                 g.out_channels, 1},
                out + group * g.group_outputs(), g.out_channels, true,
                [&ctx](int64_t count, double cost, absl::FunctionRef<void(int64_t, int64_t)> f) {
                  ctx.ParallelFor(count, cost, f);
                });
      }
    }
  }
  return OkStatus();
}

// A tensor in the type that is computed in: itself, or a float copy of 16-bit floats.
StatusOr<Tensor> Widened(KernelContext& ctx, const Tensor& tensor) {
  if (tensor.dtype() == kFloat || tensor.dtype() == kDouble) return tensor;
  MR_ASSIGN_OR_RETURN(Tensor wide, ctx.AllocateTemp(kFloat, tensor.shape()));
  DispatchType(TypeList<Half, BFloat16>(), tensor.dtype(), [&]<typename T>() {
    const T* in = tensor.data<T>();
    float* out = wide.data<float>();
    for (int64_t i = 0; i < tensor.num_elements(); ++i) out[i] = static_cast<float>(in[i]);
  });
  return wide;
}

// The three passes; each takes two operands and fills output 0.
enum class Pass { kForward, kInput, kFilter };

template <typename C>
Status RunPass(Pass pass, KernelContext& ctx, const Geometry& g, const Tensor& a, const Tensor& b,
               Tensor* out) {
  switch (pass) {
    case Pass::kForward:
      return Forward<C>(ctx, g, a.data<C>(), b.data<C>(), out->data<C>());
    case Pass::kInput:
      return BackwardInput<C>(ctx, g, a.data<C>(), b.data<C>(), out->data<C>());
    case Pass::kFilter:
      return BackwardFilter<C>(ctx, g, a.data<C>(), b.data<C>(), out->data<C>());
  }
  return OkStatus();
}

Status Run(Pass pass, KernelContext& ctx, const Geometry& g, const Tensor& a, const Tensor& b,
           const Shape& shape) {
  MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
  if (a.dtype() == kDouble) return RunPass<double>(pass, ctx, g, a, b, out);
  MR_ASSIGN_OR_RETURN(const Tensor wide_a, Widened(ctx, a));
  MR_ASSIGN_OR_RETURN(const Tensor wide_b, Widened(ctx, b));
  if (out->dtype() == kFloat) return RunPass<float>(pass, ctx, g, wide_a, wide_b, out);
  MR_ASSIGN_OR_RETURN(Tensor wide, ctx.AllocateTemp(kFloat, shape));
  MR_RETURN_IF_ERROR(RunPass<float>(pass, ctx, g, wide_a, wide_b, &wide));
  DispatchType(TypeList<Half, BFloat16>(), out->dtype(), [&]<typename T>() {
    const float* in = wide.data<float>();
    T* to = out->data<T>();
    for (int64_t i = 0; i < wide.num_elements(); ++i) to[i] = T(in[i]);
  });
  return OkStatus();
}

// Input `i` holds the sizes of a shape; two sizes are height and width of what `like` has.
StatusOr<Shape> SizesInput(KernelContext& ctx, int i) {
  const Tensor& sizes = ctx.input(i);
  if (sizes.rank() != 1) {
    return errors::InvalidArgument("input_sizes and filter_sizes must be 1-dimensional, got ",
                                   sizes.shape().DebugString());
  }
  const auto flat = sizes.flat<int32_t>();
  return MakeShape(std::vector<int64_t>(flat.begin(), flat.end()));
}

Status CheckGradient(const Geometry& g, const Tensor& gradient) {
  if (gradient.shape() == g.OutputShape()) return OkStatus();
  return errors::InvalidArgument("out_backprop must have the shape of the output ",
                                 g.OutputShape().DebugString(), ", got ",
                                 gradient.shape().DebugString());
}

class Conv2DKernel : public Kernel {
 public:
  explicit Conv2DKernel(KernelConstruction& c) : Kernel(c), attrs_(c) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(0);
    const Tensor& filter = ctx.input(1);
    MR_ASSIGN_OR_RETURN(const Geometry g, MakeGeometry(attrs_, input.shape(), filter.shape()));
    return Run(Pass::kForward, ctx, g, input, filter, g.OutputShape());
  }

 private:
  const WindowAttrs attrs_;
};

class Conv2DBackpropInputKernel : public Kernel {
 public:
  explicit Conv2DBackpropInputKernel(KernelConstruction& c) : Kernel(c), attrs_(c) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& filter = ctx.input(1);
    const Tensor& gradient = ctx.input(2);
    MR_ASSIGN_OR_RETURN(const Shape shape, SizesInput(ctx, 0));
    MR_ASSIGN_OR_RETURN(const Geometry g, MakeGeometry(attrs_, shape, filter.shape()));
    MR_RETURN_IF_ERROR(CheckGradient(g, gradient));
    return Run(Pass::kInput, ctx, g, filter, gradient, shape);
  }

 private:
  const WindowAttrs attrs_;
};

class Conv2DBackpropFilterKernel : public Kernel {
 public:
  explicit Conv2DBackpropFilterKernel(KernelConstruction& c) : Kernel(c), attrs_(c) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(0);
    const Tensor& gradient = ctx.input(2);
    MR_ASSIGN_OR_RETURN(const Shape shape, SizesInput(ctx, 1));
    MR_ASSIGN_OR_RETURN(const Geometry g, MakeGeometry(attrs_, input.shape(), shape));
    MR_RETURN_IF_ERROR(CheckGradient(g, gradient));
    return Run(Pass::kFilter, ctx, g, input, gradient, shape);
  }

 private:
  const WindowAttrs attrs_;
};

}  // namespace

void RegisterConvKernels(KernelRegistry& registry) {
  const auto floats = DataTypesOf(FloatTypes());
  registry.Register(KernelDef("Conv2D").Types("T", floats), MakeKernel<Conv2DKernel>);
  registry.Register(KernelDef("Conv2DBackpropInput").Types("T", floats),
                    MakeKernel<Conv2DBackpropInputKernel>);
  registry.Register(KernelDef("Conv2DBackpropFilter").Types("T", floats),
                    MakeKernel<Conv2DBackpropFilterKernel>);
}

}  // namespace millrace
