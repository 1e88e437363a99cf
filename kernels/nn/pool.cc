// SPDX-License-Identifier: Apache-2.0
// MaxPool, AvgPool and their gradients. Images with their channels first are copied to have
// them last: neighbouring channels are what the loops compute together.
#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/isa.h"
#include "kernels/kernel.h"
#include "kernels/kernel_context.h"
#include "kernels/kernel_registry.h"
#include "kernels/nn/pool_plan.h"
#include "kernels/nn/window.h"

namespace millrace {
namespace {

using Geometry = PoolGeometry;

class PoolKernel : public Kernel {
 public:
  // The forms V2 have ksize and strides as their last inputs, not as attributes.
  explicit PoolKernel(KernelConstruction& c)
      : Kernel(c), attrs_(c), from_inputs_(c.def().name().ends_with("V2")) {}

 protected:
  // `shape` in the order of the node's data format.
  StatusOr<Geometry> MakeGeometry(KernelContext& ctx, const Shape& shape) const {
    if (!from_inputs_) return attrs_.Plan(shape);
    const int n = ctx.num_inputs();
    return attrs_.Plan(shape, ctx.input(n - 2), ctx.input(n - 1));
  }

  // The shape of the outputs in the order of the node's data format.
  Shape OutputShape(const Geometry& g) const { return attrs_.OutputShape(g); }

  // `tensor` with channels last.
  StatusOr<Tensor> Operand(KernelContext& ctx, const Tensor& tensor) const {
    if (!attrs_.channels_first()) return tensor;
    return CopyChannelsLast(ctx, tensor);
  }

  Status Refusal(Status status) const { return attrs_.Refusal(std::move(status)); }

  // Calls f(Tensor*) for output 0, which f fills with channels last.
  template <typename F>
  Status FillOutput(KernelContext& ctx, const Shape& shape, F&& f) const {
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    if (out->num_elements() == 0) return OkStatus();  // the other axes may be of any size
    if (!attrs_.channels_first()) {
      f(out);
      return OkStatus();
    }
    MR_ASSIGN_OR_RETURN(Tensor last, ctx.AllocateTemp(out->dtype(), WithChannelsLast(shape)));
    f(&last);
    return CopyChannelsFirst(ctx, last, out);
  }

 private:
  const PoolAttrs attrs_;
  const bool from_inputs_;
};

// The inputs that one output position sees; offsets are of first channels, within one image.
struct Window {
  int64_t out, y_begin, y_end, x_begin, x_end, width, channels;

