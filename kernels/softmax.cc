// Softmax and the cross entropies on top of it: each row is read while it is in cache, in
// one call, with its maximum taken out first so that exp never overflows.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/dtype_dispatch.h"
#include "kernels/kernel.h"
#include "kernels/kernel_context.h"
#include "kernels/kernel_registry.h"

namespace millrace {
namespace {

constexpr double kNanosPerExp = 4;

template <typename C, typename T>
C RowMax(const T* row, int64_t n) {
  C max = -std::numeric_limits<C>::infinity();
  for (int64_t j = 0; j < n; ++j) max = std::max(max, static_cast<C>(row[j]));
  return max;
}

// out = softmax(in), or its logarithm.
template <typename T>
void SoftmaxRow(const T* in, T* out, int64_t n, bool log) {
  using C = ComputeType<T>;
  const C max = RowMax<C>(in, n);
  C sum = 0;
  if (log) {
    for (int64_t j = 0; j < n; ++j) sum += std::exp(static_cast<C>(in[j]) - max);
    const C log_sum = std::log(sum);
    for (int64_t j = 0; j < n; ++j) out[j] = static_cast<T>(static_cast<C>(in[j]) - max - log_sum);
    return;
  }
  if constexpr (kIsSmallFloat<T>) {  // rounded once, at the end
    for (int64_t j = 0; j < n; ++j) sum += std::exp(static_cast<C>(in[j]) - max);
    for (int64_t j = 0; j < n; ++j) {
      out[j] = static_cast<T>(std::exp(static_cast<C>(in[j]) - max) / sum);
    }
  } else {
    for (int64_t j = 0; j < n; ++j) sum += out[j] = std::exp(in[j] - max);
    const C scale = C(1) / sum;
    for (int64_t j = 0; j < n; ++j) out[j] *= scale;
  }
}

class SoftmaxKernel : public Kernel {
 public:
  explicit SoftmaxKernel(KernelConstruction& c) : Kernel(c), log_(c.def().name() == "LogSoftmax") {}

  Status Compute(KernelContext& ctx) override {
    const Tensor& logits = ctx.input(0);
    if (logits.rank() < 1) {
      return errors::InvalidArgument("logits must have >= 1 dimension, got ",
                                     logits.shape().DebugString());
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.ForwardOrAllocateOutput({0}, 0, logits.shape()));
    const int64_t n = logits.dim(logits.rank() - 1);
    if (logits.num_elements() == 0) return OkStatus();
    DispatchType(FloatTypes(), logits.dtype(), [&]<typename T>() {
      const T* in = logits.data<T>();
      T* to = out->data<T>();
      ctx.ParallelFor(logits.num_elements() / n, kNanosPerExp * static_cast<double>(n),
                      [&](int64_t begin, int64_t end) {
                        for (int64_t i = begin; i < end; ++i) {
                          SoftmaxRow(in + i * n, to + i * n, n, log_);
                        }
                      });
    });
    return OkStatus();
  }

 private:
  const bool log_;
};

// loss = sum(labels * -log softmax(logits)), backprop = softmax(logits) - labels, row by row.
class CrossEntropyKernel : public Kernel {
 public:
  explicit CrossEntropyKernel(KernelConstruction& c) : Kernel(c) {}

  Status Compute(KernelContext& ctx) override {
    const Tensor& logits = ctx.input(0);
    const Tensor& labels = ctx.input(1);
    if (logits.rank() != 2 || labels.rank() != 2) return SizeError(logits, labels);
    int64_t size[2];
    for (int i = 0; i < 2; ++i) {  // a side of 1 is repeated
      const int64_t a = logits.dim(i), b = labels.dim(i);
      if (a != b && a != 1 && b != 1) return SizeError(logits, labels);
      size[i] = a == 1 ? b : a;
    }
    MR_ASSIGN_OR_RETURN(Tensor * loss, ctx.AllocateOutput(0, Shape({size[0]})));
    MR_ASSIGN_OR_RETURN(Tensor * backprop,
                        ctx.ForwardOrAllocateOutput({0, 1}, 1, Shape({size[0], size[1]})));
    DispatchType(FloatTypes(), logits.dtype(), [&]<typename T>() {
      Rows<T>(ctx, logits, labels, size[0], size[1], loss->data<T>(), backprop->data<T>());
    });
    return OkStatus();
  }

