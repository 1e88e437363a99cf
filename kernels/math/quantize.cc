// SPDX-License-Identifier: Apache-2.0
// Rounding of floats to what a number of bits can tell apart, and back: what training for
// quantized inference computes with.
#include "kernels/math/quantize.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/kernel.h"
#include "kernels/kernel_context.h"

namespace millrace {
namespace {

// How the elements of a tensor share ranges: element i has range i / inner % ranges.
struct Ranges {
  int64_t count = 1, inner = 1;

  // Calls run(range, from, to) for each stretch of elements from `begin` to `end` with one range.
  template <typename Run>
  void ForRuns(int64_t begin, int64_t end, const Run& run) const {
    if (count == 1) return run(0, begin, end);
    while (begin < end) {
      const int64_t stretch = begin / inner;
      const int64_t stop = std::min(end, (stretch + 1) * inner);
      run(stretch % count, begin, stop);
      begin = stop;
    }
  }
};

StatusOr<Ranges> RangesAlong(int64_t axis, const Shape& shape) {
  if (axis < -1 || axis >= shape.rank()) {
    return errors::InvalidArgument("Shape must be at least rank ", axis + 1, " but is rank ",
                                   shape.rank(), "; the axis must be -1 or one of the input's");
  }
  Ranges ranges;
  if (axis < 0) return ranges;
  ranges.count = shape.dim(static_cast<int>(axis));
  for (int i = static_cast<int>(axis) + 1; i < shape.rank(); ++i) ranges.inner *= shape.dim(i);
  return ranges;
}

// One bound for all, or one for each slice along the axis.
Status CheckBound(const Tensor& bound, std::string_view name, int64_t axis, const Ranges& ranges) {
  if (axis < 0) {
    if (bound.rank() == 0) return OkStatus();
    return errors::InvalidArgument(name, " must be a scalar if axis is unspecified, got shape ",
                                   bound.shape().DebugString());
  }
  if (bound.rank() != 1) {
    return errors::InvalidArgument("Shape must be rank 1 for ", name,
                                   " when the axis is specified, got shape ",
                                   bound.shape().DebugString());
  }
  if (bound.dim(0) == ranges.count) return OkStatus();
  return errors::InvalidArgument(name, " has incorrect size, was ", bound.dim(0), " expected ",
                                 ranges.count, " to match dim ", axis, " of the input");
}

// The grid of one range: numbers that are whole after multiplication by `scale`.
template <typename T>
struct Grid {
  T low, high, scale, step;

  // `least` and `most`: the whole numbers that the bits can tell. The range grows on one side, so
  // that zero is a point of the grid.
  Grid(T from, T to, T least, T most) : low(from), high(to) {
    constexpr T kLargest = std::numeric_limits<T>::max();
    const T by_low = least * low > 0 ? least / low : kLargest;
    const T by_high = most * high > 0 ? most / high : kLargest;
    if (by_low < by_high) {
      scale = by_low;
      step = low / least;
      high = most * step;
    } else {
      scale = by_high;
      step = high / most;
      low = least * step;
    }
  }
};

struct Attributes {
  explicit Attributes(KernelConstruction& c)
      : axis(c.attrs().GetOr<int64_t>("axis", -1)),
        is_signed(c.attrs().GetOr<bool>("signed_input", true)),
        range_given(c.attrs().GetOr<bool>("range_given", false)),
        narrow(c.attrs().GetOr<bool>("narrow_range", false)),
        half_up(c.attrs().GetOr<std::string>("round_mode", "HALF_TO_EVEN") == "HALF_UP") {}
  Status CheckBits(int64_t bits) const {
    if (bits >= 1 && bits < (is_signed ? 62 : 63)) return OkStatus();
    return errors::InvalidArgument("num_bits is out of range: ", bits, " with signed_input ",
                                   is_signed ? 1 : 0);
  }

  const int64_t axis;
  const bool is_signed, range_given, narrow, half_up;
};

// Inputs: numbers, their lowest and highest value, and (V3) the number of bits.
template <typename T>
class QuantizeAndDequantizeKernel : public Kernel {
 public:
  explicit QuantizeAndDequantizeKernel(KernelConstruction& c)
      : Kernel(c), attrs_(c), bits_(c.attrs().GetOr<int64_t>("num_bits", 0)) {
    if (c.input_types().size() > 3) return;
    c.SetError(attrs_.CheckBits(bits_));
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const Ranges ranges, RangesAlong(attrs_.axis, in.shape()));
    int64_t bits = bits_;
    if (ctx.num_inputs() > 3) {
      const Tensor& given = ctx.input(3);
      if (given.rank() != 0) {
        return errors::InvalidArgument(
            "Invalid shape. The `num_bits` tensor should be a scalar. "
            "Got dimensions: ",
            given.rank());
      }
      bits = given.scalar<int32_t>();
      MR_RETURN_IF_ERROR(attrs_.CheckBits(bits));
    }
    if (attrs_.range_given) MR_RETURN_IF_ERROR(CheckRanges(ctx, ranges));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.ForwardOrAllocateOutput({0}, 0, in.shape()));
    if (in.num_elements() == 0) return OkStatus();
    MR_ASSIGN_OR_RETURN(Tensor low, ctx.AllocateTemp(in.dtype(), Shape({ranges.count})));
    MR_ASSIGN_OR_RETURN(Tensor high, ctx.AllocateTemp(in.dtype(), Shape({ranges.count})));
    FindBounds(ctx, ranges, low.data<T>(), high.data<T>());
    const int64_t half = int64_t{1} << (bits - 1);
    const T least = static_cast<T>(attrs_.is_signed ? (attrs_.narrow ? 1 : 0) - half : 0);
    const T most = static_cast<T>(attrs_.is_signed ? half - 1 : half - 1 + half);
    const T* src = in.data<T>();
    T* dst = out->data<T>();
    constexpr double kNanosPerElement = 3;
    ctx.ParallelFor(in.num_elements(), kNanosPerElement, [&](int64_t begin, int64_t end) {
      ranges.ForRuns(begin, end, [&](int64_t range, int64_t from, int64_t to) {
        const Grid<T> grid(low.data<T>()[range], high.data<T>()[range], least, most);
        for (int64_t i = from; i < to; ++i) dst[i] = ToGrid(src[i], grid);
      });
    });
    return OkStatus();
  }