  int64_t count() const {
    return std::max<int64_t>(0, y_end - y_begin) * std::max<int64_t>(0, x_end - x_begin);
  }
  // Calls f(tap, input offset), taps counted from 0.
  template <typename F>
  MR_ALWAYS_INLINE void ForEach(F&& f) const {
    int32_t tap = 0;
    for (int64_t y = y_begin; y < y_end; ++y) {
      for (int64_t x = x_begin; x < x_end; ++x) f(tap++, (y * width + x) * channels);
    }
  }
};

// Calls f(window) for every output position of an image.
template <typename F>
MR_ALWAYS_INLINE void ForEachWindow(const Geometry& g, F&& f) {
  for (int64_t oy = 0; oy < g.rows.output; ++oy) {
    const int64_t y0 = oy * g.rows.stride - g.rows.pad_before;
    for (int64_t ox = 0; ox < g.cols.output; ++ox) {
      const int64_t x0 = ox * g.cols.stride - g.cols.pad_before;
      f(Window{(oy * g.cols.output + ox) * g.out_channels(), std::max<int64_t>(0, y0),
               std::min(g.rows.input, y0 + g.rows.size), std::max<int64_t>(0, x0),
               std::min(g.cols.input, x0 + g.cols.size), g.cols.input, g.channels});
    }
  }
}

// Channels that are worked on at a time: what is kept for them stays in registers or L1.
constexpr int64_t kChannelBlock = 64;

// Calls f(first channel, number of channels).
template <typename F>
MR_ALWAYS_INLINE void ForEachBlock(int64_t channels, F&& f) {
  for (int64_t c = 0; c < channels; c += kChannelBlock) f(c, std::min(kChannelBlock, channels - c));
}

double ImageCost(const Geometry& g) {
  return 0.3 * static_cast<double>(g.out_image()) * static_cast<double>(g.rows.size) *
         static_cast<double>(g.cols.size) * static_cast<double>(g.depth_window);
}

// What a maximum begins with, as in TensorFlow: finite, so that it stays where a window has only
// infinities below and NaNs.
template <typename T>
T Lowest() {
  if constexpr (std::is_same_v<T, Half>) {
    return T(-65504.0f);
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return T(-3.3895313892515355e38f);
  } else {
    return std::numeric_limits<T>::lowest();
  }
}

// --- One image -------------------------------------------------------------------------------

template <typename T>
struct MaxPoolImage {
  static MR_ALWAYS_INLINE void Run(const Geometry& g, const T* in, T* out) {
    if (g.depth_window > 1) {
      for (int64_t o = 0; o < g.out_image(); ++o) {
        T best = Lowest<T>();
        for (int64_t k = 0; k < g.depth_window; ++k) {
          if (best < in[o * g.depth_window + k]) best = in[o * g.depth_window + k];
        }
        out[o] = best;
      }
      return;
    }
    ForEachWindow(g, [&](const Window& w) {
      ForEachBlock(g.channels, [&](int64_t c0, int64_t n) {
        T best[kChannelBlock];
        for (int64_t c = 0; c < n; ++c) best[c] = Lowest<T>();
        w.ForEach([&](int32_t, int64_t i) {
          const T* from = in + i + c0;
          for (int64_t c = 0; c < n; ++c) best[c] = best[c] < from[c] ? from[c] : best[c];
        });
        T* to = out + w.out + c0;
        for (int64_t c = 0; c < n; ++c) to[c] = best[c];
      });
    });
  }
};

// The gradient of an output goes to the first of the largest inputs it saw.
template <typename T>
struct MaxPoolGradImage {
  using C = ComputeType<T>;

  static MR_ALWAYS_INLINE void Run(const Geometry& g, const T* in, const T* from, T* to) {
    for (int64_t i = 0; i < g.image(); ++i) to[i] = T();
    if (g.depth_window > 1) return Depth(g, in, from, to);
    ForEachWindow(g, [&](const Window& w) {
      ForEachBlock(g.channels, [&](int64_t c0, int64_t n) {
        T best[kChannelBlock];
        int32_t winner[kChannelBlock];
        w.ForEach([&](int32_t tap, int64_t i) {
          const T* x = in + i + c0;
          for (int64_t c = 0; c < n; ++c) {
            const bool larger = tap == 0 || best[c] < x[c];
            best[c] = larger ? x[c] : best[c];
            winner[c] = larger ? tap : winner[c];
          }
        });
        const T* gradient = from + w.out + c0;
        w.ForEach([&](int32_t tap, int64_t i) {
          T* sum = to + i + c0;
          for (int64_t c = 0; c < n; ++c) {
            const C more = winner[c] == tap ? static_cast<C>(gradient[c]) : C(0);
            sum[c] = static_cast<T>(static_cast<C>(sum[c]) + more);
          }
        });
      });
    });
  }

  static void Depth(const Geometry& g, const T* in, const T* from, T* to) {
    for (int64_t o = 0; o < g.out_image(); ++o) {
      int64_t best = o * g.depth_window;
      for (int64_t k = 1; k < g.depth_window; ++k) {
        if (in[best] < in[o * g.depth_window + k]) best = o * g.depth_window + k;
      }
      to[best] = from[o];
    }
  }
};

// Averages are over the inputs that exist: padding does not count.
template <typename T>
struct AvgPoolImage {
  using C = ComputeType<T>;

