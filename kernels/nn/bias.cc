// SPDX-License-Identifier: Apache-2.0
// BiasAdd and its gradient: one value per channel, added to or summed over all positions.
#include <algorithm>
#include <string>

#include "base/cancellation.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/elementwise.h"
#include "kernels/kernel.h"
#include "kernels/kernel_context.h"
#include "kernels/kernel_registry.h"
#include "kernels/nn/bias_plan.h"

namespace millrace {
namespace {

// Rows of a value plus the bias; `out` may be `value`.
template <typename T>
struct AddBias {
  static MR_ALWAYS_INLINE void Run(const ChannelView& view, const T* value, const T* bias, T* out,
                                   int64_t rows) {
    const int64_t channels = view.channels, inner = view.inner;
    for (int64_t i = 0; i < rows; ++i) {
      if (inner == 1) {
        if constexpr (kIsSmallFloat<T>) {
          small_floats::Add(value, bias, out, channels);
        } else {
          MR_IVDEP
          for (int64_t c = 0; c < channels; ++c) out[c] = Sum(value[c], bias[c]);
        }
      } else {
        for (int64_t c = 0; c < channels; ++c) {
          const T b = bias[c];
          MR_IVDEP
          for (int64_t j = 0; j < inner; ++j) out[c * inner + j] = Sum(value[c * inner + j], b);
        }
      }
      value += channels * inner;
      out += channels * inner;
    }
  }
  static MR_ALWAYS_INLINE T Sum(T a, T b) {
    using C = ComputeType<T>;
    return static_cast<T>(static_cast<C>(a) + static_cast<C>(b));
  }
};

// Adds rows of a gradient to one sum per channel.
template <typename T>
struct SumRows {
  using C = ComputeType<T>;

  static MR_ALWAYS_INLINE void Run(const ChannelView& view, const T* in, C* sum, int64_t rows) {
    const int64_t channels = view.channels, inner = view.inner;
    for (int64_t i = 0; i < rows; ++i) {
      if (inner == 1) {
        MR_IVDEP
        for (int64_t c = 0; c < channels; ++c) sum[c] = sum[c] + static_cast<C>(in[c]);
      } else {
        for (int64_t c = 0; c < channels; ++c) {
          C total = C();
          for (int64_t j = 0; j < inner; ++j) total = total + static_cast<C>(in[c * inner + j]);
          sum[c] = sum[c] + total;
        }
      }
      in += channels * inner;
    }
  }
};

class BiasKernel : public Kernel {
 public:
  explicit BiasKernel(KernelConstruction& c) : Kernel(c) {
    // BiasAddV1 has no such attribute.
    const std::string format = c.attrs().GetOr<std::string>("data_format", "NHWC");
    if (format != "NHWC" && format != "NCHW" && format != "NDHWC" && format != "NCDHW") {
      c.SetError(errors::InvalidArgument("Invalid data format: ", format));
    }
    channels_first_ = format[1] == 'C';
  }

 protected:
  bool channels_first_ = false;
};

class BiasAddKernel : public BiasKernel {
 public:
  explicit BiasAddKernel(KernelConstruction& c) : BiasKernel(c) {}

  Status Compute(KernelContext& ctx) override {
    const Tensor& value = ctx.input(0);
    const Tensor& bias = ctx.input(1);
    MR_ASSIGN_OR_RETURN(const ChannelView view,
                        PlanBiasAdd(value.shape(), bias.shape(), channels_first_));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.ForwardOrAllocateOutput({0}, 0, value.shape()));
    if (out->num_elements() == 0) return OkStatus();
    DispatchType(NumberTypes(), value.dtype(), [&]<typename T>() {
      Add<T>(ctx, view, value.data<T>(), bias.data<T>(), out->data<T>());
    });
    return OkStatus();
  }

 private:
  template <typename T>
  static void Add(KernelContext& ctx, const ChannelView& view, const T* value, const T* bias,
                  T* out) {
    const int64_t row = view.channels * view.inner;
    const auto add = LoopFor<AddBias<T>, T>();
    ctx.ParallelFor(view.outer, 0.3 * static_cast<double>(row), [&](int64_t begin, int64_t end) {
      add(view, value + begin * row, bias, out + begin * row, end - begin);
    });
  }
};

class BiasAddGradKernel : public BiasKernel {
 public:
  explicit BiasAddGradKernel(KernelConstruction& c) : BiasKernel(c) {}

  Status Compute(KernelContext& ctx) override {
    const Tensor& gradient = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const ChannelView view, ViewChannels(gradient.shape(), channels_first_));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, Shape({view.channels})));
    Status status;
    DispatchType(NumberTypes(), gradient.dtype(), [&]<typename T>() {
      if (gradient.num_elements() == 0) {  // of whatever many rows
        std::fill_n(out->data<T>(), view.channels, T());
        return;
      }
      status = Reduce<T>(ctx, view, gradient.data<T>(), out->data<T>());
    });
    return status;
  }

 private:
  // Rows are summed in blocks of this many and then the blocks, whatever the number of
  // threads: the result depends on the shape alone, and rounding errors stay small.
  static constexpr int64_t kBlock = 256;

  template <typename T>
  static Status Reduce(KernelContext& ctx, const ChannelView& view, const T* in, T* out) {
    using C = ComputeType<T>;
    const int64_t blocks = std::max<int64_t>(1, (view.outer + kBlock - 1) / kBlock);
    MR_ASSIGN_OR_RETURN(Tensor partial,
                        ctx.AllocateTemp(DataTypeOf<C>(), Shape({blocks, view.channels})));
    C* sums = partial.data<C>();
    const CancellationManager* const cancellation = ctx.cancellation();
    const auto cancelled = [cancellation] {
      return cancellation != nullptr && cancellation->IsCancelled();
    };
    const auto add = LoopFor<SumRows<T>, T>();
    const double cost = 0.3 * static_cast<double>(kBlock * view.channels * view.inner);
    ctx.ParallelFor(blocks, cost, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end && !cancelled(); ++b) {
        C* sum = sums + b * view.channels;
        std::fill_n(sum, view.channels, C());
        const int64_t rows = std::min(kBlock, view.outer - b * kBlock);
        add(view, in + b * kBlock * view.channels * view.inner, sum, rows);
      }
    });
    if (cancelled()) return errors::Cancelled("the step ended while biases were summed");
    for (int64_t b = 1; b < blocks; ++b) {
      const C* sum = sums + b * view.channels;
      for (int64_t c = 0; c < view.channels; ++c) sums[c] = sums[c] + sum[c];
    }
    for (int64_t c = 0; c < view.channels; ++c) out[c] = static_cast<T>(sums[c]);
    return OkStatus();
  }
};

}  // namespace

void RegisterBiasKernels(KernelRegistry& registry) {
  for (const char* op : {"BiasAdd", "BiasAddV1"}) {
    registry.Register(KernelDef(op).Types("T", DataTypesOf(NumberTypes())),
                      MakeKernel<BiasAddKernel>);
  }
  registry.Register(KernelDef("BiasAddGrad").Types("T", DataTypesOf(NumberTypes())),
                    MakeKernel<BiasAddGradKernel>);
}

}  // namespace millrace