 private:
  Status CheckRanges(KernelContext& ctx, const Ranges& ranges) const {
    MR_RETURN_IF_ERROR(CheckBound(ctx.input(1), "input_min_tensor", attrs_.axis, ranges));
    MR_RETURN_IF_ERROR(CheckBound(ctx.input(2), "input_max_tensor", attrs_.axis, ranges));
    if (attrs_.axis >= 0) return OkStatus();
    const T low = ctx.input(1).scalar<T>(), high = ctx.input(2).scalar<T>();
    if (low <= high) return OkStatus();
    return errors::InvalidArgument("Invalid range: input_min ", low, " > input_max ", high);
  }

  // The bounds of each range: those given, or the least and the greatest element.
  void FindBounds(KernelContext& ctx, const Ranges& ranges, T* low, T* high) const {
    if (attrs_.range_given) {
      std::copy_n(ctx.input(1).data<T>(), ranges.count, low);
      std::copy_n(ctx.input(2).data<T>(), ranges.count, high);
      return;
    }
    const T* src = ctx.input(0).data<T>();
    const int64_t n = ctx.input(0).num_elements();
    for (int64_t r = 0; r < ranges.count; ++r) low[r] = high[r] = src[r * ranges.inner];
    ranges.ForRuns(0, n, [&](int64_t r, int64_t from, int64_t to) {
      T least = low[r], most = high[r];
      for (int64_t i = from; i < to; ++i) {
        // Numbers that are none do not count.
        if (src[i] < least || least != least) least = src[i];
        if (src[i] > most || most != most) most = src[i];
      }
      low[r] = least;
      high[r] = most;
    });
  }

  T ToGrid(T x, const Grid<T>& grid) const {
    if (attrs_.range_given) {
      if (x > grid.high) x = grid.high;
      if (x < grid.low) x = grid.low;
    }
    const T whole =
        attrs_.half_up ? std::floor(x * grid.scale + T(0.5)) : std::nearbyint(x * grid.scale);
    return whole * grid.step;
  }

  const Attributes attrs_;
  const int64_t bits_;
};

// Inputs: gradients, numbers, their lowest and highest value. The gradient passes where the number
// lies within the range; the bounds get none.
template <typename T>
class QuantizeAndDequantizeGradKernel : public Kernel {
 public:
  explicit QuantizeAndDequantizeGradKernel(KernelConstruction& c)
      : Kernel(c), axis_(c.attrs().GetOr<int64_t>("axis", -1)) {}

  Status Compute(KernelContext& ctx) override {
    const Tensor &gradients = ctx.input(0), &in = ctx.input(1);
    if (gradients.shape() != in.shape()) {
      return errors::InvalidArgument("gradient and input must be the same size, got ",
                                     gradients.shape().DebugString(), " and ",
                                     in.shape().DebugString());
    }
    MR_ASSIGN_OR_RETURN(const Ranges ranges, RangesAlong(axis_, in.shape()));
    MR_RETURN_IF_ERROR(CheckBound(ctx.input(2), "input_min", axis_, ranges));
    MR_RETURN_IF_ERROR(CheckBound(ctx.input(3), "input_max", axis_, ranges));
    for (int i = 1; i <= 2; ++i) {
      MR_ASSIGN_OR_RETURN(Tensor * none, ctx.AllocateOutput(i, ctx.input(i + 1).shape()));
      std::fill_n(none->data<T>(), none->num_elements(), T());
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, in.shape()));
    if (in.num_elements() == 0) return OkStatus();
    const T *g = gradients.data<T>(), *x = in.data<T>();
    const T *low = ctx.input(2).data<T>(), *high = ctx.input(3).data<T>();
    T* dst = out->data<T>();
    ctx.ParallelFor(in.num_elements(), 1.0, [&](int64_t begin, int64_t end) {
      ranges.ForRuns(begin, end, [&](int64_t r, int64_t from, int64_t to) {
        for (int64_t i = from; i < to; ++i) {
          const bool within = x[i] >= low[r] && x[i] <= high[r];
          dst[i] = within ? g[i] : T();
        }
      });
    });
    return OkStatus();
  }

 private:
  const int64_t axis_;
};

template <typename... Ts>
void RegisterAll(KernelRegistry& r, TypeList<Ts...>) {
  for (const char* op :
       {"QuantizeAndDequantizeV2", "QuantizeAndDequantizeV3", "QuantizeAndDequantizeV4"}) {
    (r.Register(KernelDef(op).Type<Ts>("T"), &MakeKernel<QuantizeAndDequantizeKernel<Ts>>), ...);
  }
  (r.Register(KernelDef("QuantizeAndDequantizeV4Grad").Type<Ts>("T"),
              &MakeKernel<QuantizeAndDequantizeGradKernel<Ts>>),
   ...);
}

}  // namespace

void RegisterQuantizeKernels(KernelRegistry& registry) {
  RegisterAll(registry, TypeList<float, double>());
}

}  // namespace millrace