  static MR_ALWAYS_INLINE void Run(const Geometry& g, const T* in, T* out) {
    ForEachWindow(g, [&](const Window& w) {
      ForEachBlock(g.channels, [&](int64_t c0, int64_t n) {
        C sum[kChannelBlock] = {};
        w.ForEach([&](int32_t, int64_t i) {
          const T* from = in + i + c0;
          for (int64_t c = 0; c < n; ++c) sum[c] += static_cast<C>(from[c]);
        });
        const C count = static_cast<C>(w.count());
        T* to = out + w.out + c0;
        for (int64_t c = 0; c < n; ++c) to[c] = static_cast<T>(sum[c] / count);
      });
    });
  }
};

template <typename T>
struct AvgPoolGradImage {
  using C = ComputeType<T>;

  static MR_ALWAYS_INLINE void Run(const Geometry& g, const T* from, T* to) {
    for (int64_t i = 0; i < g.image(); ++i) to[i] = T();
    ForEachWindow(g, [&](const Window& w) {
      ForEachBlock(g.channels, [&](int64_t c0, int64_t n) {
        C share[kChannelBlock];
        const C count = static_cast<C>(w.count());
        for (int64_t c = 0; c < n; ++c) share[c] = static_cast<C>(from[w.out + c0 + c]) / count;
        w.ForEach([&](int32_t, int64_t i) {
          T* sum = to + i + c0;
          for (int64_t c = 0; c < n; ++c)
            sum[c] = static_cast<T>(static_cast<C>(sum[c]) + share[c]);
        });
      });
    });
  }
};

// --- Kernels ---------------------------------------------------------------------------------

class MaxPoolKernel : public PoolKernel {
 public:
  using PoolKernel::PoolKernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const Geometry g, MakeGeometry(ctx, ctx.input(0).shape()));
    MR_ASSIGN_OR_RETURN(const Tensor input, Operand(ctx, ctx.input(0)));
    return FillOutput(ctx, OutputShape(g), [&](Tensor* out) {
      DispatchType(RealTypes(), input.dtype(), [&]<typename T>() {
        const T* in = input.data<T>();
        T* to = out->data<T>();
        const auto pool = BestVersion<MaxPoolImage<T>>();
        ctx.ParallelFor(g.batch, ImageCost(g), [&](int64_t begin, int64_t end) {
          for (int64_t n = begin; n < end; ++n) pool(g, in + n * g.image(), to + n * g.out_image());
        });
      });
    });
  }
};

class MaxPoolGradKernel : public PoolKernel {
 public:
  using PoolKernel::PoolKernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const Geometry g, MakeGeometry(ctx, ctx.input(0).shape()));
    MR_RETURN_IF_ERROR(
        CheckMaxPoolGrad(OutputShape(g), ctx.input(1).shape(), ctx.input(2).shape()));
    MR_ASSIGN_OR_RETURN(const Tensor input, Operand(ctx, ctx.input(0)));
    MR_ASSIGN_OR_RETURN(const Tensor gradient, Operand(ctx, ctx.input(2)));
    return FillOutput(ctx, ctx.input(0).shape(), [&](Tensor* out) {
      DispatchType(RealTypes(), input.dtype(), [&]<typename T>() {
        const T* in = input.data<T>();
        const T* from = gradient.data<T>();
        T* to = out->data<T>();
        const auto pool = BestVersion<MaxPoolGradImage<T>>();
        ctx.ParallelFor(g.batch, 2 * ImageCost(g), [&](int64_t begin, int64_t end) {
          for (int64_t n = begin; n < end; ++n) {
            pool(g, in + n * g.image(), from + n * g.out_image(), to + n * g.image());
          }
        });
      });
    });
  }
};

