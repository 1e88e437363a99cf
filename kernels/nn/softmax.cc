// SPDX-License-Identifier: Apache-2.0
// Softmax and the cross entropies on top of it: each row is read while it is in cache, in
// one call, with its maximum taken out first so that exp never overflows.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/elementwise.h"
#include "kernels/common/float_math.h"
#include "kernels/kernel.h"
#include "kernels/kernel_context.h"
#include "kernels/kernel_registry.h"
#include "kernels/nn/softmax_plan.h"

namespace millrace {
namespace {

constexpr double kNanosPerExp = 1.5;

template <typename C>
MR_ALWAYS_INLINE C FastExp(C x) {
  if constexpr (std::is_same_v<C, float>) {
    return float_math::Exp(x);
  } else {
    return std::exp(x);
  }
}

// Sums and maxima are taken in several lanes, which the compiler keeps in vectors; the order
// is fixed by the length alone.
constexpr int kLanes = 16;

template <typename C, typename F>
MR_ALWAYS_INLINE C SumOf(int64_t n, F&& value) {
  C lane[kLanes] = {};
  int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) {
    for (int k = 0; k < kLanes; ++k) lane[k] += value(j + k);
  }
  C sum = 0;
  for (; j < n; ++j) sum += value(j);
  for (int k = 0; k < kLanes; ++k) sum += lane[k];
  return sum;
}

template <typename C, typename F>
MR_ALWAYS_INLINE C MaxOf(int64_t n, F&& value) {
  constexpr C kLeast = -std::numeric_limits<C>::infinity();
  C lane[kLanes];
  for (C& x : lane) x = kLeast;
  int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) {
    for (int k = 0; k < kLanes; ++k) lane[k] = lane[k] < value(j + k) ? value(j + k) : lane[k];
  }
  C max = kLeast;
  for (; j < n; ++j) max = max < value(j) ? value(j) : max;
  for (const C x : lane) max = max < x ? x : max;
  return max;
}

// out = softmax(in), or its logarithm, for rows of n; `out` may be `in`.
template <typename T>
struct SoftmaxRows {
  using C = ComputeType<T>;

  static MR_ALWAYS_INLINE void Run(const T* in, T* out, int64_t rows, int64_t n, bool log) {
    for (int64_t i = 0; i < rows; ++i, in += n, out += n) {
      const C max = MaxOf<C>(n, [&](int64_t j) { return static_cast<C>(in[j]); });
      if (log) {
        const C sum =
            SumOf<C>(n, [&](int64_t j) { return FastExp<C>(static_cast<C>(in[j]) - max); });
        const C log_sum = std::log(sum);
        for (int64_t j = 0; j < n; ++j) {
          out[j] = static_cast<T>(static_cast<C>(in[j]) - max - log_sum);
        }
        continue;
      }
      MR_IVDEP
      for (int64_t j = 0; j < n; ++j)
        out[j] = static_cast<T>(FastExp<C>(static_cast<C>(in[j]) - max));
      const C scale = C(1) / SumOf<C>(n, [&](int64_t j) { return static_cast<C>(out[j]); });
      for (int64_t j = 0; j < n; ++j) out[j] = static_cast<T>(static_cast<C>(out[j]) * scale);
    }
  }
};

// The same for 16-bit floats, a block of floats at a time; results are rounded once, at the end.
template <typename T>
struct SmallSoftmaxRows {
  static MR_ALWAYS_INLINE void Run(const T* in, T* out, int64_t rows, int64_t n, bool log) {
    float block[small_floats::kBlock];
    const auto each_block = [&](auto&& use) {
      for (int64_t j = 0; j < n; j += small_floats::kBlock) {
        const int64_t count = std::min(small_floats::kBlock, n - j);
        small_floats::Widen(in + j, block, count);
        use(j, count);
      }
    };
    for (int64_t i = 0; i < rows; ++i, in += n, out += n) {
      float max = -std::numeric_limits<float>::infinity(), sum = 0;
      each_block([&](int64_t, int64_t count) {
        const float most = MaxOf<float>(count, [&](int64_t k) { return block[k]; });
        max = max < most ? most : max;
      });
      each_block([&](int64_t, int64_t count) {
        sum += SumOf<float>(count, [&](int64_t k) { return float_math::Exp(block[k] - max); });
      });
      const float log_sum = std::log(sum);
      each_block([&](int64_t j, int64_t count) {
        if (log) {
          for (int64_t k = 0; k < count; ++k) block[k] = (block[k] - max) - log_sum;
        } else {
          for (int64_t k = 0; k < count; ++k) block[k] = float_math::Exp(block[k] - max) / sum;
        }
        small_floats::Narrow(block, out + j, count);
      });
    }
  }
};

