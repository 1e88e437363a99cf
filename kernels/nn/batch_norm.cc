// SPDX-License-Identifier: Apache-2.0
// Batch normalization and its gradient. Images are seen as [outer, channels, inner], inner
// being 1 when channels come last. Sums over a channel are taken in blocks of a fixed size, in
// order: results do not depend on the number of threads.
#include <algorithm>
#include <cmath>
#include <string>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/elementwise.h"
#include "kernels/common/strided_copy.h"
#include "kernels/kernel.h"
#include "kernels/kernel_context.h"
#include "kernels/kernel_registry.h"
#include "kernels/nn/batch_norm_plan.h"

namespace millrace {
namespace {

struct View : ChannelView {
  int64_t row() const { return channels * inner; }
  int64_t count() const { return outer * inner; }  // elements per channel
};

// Adds value(element, channel) over all elements of rows [begin, end) to sum[channel].
template <typename F>
MR_ALWAYS_INLINE void SumChannels(const View& v, int64_t begin, int64_t end, float* sum,
                                  F&& value) {
  for (int64_t i = begin; i < end; ++i) {
    const int64_t at = i * v.row();
    if (v.inner == 1) {
      MR_IVDEP
      for (int64_t c = 0; c < v.channels; ++c) sum[c] += value(at + c, c);
    } else {
      for (int64_t c = 0; c < v.channels; ++c) {
        float total = 0;
        for (int64_t j = 0; j < v.inner; ++j) total += value(at + c * v.inner + j, c);
        sum[c] += total;
      }
    }
  }
}

// Calls f(element, channel) for rows [begin, end).
template <typename F>
MR_ALWAYS_INLINE void ForEachElement(const View& v, int64_t begin, int64_t end, F&& f) {
  for (int64_t i = begin; i < end; ++i) {
    const int64_t at = i * v.row();
    if (v.inner == 1) {
      MR_IVDEP
      for (int64_t c = 0; c < v.channels; ++c) f(at + c, c);
    } else {
      for (int64_t c = 0; c < v.channels; ++c) {
        MR_IVDEP
        for (int64_t j = 0; j < v.inner; ++j) f(at + c * v.inner + j, c);
      }
    }
  }
}

constexpr int64_t kRowsPerBlock = 256;

// Channel sums, in double: `add(begin, end, sum)` adds the rows of one block.
template <typename F>
Status SumRows(KernelContext& ctx, const View& v, double* sums, F&& add) {
  const int64_t blocks = (v.outer + kRowsPerBlock - 1) / kRowsPerBlock;
  MR_ASSIGN_OR_RETURN(Tensor partial, ctx.AllocateTemp(kFloat, Shape({blocks, v.channels})));
  float* parts = partial.data<float>();
  ctx.ParallelFor(blocks, 0.5 * static_cast<double>(kRowsPerBlock * v.row()),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t b = begin; b < end; ++b) {
                      float* sum = parts + b * v.channels;
                      std::fill_n(sum, v.channels, 0.0f);
                      add(b * kRowsPerBlock, std::min(v.outer, (b + 1) * kRowsPerBlock), sum);
                    }
                  });
  std::fill_n(sums, v.channels, 0.0);
  for (int64_t b = 0; b < blocks; ++b) {
    for (int64_t c = 0; c < v.channels; ++c) {
      sums[c] += static_cast<double>(parts[b * v.channels + c]);
    }
  }
  return OkStatus();
}

