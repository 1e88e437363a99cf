// SPDX-License-Identifier: Apache-2.0
// Elementwise ops of several operands of one shape, and checks of values.
#include <algorithm>
#include <cmath>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "kernels/all_kernels.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/elementwise.h"
#include "kernels/common/kernel_util.h"
#include "kernels/common/numerics_error.h"
#include "kernels/common/slice_indices.h"
#include "kernels/kernel_context.h"

namespace millrace {
namespace {

// out = a + b; `out` may be `a`.
template <typename T>
struct SumTwo {
  static MR_ALWAYS_INLINE void Run(const T* a, const T* b, T* out, int64_t n) {
    using C = ComputeType<T>;
    if constexpr (kIsSmallFloat<T>) return small_floats::Add(a, b, out, n);
    MR_IVDEP
    for (int64_t i = 0; i < n; ++i) {
      if constexpr (std::is_integral_v<T>) {
        out[i] = static_cast<T>(static_cast<uint64_t>(a[i]) + static_cast<uint64_t>(b[i]));
      } else {
        out[i] = static_cast<T>(static_cast<C>(a[i]) + static_cast<C>(b[i]));
      }
    }
  }
};

template <typename T>
class AddNKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const int n = ctx.num_inputs();
    const Shape shape = ctx.input(0).shape();
    for (int i = 1; i < n; ++i) {
      if (!(ctx.input(i).shape() == shape)) {
        return errors::InvalidArgument(
            "Inputs to operation ", name(),
            " of type AddN must have the same size and shape. Input 0: ", shape.DebugString(),
            " != input ", i, ": ", ctx.input(i).shape().DebugString());
      }
    }
    if (n == 1) {
      ctx.SetOutput(0, ctx.input(0));
      return OkStatus();
    }
    absl::InlinedVector<const T*, 8> in(n);
    for (int i = 0; i < n; ++i) in[i] = ctx.input(i).data<T>();
    // Only input 0: the others are still read after the first sum is written.
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.ForwardOrAllocateOutput({0}, 0, shape));
    T* dst = out->data<T>();
    const auto sum = LoopFor<SumTwo<T>, T>();
    ctx.ParallelFor(shape.num_elements(), 0.3 * n, [&](int64_t begin, int64_t end) {
      constexpr int64_t kBlock = 4096;  // stays in the first-level cache over all inputs
      for (int64_t b = begin; b < end; b += kBlock) {
        const int64_t e = std::min(end, b + kBlock);
        sum(in[0] + b, in[1] + b, dst + b, e - b);
        for (int k = 2; k < n; ++k) sum(dst + b, in[k] + b, dst + b, e - b);
      }
    });
    return OkStatus();
  }
};

template <typename C>
C Clip(C x, C low, C high) {
  if constexpr (kIsComplex<C>) {  // each part by itself
    return {Clip(x.real(), low.real(), high.real()), Clip(x.imag(), low.imag(), high.imag())};
  } else {
    const C below = x > high ? high : x;
    return below < low ? low : below;
  }
}

// Limits are one each, or one for each element. `out` may be an operand.
template <typename T>
struct ClipLoop {
  static MR_ALWAYS_INLINE void Run(const T* x, const T* low, const T* high, bool one_low,
                                   bool one_high, T* out, int64_t n) {
    if (one_low && one_high) {
      const T least = *low, most = *high;
      MR_IVDEP
      for (int64_t i = 0; i < n; ++i) out[i] = Clip(x[i], least, most);
      return;
    }
    for (int64_t i = 0; i < n; ++i) {
      out[i] = Clip(x[i], low[one_low ? 0 : i], high[one_high ? 0 : i]);
    }
  }
};

template <typename T>
void ClipSmall(const T* x, const T* low, const T* high, bool one_low, bool one_high, T* out,
               int64_t n) {
  static const auto loop = BestVersion<ClipLoop<float>>();
  float value[small_floats::kBlock], least[small_floats::kBlock], most[small_floats::kBlock];
  for (int64_t i = 0; i < n; i += small_floats::kBlock) {
    const int64_t count = std::min(small_floats::kBlock, n - i);
    small_floats::Widen(x + i, value, count);
    small_floats::Widen(low + (one_low ? 0 : i), least, one_low ? 1 : count);
    small_floats::Widen(high + (one_high ? 0 : i), most, one_high ? 1 : count);
    loop(value, least, most, one_low, one_high, value, count);
    small_floats::Narrow(value, out + i, count);
  }
}