// Also says where the first of the largest inputs lies, counted within its image or the batch.
class MaxPoolWithArgmaxKernel : public PoolKernel {
 public:
  explicit MaxPoolWithArgmaxKernel(KernelConstruction& c)
      : PoolKernel(c), counts_batch_(c.attr<bool>("include_batch_in_index")) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const Geometry g, MakeGeometry(ctx, input.shape()));
    if (g.depth_window != 1) {
      return errors::Unimplemented("MaxPoolWithArgmax over depth");
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, g.OutputShape()));
    MR_ASSIGN_OR_RETURN(Tensor * argmax, ctx.AllocateOutput(1, g.OutputShape()));
    if (out->num_elements() == 0) return OkStatus();
    DispatchType(RealTypes(), input.dtype(), [&]<typename T>() {
      DispatchType(IndexTypes(), argmax->dtype(), [&]<typename Index>() {
        const T* in = input.data<T>();
        T* to = out->data<T>();
        Index* where = argmax->data<Index>();
        ctx.ParallelFor(g.batch, 2 * ImageCost(g), [&](int64_t begin, int64_t end) {
          for (int64_t n = begin; n < end; ++n) {
            Pool<T, Index>(g, in + n * g.image(), counts_batch_ ? n * g.image() : 0,
                           to + n * g.out_image(), where + n * g.out_image());
          }
        });
      });
    });
    return OkStatus();
  }

 private:
  template <typename T, typename Index>
  static void Pool(const Geometry& g, const T* in, int64_t base, T* out, Index* where) {
    ForEachWindow(g, [&](const Window& w) {
      for (int64_t c = 0; c < g.channels; ++c) {
        int64_t best = -1;
        w.ForEach([&](int32_t, int64_t i) {
          if (best < 0 || in[best] < in[i + c]) best = i + c;
        });
        out[w.out + c] = best < 0 ? Lowest<T>() : in[best];
        where[w.out + c] = static_cast<Index>(base + best);
      }
    });
  }

  const bool counts_batch_;
};

// The gradient of an output goes where its argmax says. A place of another image is an error, as is
// one outside of the batch: the positions may be anybody's numbers.
class MaxPoolGradWithArgmaxKernel : public PoolKernel {
 public:
  explicit MaxPoolGradWithArgmaxKernel(KernelConstruction& c)
      : PoolKernel(c), counts_batch_(c.attr<bool>("include_batch_in_index")) {}
  Status Compute(KernelContext& ctx) override {
    const Shape& shape = ctx.input(0).shape();
    const Tensor &gradient = ctx.input(1), &argmax = ctx.input(2);
    MR_ASSIGN_OR_RETURN(const Geometry g, MakeGeometry(ctx, shape));
    for (const int i : {1, 2}) {
      if (ctx.input(i).shape() == g.OutputShape()) continue;
      return errors::InvalidArgument("Expected ", i == 1 ? "grad" : "argmax", " shape to be ",
                                     g.OutputShape().DebugString(), ", but got ",
                                     ctx.input(i).shape().DebugString());
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    if (out->num_elements() == 0) return OkStatus();
    int64_t bad = -1;
    DispatchType(RealTypes(), out->dtype(), [&]<typename T>() {
      T* const to = out->data<T>();
      std::fill_n(to, out->num_elements(), T());
      bad = Add<T>(g, gradient.data<T>(), argmax.data<int64_t>(), to);
    });
    if (bad < 0) return OkStatus();
    return errors::InvalidArgument("Invalid argmax ", argmax.data<int64_t>()[bad], " at element ",
                                   bad, ": it is not within its image, of ", g.image(),
                                   " elements");
  }

 private:
  // The first element whose place is not in its image, or -1.
  template <typename T>
  int64_t Add(const Geometry& g, const T* gradient, const int64_t* argmax, T* out) const {
    using C = ComputeType<T>;
    for (int64_t n = 0, i = 0; n < g.batch; ++n, out += g.image()) {
      const int64_t base = counts_batch_ ? n * g.image() : 0;
      for (const int64_t end = i + g.out_image(); i < end; ++i) {
        const int64_t place = argmax[i];
        if (place < base || place - base >= g.image()) return i;
        T& sum = out[place - base];
        sum = static_cast<T>(static_cast<C>(sum) + static_cast<C>(gradient[i]));
      }
    }
    return -1;
  }

  const bool counts_batch_;
};

class AvgPoolKernel : public PoolKernel {
 public:
  using PoolKernel::PoolKernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const Geometry g, MakeGeometry(ctx, ctx.input(0).shape()));
    if (g.depth_window != 1) return Refusal(errors::Unimplemented("AvgPool over depth"));
    MR_ASSIGN_OR_RETURN(const Tensor input, Operand(ctx, ctx.input(0)));
    return FillOutput(ctx, OutputShape(g), [&](Tensor* out) {
      DispatchType(FloatTypes(), input.dtype(), [&]<typename T>() {
        const T* in = input.data<T>();
        T* to = out->data<T>();
        const auto pool = BestVersion<AvgPoolImage<T>>();
        ctx.ParallelFor(g.batch, ImageCost(g), [&](int64_t begin, int64_t end) {
          for (int64_t n = begin; n < end; ++n) pool(g, in + n * g.image(), to + n * g.out_image());
        });
      });
    });
  }
};