template <typename T>
struct SumValues {
  static MR_ALWAYS_INLINE void Run(const View& v, const T* x, int64_t begin, int64_t end,
                                   float* sum) {
    SumChannels(v, begin, end, sum, [&](int64_t i, int64_t) { return static_cast<float>(x[i]); });
  }
};
template <typename T>
struct SumSquares {
  static MR_ALWAYS_INLINE void Run(const View& v, const T* x, const float* mean, int64_t begin,
                                   int64_t end, float* sum) {
    SumChannels(v, begin, end, sum, [&](int64_t i, int64_t c) {
      const float d = static_cast<float>(x[i]) - mean[c];
      return d * d;
    });
  }
};
// The products of gradients with centred values.
template <typename T>
struct SumProducts {
  static MR_ALWAYS_INLINE void Run(const View& v, const T* dy, const T* x, const float* mean,
                                   int64_t begin, int64_t end, float* sum) {
    SumChannels(v, begin, end, sum, [&](int64_t i, int64_t c) {
      return static_cast<float>(dy[i]) * (static_cast<float>(x[i]) - mean[c]);
    });
  }
};
// y = (x - mean) * scale + offset
template <typename T>
struct Normalize {
  static MR_ALWAYS_INLINE void Run(const View& v, const T* x, const float* mean, const float* scale,
                                   const float* offset, T* y, int64_t begin, int64_t end) {
    ForEachElement(v, begin, end, [&](int64_t i, int64_t c) {
      y[i] = static_cast<T>((static_cast<float>(x[i]) - mean[c]) * scale[c] + offset[c]);
    });
  }
};
// dx = (dy - shift - (x - mean) * slope) * scale
template <typename T>
struct Backward {
  static MR_ALWAYS_INLINE void Run(const View& v, const T* dy, const T* x, const float* mean,
                                   const float* shift, const float* slope, const float* scale,
                                   T* dx, int64_t begin, int64_t end) {
    ForEachElement(v, begin, end, [&](int64_t i, int64_t c) {
      const float centred = static_cast<float>(x[i]) - mean[c];
      dx[i] =
          static_cast<T>((static_cast<float>(dy[i]) - shift[c] - centred * slope[c]) * scale[c]);
    });
  }
};

class BatchNormKernel : public Kernel {
 public:
  explicit BatchNormKernel(KernelConstruction& c)
      : Kernel(c), epsilon_(c.attr<float>("epsilon")), training_(c.attr<bool>("is_training")) {
    const auto format = c.attr<std::string>("data_format");
    channels_first_ = format.size() > 1 && format[1] == 'C';
  }

 protected:
  // A vector of channels in float.
  static StatusOr<Tensor> Floats(KernelContext& ctx, const Tensor& t) {
    if (t.dtype() == kFloat) return t;
    MR_ASSIGN_OR_RETURN(Tensor wide, ctx.AllocateTemp(kFloat, t.shape()));
    for (int64_t i = 0; i < t.num_elements(); ++i) {
      wide.data<float>()[i] = static_cast<float>(t.data<BFloat16>()[i]);
    }
    return wide;
  }

  const float epsilon_;
  const bool training_;
  bool channels_first_ = false;
};

class FusedBatchNormKernel : public BatchNormKernel {
 public:
  explicit FusedBatchNormKernel(KernelConstruction& c)
      : BatchNormKernel(c), factor_(c.attr<float>("exponential_avg_factor")) {}

  Status Compute(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    // Training from scratch needs no estimates.
    MR_ASSIGN_OR_RETURN(const ChannelView channels,
                        PlanNormalization(x.shape(), channels_first_,
                                          {&ctx.input(1).shape(), &ctx.input(2).shape(),
                                           &ctx.input(3).shape(), &ctx.input(4).shape()},
                                          !training_ || factor_ != 1.0f));
    const View view{channels};
    MR_ASSIGN_OR_RETURN(Tensor sums, ctx.AllocateTemp(kDouble, Shape({view.channels})));
    MR_ASSIGN_OR_RETURN(Tensor used, ctx.AllocateTemp(kFloat, Shape({4, view.channels})));
    float* mean = used.data<float>();
    float* variance = mean + view.channels;
    Status status;
    DispatchType(TypeList<float, Half, BFloat16>(), x.dtype(), [&]<typename T>() {
      status = Run<T>(ctx, view, x, sums.data<double>(), mean, variance);
    });
    MR_RETURN_IF_ERROR(status);
    MR_RETURN_IF_ERROR(SetStatistics(ctx, view, mean, variance));
    if (num_outputs() > 5) {  // of use to other devices only
      MR_ASSIGN_OR_RETURN(Tensor * unused, ctx.AllocateOutput(5, Shape()));
      FillZero(ctx, unused->dtype(), unused->raw_data(), 1);
    }
    return OkStatus();
  }