template <typename T>
auto SoftmaxLoopFor() {
  if constexpr (kIsSmallFloat<T>) {
    return BestVersion<SmallSoftmaxRows<T>>();
  } else {
    return LoopFor<SoftmaxRows<T>, T>();
  }
}

class SoftmaxKernel : public Kernel {
 public:
  explicit SoftmaxKernel(KernelConstruction& c) : Kernel(c), log_(c.def().name() == "LogSoftmax") {}

  Status Compute(KernelContext& ctx) override {
    const Tensor& logits = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const SoftmaxPlan plan, PlanSoftmax(logits.shape()));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.ForwardOrAllocateOutput({0}, 0, logits.shape()));
    const int64_t n = plan.n;
    if (logits.num_elements() == 0) return OkStatus();
    DispatchType(FloatTypes(), logits.dtype(), [&]<typename T>() {
      const T* in = logits.data<T>();
      T* to = out->data<T>();
      const auto rows = SoftmaxLoopFor<T>();
      ctx.ParallelFor(plan.rows, kNanosPerExp * static_cast<double>(n),
                      [&](int64_t begin, int64_t end) {
                        rows(in + begin * n, to + begin * n, end - begin, n, log_);
                      });
    });
    return OkStatus();
  }

 private:
  const bool log_;
};

// The losses and gradients of rows [begin, end). `backprop` may be the logits or
// the labels: each element is read before it is written.
template <typename T>
struct CrossEntropyRows {
  using C = ComputeType<T>;

  static MR_ALWAYS_INLINE void Run(const CrossEntropyPlan& o, const T* x, const T* y, T* loss,
                                   T* backprop, int64_t begin, int64_t end) {
    const int64_t n = o.n;
    for (int64_t i = begin; i < end; ++i) {
      if (o.x_column == 1 && o.y_column == 1) {
        loss[i] = Row(x + i * o.x_row, y + i * o.y_row, 1, 1, n, backprop + i * n);
      } else {
        loss[i] =
            Row(x + i * o.x_row, y + i * o.y_row, o.x_column, o.y_column, n, backprop + i * n);
      }
    }
  }

  static MR_ALWAYS_INLINE T Row(const T* x, const T* y, int64_t x_column, int64_t y_column,
                                int64_t n, T* out) {
    const auto logit = [&](int64_t j) { return static_cast<C>(x[j * x_column]); };
    const auto label = [&](int64_t j) { return static_cast<C>(y[j * y_column]); };
    const C max = MaxOf<C>(n, logit);
    const C sum = SumOf<C>(n, [&](int64_t j) { return FastExp<C>(logit(j) - max); });
    const C log_sum = std::log(sum), scale = C(1) / sum;
    const C total = SumOf<C>(n, [&](int64_t j) {
      const C p = label(j), cost = p * (log_sum - (logit(j) - max));
      // A label of 0 adds nothing even where the logit is -infinity.
      return p != C(0) ? cost : C(0);
    });
    MR_IVDEP
    for (int64_t j = 0; j < n; ++j) {
      out[j] = static_cast<T>(FastExp<C>(logit(j) - max) * scale - label(j));
    }
    return static_cast<T>(total);
  }
};

// The same with one class number per row for labels.
template <typename T, typename Index>
struct SparseCrossEntropyRows {
  using C = ComputeType<T>;

  static MR_ALWAYS_INLINE void Run(const T* x, const Index* labels, int64_t n, T* loss, T* backprop,
                                   int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T* row = x + i * n;
      T* out = backprop + i * n;
      const auto logit = [&](int64_t j) { return static_cast<C>(row[j]); };
      const C max = MaxOf<C>(n, logit);
      const C sum = SumOf<C>(n, [&](int64_t j) { return FastExp<C>(logit(j) - max); });
      loss[i] = static_cast<T>(std::log(sum) - (logit(labels[i]) - max));
      const C scale = C(1) / sum;
      const C chosen = FastExp<C>(logit(labels[i]) - max) * scale - C(1);
      MR_IVDEP
      for (int64_t j = 0; j < n; ++j) {
        out[j] = static_cast<T>(FastExp<C>(logit(j) - max) * scale);
      }
      out[labels[i]] = static_cast<T>(chosen);
    }
  }
};

// loss = sum(labels * -log softmax(logits)), backprop = softmax(logits) - labels, row by row.
class CrossEntropyKernel : public Kernel {
 public:
  explicit CrossEntropyKernel(KernelConstruction& c) : Kernel(c) {}