class AvgPoolGradKernel : public PoolKernel {
 public:
  using PoolKernel::PoolKernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& sizes = ctx.input(0);
    if (sizes.rank() != 1) {
      return errors::InvalidArgument("orig_input_shape must be 1-dimensional, got ",
                                     sizes.shape().DebugString());
    }
    const auto flat = sizes.flat<int32_t>();
    MR_ASSIGN_OR_RETURN(const Shape shape,
                        MakeShape(std::vector<int64_t>(flat.begin(), flat.end())));
    MR_ASSIGN_OR_RETURN(const Geometry g, MakeGeometry(ctx, shape));
    if (g.depth_window != 1) return Refusal(errors::Unimplemented("AvgPoolGrad over depth"));
    MR_RETURN_IF_ERROR(CheckAvgPoolGrad(OutputShape(g), ctx.input(1).shape()));
    MR_ASSIGN_OR_RETURN(const Tensor gradient, Operand(ctx, ctx.input(1)));
    return FillOutput(ctx, shape, [&](Tensor* out) {
      DispatchType(FloatTypes(), gradient.dtype(), [&]<typename T>() {
        const T* from = gradient.data<T>();
        T* to = out->data<T>();
        const auto pool = BestVersion<AvgPoolGradImage<T>>();
        ctx.ParallelFor(g.batch, ImageCost(g), [&](int64_t begin, int64_t end) {
          for (int64_t n = begin; n < end; ++n)
            pool(g, from + n * g.out_image(), to + n * g.image());
        });
      });
    });
  }
};

}  // namespace

void RegisterPoolKernels(KernelRegistry& registry) {
  for (const char* op : {"MaxPool", "MaxPoolV2"}) {
    registry.Register(KernelDef(op).Types("T", DataTypesOf(RealTypes())),
                      MakeKernel<MaxPoolKernel>);
  }
  for (const char* op : {"MaxPoolGrad", "MaxPoolGradV2"}) {
    registry.Register(KernelDef(op).Types("T", DataTypesOf(RealTypes())),
                      MakeKernel<MaxPoolGradKernel>);
  }
  registry.Register(KernelDef("MaxPoolGradWithArgmax")
                        .Types("T", DataTypesOf(RealTypes()))
                        .Type<int64_t>("Targmax"),
                    MakeKernel<MaxPoolGradWithArgmaxKernel>);
  registry.Register(KernelDef("MaxPoolWithArgmax").Types("T", DataTypesOf(RealTypes())),
                    MakeKernel<MaxPoolWithArgmaxKernel>);
  registry.Register(KernelDef("AvgPool").Types("T", DataTypesOf(FloatTypes())),
                    MakeKernel<AvgPoolKernel>);
  registry.Register(KernelDef("AvgPoolGrad").Types("T", DataTypesOf(FloatTypes())),
                    MakeKernel<AvgPoolGradKernel>);
}

}  // namespace millrace