 private:
  static Status SizeError(const Tensor& logits, const Tensor& labels) {
    return errors::InvalidArgument(
        "logits and labels must be broadcastable 2-D matrices: logits_size=",
        logits.shape().DebugString(), " labels_size=", labels.shape().DebugString());
  }

  // `backprop` may be the logits or the labels: each element is read before it is written.
  template <typename T>
  static void Rows(KernelContext& ctx, const Tensor& logits, const Tensor& labels, int64_t rows,
                   int64_t n, T* loss, T* backprop) {
    using C = ComputeType<T>;
    const T* x = logits.data<T>();
    const T* y = labels.data<T>();
    const int64_t x_row = logits.dim(0) == 1 ? 0 : logits.dim(1);
    const int64_t y_row = labels.dim(0) == 1 ? 0 : labels.dim(1);
    const int64_t x_col = logits.dim(1) == 1 ? 0 : 1, y_col = labels.dim(1) == 1 ? 0 : 1;
    ctx.ParallelFor(rows, 2 * kNanosPerExp * static_cast<double>(n),
                    [&](int64_t begin, int64_t end) {
                      for (int64_t i = begin; i < end; ++i) {
                        const T* xi = x + i * x_row;
                        const T* yi = y + i * y_row;
                        T* out = backprop + i * n;
                        C max = -std::numeric_limits<C>::infinity();
                        for (int64_t j = 0; j < n; ++j)
                          max = std::max(max, static_cast<C>(xi[j * x_col]));
                        C sum = 0;
                        for (int64_t j = 0; j < n; ++j)
                          sum += std::exp(static_cast<C>(xi[j * x_col]) - max);
                        const C log_sum = std::log(sum), scale = C(1) / sum;
                        C total = 0;
                        for (int64_t j = 0; j < n; ++j) {
                          const C shifted = static_cast<C>(xi[j * x_col]) - max,
                                  p = static_cast<C>(yi[j * y_col]);
                          // A label of 0 adds nothing even where the logit is -infinity.
                          if (p != C(0)) total += p * (log_sum - shifted);
                          out[j] = static_cast<T>(std::exp(shifted) * scale - p);
                        }
                        loss[i] = static_cast<T>(total);
                      }
                    });
  }
};

// The same with one class number per row for labels.
class SparseCrossEntropyKernel : public Kernel {
 public:
  explicit SparseCrossEntropyKernel(KernelConstruction& c) : Kernel(c) {}

  Status Compute(KernelContext& ctx) override {
    const Tensor& logits = ctx.input(0);
    const Tensor& labels = ctx.input(1);
    if (logits.rank() != 2) {
      return errors::InvalidArgument("logits must be 2-D, but got shape ",
                                     logits.shape().DebugString());
    }
    if (labels.rank() != 1) {
      return errors::InvalidArgument("labels must be 1-D, but got shape ",
                                     labels.shape().DebugString());
    }
    if (labels.dim(0) != logits.dim(0)) {
      return errors::InvalidArgument(
          "logits and labels must have the same first dimension, got logits shape ",
          logits.shape().DebugString(), " and labels shape ", labels.shape().DebugString());
    }
    const int64_t classes = logits.dim(1);
    if (classes <= 0 && logits.dim(0) > 0) {
      return errors::InvalidArgument("Must have at least one class, but got logits shape ",
                                     logits.shape().DebugString());
    }
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
    using C = ComputeType<T>;
    const int64_t n = logits.dim(1);
    const T* x = logits.data<T>();
    ctx.ParallelFor(
        logits.dim(0), 2 * kNanosPerExp * static_cast<double>(n), [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            const T* xi = x + i * n;
            T* out = backprop + i * n;
            const C max = RowMax<C>(xi, n);
            C sum = 0;
            for (int64_t j = 0; j < n; ++j) {
              sum += std::exp(static_cast<C>(xi[j]) - max);
            }
            loss[i] = static_cast<T>(std::log(sum) - (static_cast<C>(xi[labels[i]]) - max));
            const C scale = C(1) / sum;
            for (int64_t j = 0; j < n; ++j) {
              const C p = std::exp(static_cast<C>(xi[j]) - max) * scale;
              out[j] = static_cast<T>(j == labels[i] ? p - C(1) : p);
            }
          }
        });
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