 private:
  template <typename T>
  Status Run(KernelContext& ctx, const View& v, const Tensor& input, double* sums, float* mean,
             float* variance) const {
    const T* x = input.data<T>();
    const int64_t n = v.channels;
    MR_ASSIGN_OR_RETURN(const Tensor scale, Floats(ctx, ctx.input(1)));
    MR_ASSIGN_OR_RETURN(const Tensor offset, Floats(ctx, ctx.input(2)));
    if (training_) {
      const auto count = static_cast<double>(v.count());  // 0: statistics are NaN
      const auto sum = LoopFor<SumValues<T>, T>();
      MR_RETURN_IF_ERROR(SumRows(ctx, v, sums, [&](int64_t begin, int64_t end, float* out) {
        sum(v, x, begin, end, out);
      }));
      for (int64_t c = 0; c < n; ++c) mean[c] = static_cast<float>(sums[c] / count);
      const auto squares = LoopFor<SumSquares<T>, T>();
      MR_RETURN_IF_ERROR(SumRows(ctx, v, sums, [&](int64_t begin, int64_t end, float* out) {
        squares(v, x, mean, begin, end, out);
      }));
      for (int64_t c = 0; c < n; ++c) variance[c] = static_cast<float>(sums[c] / count);
    } else {
      MR_ASSIGN_OR_RETURN(const Tensor given_mean, Floats(ctx, ctx.input(3)));
      MR_ASSIGN_OR_RETURN(const Tensor given_variance, Floats(ctx, ctx.input(4)));
      std::copy_n(given_mean.data<float>(), n, mean);
      std::copy_n(given_variance.data<float>(), n, variance);
    }
    float* factor = variance + n;
    for (int64_t c = 0; c < n; ++c) {
      factor[c] = scale.data<float>()[c] / std::sqrt(variance[c] + epsilon_);
    }
    const float* add = offset.data<float>();
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, input.shape()));
    T* y = out->data<T>();
    const auto normalize = LoopFor<Normalize<T>, T>();
    ctx.ParallelFor(v.outer, 0.5 * static_cast<double>(v.row()), [&](int64_t begin, int64_t end) {
      normalize(v, x, mean, factor, add, y, begin, end);
    });
    return OkStatus();
  }

  // Outputs 1 and 2: the running statistics; 3 and 4: what the gradient needs.
  Status SetStatistics(KernelContext& ctx, const View& v, const float* mean,
                       const float* variance) const {
    const auto count = static_cast<float>(v.count());
    const float unbiased = training_ && v.count() > 1 ? count / (count - 1) : 1.0f;
    MR_RETURN_IF_ERROR(SetRunning(ctx, 1, v, mean, 1.0f));
    MR_RETURN_IF_ERROR(SetRunning(ctx, 2, v, variance, unbiased));
    for (int i = 0; i < 2; ++i) {
      MR_ASSIGN_OR_RETURN(Tensor * kept, ctx.AllocateOutput(3 + i, Shape({v.channels})));
      Store(i == 0 ? mean : variance, v.channels, kept);
    }
    return OkStatus();
  }

  Status SetRunning(KernelContext& ctx, int output, const View& v, const float* now,
                    float correction) const {
    MR_ASSIGN_OR_RETURN(Tensor mixed, ctx.AllocateTemp(kFloat, Shape({v.channels})));
    float* out = mixed.data<float>();
    for (int64_t c = 0; c < v.channels; ++c) out[c] = now[c] * correction;
    if (training_ && factor_ != 1.0f) {
      MR_ASSIGN_OR_RETURN(const Tensor before, Floats(ctx, ctx.input(2 + output)));
      for (int64_t c = 0; c < v.channels; ++c) {
        out[c] = (1.0f - factor_) * before.data<float>()[c] + factor_ * out[c];
      }
    }
    MR_ASSIGN_OR_RETURN(Tensor * result, ctx.AllocateOutput(output, Shape({v.channels})));
    Store(out, v.channels, result);
    return OkStatus();
  }

  static void Store(const float* from, int64_t n, Tensor* to) {
    DispatchType(TypeList<float, BFloat16>(), to->dtype(), [&]<typename T>() {
      for (int64_t c = 0; c < n; ++c) to->data<T>()[c] = static_cast<T>(from[c]);
    });
  }

  const float factor_;
};

// Inputs: gradient, x, scale, and the mean and variance that were used.
class FusedBatchNormGradKernel : public BatchNormKernel {
 public:
  using BatchNormKernel::BatchNormKernel;