template <typename T>
class ClipByValueKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Shape shape = ctx.input(0).shape();
    bool one[3] = {false, true, true};
    const T* in[3];
    for (int i = 0; i < 3; ++i) {
      in[i] = ctx.input(i).data<T>();
      if (i == 0 || ctx.input(i).num_elements() == 1) continue;
      if (!(ctx.input(i).shape() == shape)) {
        return errors::InvalidArgument(
            "clip_value_min and clip_value_max must be either of the same shape as input, or a "
            "scalar. input shape: ",
            shape.DebugString(), ", limit: ", ctx.input(i).shape().DebugString());
      }
      one[i] = false;
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.ForwardOrAllocateOutput({0}, 0, shape));
    T* dst = out->data<T>();
    ctx.ParallelFor(shape.num_elements(), 0.4, [&](int64_t begin, int64_t end) {
      const T *low = in[1] + (one[1] ? 0 : begin), *high = in[2] + (one[2] ? 0 : begin);
      if constexpr (kIsSmallFloat<T>) {
        ClipSmall(in[0] + begin, low, high, one[1], one[2], dst + begin, end - begin);
      } else {
        LoopFor<ClipLoop<T>, T>()(in[0] + begin, low, high, one[1], one[2], dst + begin,
                                  end - begin);
      }
    });
    return OkStatus();
  }
};

template <typename T>
class CheckNumericsKernel : public Kernel {
 public:
  explicit CheckNumericsKernel(KernelConstruction& c)
      : Kernel(c),
        message_(c.attrs().GetOr<std::string>("message", "")),
        tells_signs_(c.def().name() == "CheckNumericsV2") {}
  Status Compute(KernelContext& ctx) override {
    FoundNumbers found;
    for (const T x : ctx.input(0).flat<T>()) {
      const auto v = static_cast<ComputeType<T>>(x);
      found.nan |= std::isnan(v);
      found.below |= std::isinf(v) && v < 0;
      found.above |= std::isinf(v) && v > 0;
    }
    if (found.any()) {
      const Status status = NumericsError(found, message_, tells_signs_);
      return WithMessage(status, StrCat(Message(status), FirstPlace(ctx.input(0))));
    }
    ctx.SetOutput(0, ctx.input(0));
    return OkStatus();
  }

 private:
  // ", the first at [2,0]", looked for where there is one; nothing of a scalar.
  static std::string FirstPlace(const Tensor& in) {
    const auto all = in.flat<T>();
    const auto first = std::find_if(all.begin(), all.end(), [](const T x) {
      return !std::isfinite(static_cast<ComputeType<T>>(x));
    });
    const std::string place = IndexText(in.shape(), first - all.begin());
    return place.empty() ? "" : StrCat(", the first at [", place, "]");
  }

  const std::string message_;
  const bool tells_signs_;  // of infinities
};

template <template <typename> class K, typename... Ts>
void RegisterPerType(KernelRegistry& r, const char* op, TypeList<Ts...>) {
  (r.Register(KernelDef(op).Type<Ts>("T"), &MakeKernel<K<Ts>>), ...);
}

}  // namespace

void RegisterAddNKernels(KernelRegistry& r) {
  RegisterPerType<AddNKernel>(r, "AddN", NumberTypes());
  RegisterPerType<AddNKernel>(r, "AccumulateNV2", NumberTypes());
  RegisterPerType<ClipByValueKernel>(r, "ClipByValue", NumberTypes());
  RegisterPerType<CheckNumericsKernel>(r, "CheckNumerics", FloatTypes());
  RegisterPerType<CheckNumericsKernel>(r, "CheckNumericsV2", FloatTypes());
}

}  // namespace millrace