  Status Compute(KernelContext& ctx) override {
    const Tensor& logits = ctx.input(0);
    const Tensor& labels = ctx.input(1);
    MR_ASSIGN_OR_RETURN(const CrossEntropyPlan plan,
                        PlanCrossEntropy(logits.shape(), labels.shape()));
    MR_ASSIGN_OR_RETURN(Tensor * loss, ctx.AllocateOutput(0, Shape({plan.rows})));
    MR_ASSIGN_OR_RETURN(Tensor * backprop,
                        ctx.ForwardOrAllocateOutput({0, 1}, 1, Shape({plan.rows, plan.n})));
    DispatchType(FloatTypes(), logits.dtype(), [&]<typename T>() {
      Rows<T>(ctx, plan, logits.data<T>(), labels.data<T>(), loss->data<T>(), backprop->data<T>());
    });
    return OkStatus();
  }

 private:
  template <typename T>
  static void Rows(KernelContext& ctx, const CrossEntropyPlan& plan, const T* x, const T* y,
                   T* loss, T* backprop) {
    const auto compute = LoopFor<CrossEntropyRows<T>, T>();
    ctx.ParallelFor(
        plan.rows, 2 * kNanosPerExp * static_cast<double>(plan.n),
        [&](int64_t begin, int64_t end) { compute(plan, x, y, loss, backprop, begin, end); });
  }
};

class SparseCrossEntropyKernel : public Kernel {
 public:
  explicit SparseCrossEntropyKernel(KernelConstruction& c) : Kernel(c) {}

  Status Compute(KernelContext& ctx) override {
    const Tensor& logits = ctx.input(0);
    const Tensor& labels = ctx.input(1);
    MR_RETURN_IF_ERROR(CheckSparseCrossEntropy(logits.shape(), labels.shape()));
    const int64_t classes = logits.dim(1);
    MR_RETURN_IF_ERROR(labels.dtype() == kInt32 ? CheckLabels<int32_t>(labels, classes)
                                                : CheckLabels<int64_t>(labels, classes));
    MR_ASSIGN_OR_RETURN(Tensor * loss, ctx.AllocateOutput(0, labels.shape()));
    MR_ASSIGN_OR_RETURN(Tensor * backprop, ctx.ForwardOrAllocateOutput({0}, 1, logits.shape()));
    DispatchType(FloatTypes(), logits.dtype(), [&]<typename T>() {
      if (labels.dtype() == kInt32) {
        Rows<T>(ctx, logits, labels.data<int32_t>(), loss->data<T>(), backprop->data<T>());
      } else {
        Rows<T>(ctx, logits, labels.data<int64_t>(), loss->data<T>(), backprop->data<T>());
      }
    });
    return OkStatus();
  }

 private:
  template <typename Index>
  static Status CheckLabels(const Tensor& labels, int64_t classes) {
    for (const Index label : labels.flat<Index>()) {
      if (label < 0 || label >= classes) {
        return errors::InvalidArgument("Received a label value of ", label,
                                       " which is outside the valid range of [0, ", classes,
                                       ").  Label values: ", labels.DebugString());
      }
    }
    return OkStatus();
  }

  template <typename T, typename Index>
  static void Rows(KernelContext& ctx, const Tensor& logits, const Index* labels, T* loss,
                   T* backprop) {
    const int64_t n = logits.dim(1);
    const T* x = logits.data<T>();
    const auto compute = LoopFor<SparseCrossEntropyRows<T, Index>, T>();
    ctx.ParallelFor(
        logits.dim(0), 2 * kNanosPerExp * static_cast<double>(n),
        [&](int64_t begin, int64_t end) { compute(x, labels, n, loss, backprop, begin, end); });
  }
};

}  // namespace

void RegisterSoftmaxKernels(KernelRegistry& registry) {
  const auto floats = DataTypesOf(FloatTypes());
  registry.Register(KernelDef("Softmax").Types("T", floats), MakeKernel<SoftmaxKernel>);
  registry.Register(KernelDef("LogSoftmax").Types("T", floats), MakeKernel<SoftmaxKernel>);
  registry.Register(KernelDef("SoftmaxCrossEntropyWithLogits").Types("T", floats),
                    MakeKernel<CrossEntropyKernel>);
  registry.Register(KernelDef("SparseSoftmaxCrossEntropyWithLogits")
                        .Types("T", floats)
                        .Types("Tlabels", {kInt32, kInt64}),
                    MakeKernel<SparseCrossEntropyKernel>);
}

}  // namespace millrace