  Status Compute(KernelContext& ctx) override {
    const Tensor &dy = ctx.input(0), &x = ctx.input(1);
    MR_ASSIGN_OR_RETURN(const ChannelView channels,
                        PlanNormalizationGrad(
                            dy.shape(), x.shape(), channels_first_,
                            {&ctx.input(2).shape(), &ctx.input(3).shape(), &ctx.input(4).shape()}));
    const View view{channels};
    Status status;
    DispatchType(TypeList<float, Half, BFloat16>(), x.dtype(),
                 [&]<typename T>() { status = Run<T>(ctx, view); });
    MR_RETURN_IF_ERROR(status);
    // Two outputs that only keep the places of old ones.
    for (int i = 3; i < 5; ++i) MR_RETURN_IF_ERROR(ctx.AllocateOutput(i, Shape({0})).status());
    return OkStatus();
  }

 private:
  template <typename T>
  Status Run(KernelContext& ctx, const View& v) const {
    const T* dy = ctx.input(0).data<T>();
    const T* x = ctx.input(1).data<T>();
    const float* scale = ctx.input(2).data<float>();
    const float* mean = ctx.input(3).data<float>();
    const float* variance = ctx.input(4).data<float>();
    const int64_t n = v.channels;
    MR_ASSIGN_OR_RETURN(Tensor sums, ctx.AllocateTemp(kDouble, Shape({2, n})));
    double* sum_dy = sums.data<double>();
    double* products = sum_dy + n;
    const auto sum = LoopFor<SumValues<T>, T>();
    MR_RETURN_IF_ERROR(SumRows(ctx, v, sum_dy, [&](int64_t begin, int64_t end, float* out) {
      sum(v, dy, begin, end, out);
    }));
    const auto multiply = LoopFor<SumProducts<T>, T>();
    MR_RETURN_IF_ERROR(SumRows(ctx, v, products, [&](int64_t begin, int64_t end, float* out) {
      multiply(v, dy, x, mean, begin, end, out);
    }));
    MR_ASSIGN_OR_RETURN(Tensor * dx, ctx.AllocateOutput(0, ctx.input(1).shape()));
    MR_ASSIGN_OR_RETURN(Tensor * d_scale, ctx.AllocateOutput(1, Shape({n})));
    MR_ASSIGN_OR_RETURN(Tensor * d_offset, ctx.AllocateOutput(2, Shape({n})));
    MR_ASSIGN_OR_RETURN(Tensor factors, ctx.AllocateTemp(kFloat, Shape({3, n})));
    float* shift = factors.data<float>();
    float* slope = shift + n;
    float* all = slope + n;
    const double count = static_cast<double>(std::max<int64_t>(1, v.count()));
    for (int64_t c = 0; c < n; ++c) {
      const double spread = static_cast<double>(variance[c]) + static_cast<double>(epsilon_);
      const double inverse = 1 / std::sqrt(spread);
      d_scale->data<float>()[c] = static_cast<float>(products[c] * inverse);
      d_offset->data<float>()[c] = static_cast<float>(sum_dy[c]);
      // Statistics that were given do not depend on x.
      shift[c] = training_ ? static_cast<float>(sum_dy[c] / count) : 0.0f;
      slope[c] = training_ ? static_cast<float>(products[c] / count / spread) : 0.0f;
      all[c] = static_cast<float>(scale[c] * inverse);
    }
    T* out = dx->data<T>();
    const auto backward = LoopFor<Backward<T>, T>();
    ctx.ParallelFor(v.outer, 0.6 * static_cast<double>(v.row()), [&](int64_t begin, int64_t end) {
      backward(v, dy, x, mean, shift, slope, all, out, begin, end);
    });
    return OkStatus();
  }
};

}  // namespace

void RegisterBatchNormKernels(KernelRegistry& registry) {
  const auto types = DataTypesOf(TypeList<float, Half, BFloat16>());
  registry.Register(KernelDef("FusedBatchNorm").Type<float>("T"), MakeKernel<FusedBatchNormKernel>);
  for (const char* op : {"FusedBatchNormV2", "FusedBatchNormV3"}) {
    registry.Register(KernelDef(op).Types("T", types), MakeKernel<FusedBatchNormKernel>);
  }
  registry.Register(KernelDef("FusedBatchNormGrad").Type<float>("T"),
                    MakeKernel<FusedBatchNormGradKernel>);
  for (const char* op : {"FusedBatchNormGradV2", "FusedBatchNormGradV3"}) {
    registry.Register(KernelDef(op).Types("T", types), MakeKernel<FusedBatchNormGradKernel>);
  }
}

}  // namespace millrace
