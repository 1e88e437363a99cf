// SPDX-License-Identifier: Apache-2.0
// Floats as integers with a range, and back: QuantizeV2 and Dequantize. What an integer stands for
// is the mode's: steps from the lowest number of the range (MIN_COMBINED), the same with zero among
// them (MIN_FIRST), or multiples of a scale (SCALED).
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/kernel.h"
#include "kernels/kernel_context.h"
#include "kernels/math/quantize.h"

namespace millrace {
namespace {

enum class Mode { kMinCombined, kMinFirst, kScaled };

Mode ModeOf(KernelConstruction& c) {
  const auto mode = c.attr<std::string>("mode");
  if (mode == "MIN_FIRST") return Mode::kMinFirst;
  return mode == "SCALED" ? Mode::kScaled : Mode::kMinCombined;
}

constexpr float kLargest = std::numeric_limits<float>::max();
constexpr double kNanosPerElement = 2;

// Of integers that are N: the lowest, the highest, and half as many as there are if they are
// signed.
template <typename N>
constexpr double kLowest = static_cast<double>(std::numeric_limits<N>::min());
template <typename N>
constexpr double kHighest = static_cast<double>(std::numeric_limits<N>::max());
template <typename N>
constexpr float kHalf =
    std::is_signed_v<N> ? static_cast<float>((kHighest<N> - kLowest<N> + 1) / 2) : 0.0f;
template <typename N>
constexpr double kSteps = kHighest<N> - kLowest<N>;

// As processors convert: what does not fit, a NaN too, is the lowest int32.
int32_t Truncated(float x) {
  constexpr float kEnd = 2147483648.0f;
  return x >= -kEnd && x < kEnd ? static_cast<int32_t>(x) : INT32_MIN;
}

// The slices along an axis: element i of the tensor is in slice i / inner % count.
struct Slices {
  int64_t count = 1, inner = 1;
};

Slices SlicesAlong(int64_t axis, const Shape& shape) {
  Slices slices{1, 1};
  if (axis < 0) {
    slices.inner = std::max<int64_t>(shape.num_elements(), 1);
    return slices;
  }
  slices.count = shape.dim(static_cast<int>(axis));
  for (int i = static_cast<int>(axis) + 1; i < shape.rank(); ++i) slices.inner *= shape.dim(i);
  return slices;
}

// Calls body(slice, begin, end) for stretches of elements of one slice each.
template <typename Body>
void ForSlices(KernelContext& ctx, const Slices& slices, int64_t n, const Body& body) {
  ctx.ParallelFor(n, kNanosPerElement, [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t part = begin / slices.inner;
      const int64_t stop = std::min(end, (part + 1) * slices.inner);
      body(part % slices.count, begin, stop);
      begin = stop;
    }
  });
}

// -- QuantizeV2 --

// A range of floats, widened so that it has zero and is not too small, and what numbers become.
template <typename N>
class Quantizer {
 public:
  Quantizer(Mode mode, bool narrow, bool half_to_even, float least, float low, float high)
      : mode_(mode), half_to_even_(half_to_even) {
    min_ = std::min(0.0f, low);
    const float room = std::max(1.0f, std::max(std::fabs(low), std::fabs(high))) * least;
    max_ = std::max(0.0f, std::max(high, min_ + room));
    if (mode == Mode::kMinCombined) {
      scale_ = static_cast<float>(kSteps<N> / (static_cast<double>(max_) - min_));
    } else if (mode == Mode::kMinFirst) {
      scale_ = max_ == min_ ? 0.0f : static_cast<float>(kSteps<N> / (max_ - min_));
      shift_ = std::round(min_ * scale_) - static_cast<float>(kLowest<N>);
    } else {
      const float from = static_cast<float>(kLowest<N> + (narrow ? 1 : 0));
      const float to = static_cast<float>(kHighest<N>);
      const float by_min = from * min_ > 0 ? from / min_ : kLargest;
      const float by_max = to * max_ > 0 ? to / max_ : kLargest;
      scale_ = std::min(by_min, by_max);
      min_ = from / scale_;
      max_ = to / scale_;
    }
  }

  float min() const { return min_; }
  float max() const { return max_; }

  N operator()(float x) const {
    if (mode_ == Mode::kMinFirst) {
      constexpr float kFrom = static_cast<float>(kLowest<N>);
      // The highest float that is an int32 where the integers' own end is none.
      constexpr float kTo = std::min(static_cast<float>(kHighest<N>), 2147483520.0f);
      const float whole = std::round(x * scale_) - shift_;
      const float raised = whole < kFrom ? kFrom : whole;
      return static_cast<N>(Truncated(kTo < raised ? kTo : raised));
    }
    const float below = max_ < x ? max_ : x;
    const float within = below < min_ ? min_ : below;
    if (mode_ == Mode::kScaled) {
      const float exact = within * scale_;
      return static_cast<N>(Truncated(half_to_even_ ? std::nearbyint(exact) : std::round(exact)));
    }
    const float steps = (within - min_) * scale_;
    if constexpr (std::is_signed_v<N>) {
      return static_cast<N>(Truncated(std::round(steps - kHalf<N>)));
    } else {
      return static_cast<N>(Truncated(steps + 0.5f));
    }
  }

 private:
  const Mode mode_;
  const bool half_to_even_;
  float min_, max_, scale_, shift_ = 0;
};

Status CheckQuantizeBound(const Tensor& bound, std::string_view name, int64_t axis,
                          int64_t slices) {
  if (axis < 0) {
    if (bound.num_elements() == 1) return OkStatus();
    return errors::InvalidArgument("If axis is not specified, ", name,
                                   " must contain a single float element, but it contains ",
                                   bound.num_elements(), " elements");
  }
  constexpr std::string_view kWhat =
      " must be a 1-D tensor whose size matches the axis dimension of the input and output "
      "tensors, but ";
  if (bound.rank() != 1) {
    return errors::InvalidArgument("If axis is specified, ", name, kWhat, name, " dims are ",
                                   bound.rank());
  }
  if (bound.dim(0) == slices) return OkStatus();
  return errors::InvalidArgument("If axis is specified, ", name, kWhat, name,
                                 " is a 1-D tensor of size ", bound.dim(0),
                                 " and input's axis dimension is of size ", slices);
}

template <typename N>
class QuantizeKernel : public Kernel {
 public:
  explicit QuantizeKernel(KernelConstruction& c)
      : Kernel(c),
        mode_(ModeOf(c)),
        narrow_(c.attr<bool>("narrow_range")),
        half_to_even_(c.attr<std::string>("round_mode") == "HALF_TO_EVEN"),
        axis_(c.attr<int64_t>("axis")),
        least_(c.attr<float>("ensure_minimum_range")) {
    if (half_to_even_ && mode_ != Mode::kScaled) {
      c.SetError(errors::InvalidArgument(
          "Round mode 'HALF_TO_EVEN' only supported for mode 'SCALED', but mode is '",
          c.attr<std::string>("mode"), "'."));
    }
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor &in = ctx.input(0), &low = ctx.input(1), &high = ctx.input(2);
    if (axis_ < -1) return errors::InvalidArgument("axis should be at least -1, got ", axis_);
    if (axis_ >= in.rank()) {
      return errors::InvalidArgument(
          "Axis is on a zero-based index, so its value must always be less than number of input's "
          "dims, but given axis value was ",
          axis_, " and input's dims was ", in.rank());
    }
    const Slices slices = SlicesAlong(axis_, in.shape());
    MR_RETURN_IF_ERROR(CheckQuantizeBound(low, "min_range", axis_, slices.count));
    MR_RETURN_IF_ERROR(CheckQuantizeBound(high, "max_range", axis_, slices.count));
    if (slices.count != 1 && mode_ == Mode::kMinFirst) {
      return errors::Unimplemented(
          "MIN_FIRST mode is not implemented for Quantize with axis != -1.");
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, in.shape()));
    MR_ASSIGN_OR_RETURN(Tensor * out_low, ctx.AllocateOutput(1, low.shape()));
    MR_ASSIGN_OR_RETURN(Tensor * out_high, ctx.AllocateOutput(2, low.shape()));
    for (int64_t i = 0; i < slices.count; ++i) {
      if (high.data<float>()[i] < low.data<float>()[i]) {
        return errors::InvalidArgument("input_max_range must be larger than input_min_range.");
      }
      const Quantizer<N> quantizer = OfSlice(low, high, i);
      out_low->data<float>()[i] = quantizer.min();
      out_high->data<float>()[i] = quantizer.max();
    }
    const float* const x = in.data<float>();
    N* const y = static_cast<N*>(out->raw_data());
    ForSlices(ctx, slices, in.num_elements(), [&](int64_t slice, int64_t begin, int64_t end) {
      const Quantizer<N> quantizer = OfSlice(low, high, slice);
      for (int64_t i = begin; i < end; ++i) y[i] = quantizer(x[i]);
    });
    return OkStatus();
  }

 private:
  Quantizer<N> OfSlice(const Tensor& low, const Tensor& high, int64_t i) const {
    return {mode_, narrow_, half_to_even_, least_, low.data<float>()[i], high.data<float>()[i]};
  }

  const Mode mode_;
  const bool narrow_, half_to_even_;
  const int64_t axis_;
  const float least_;
};

// -- Dequantize --

// (x + before) * scale + after.
template <typename N>
struct Dequantizer {
  Dequantizer(Mode mode, bool narrow, float low, float high) {
    if (mode == Mode::kMinCombined) {
      before = kHalf<N>;
      scale = (high - low) / static_cast<float>(kSteps<N>);
      after = low;
    } else if (mode == Mode::kMinFirst) {
      scale = static_cast<float>((high - low) / kSteps<N>);
      const float rounded = high == low ? low : std::round(low / scale) * scale;
      after = rounded - static_cast<float>(kLowest<N>) * scale;
    } else {
      const float by_max = high / static_cast<float>(kHighest<N>);
      scale = std::is_signed_v<N>
                  ? std::max(low / static_cast<float>(kLowest<N> + (narrow ? 1 : 0)), by_max)
                  : by_max;
    }
  }
  float operator()(N x) const { return (static_cast<float>(x) + before) * scale + after; }

  float before = 0, scale, after = 0;
};

template <typename N, typename Out>
class DequantizeKernel : public Kernel {
 public:
  explicit DequantizeKernel(KernelConstruction& c)
      : Kernel(c),
        mode_(ModeOf(c)),
        narrow_(c.attr<bool>("narrow_range")),
        axis_(c.attr<int64_t>("axis")) {
    if (std::is_same_v<Out, BFloat16> && mode_ != Mode::kMinCombined) {
      c.SetError(errors::InvalidArgument("When output type is bfloat16, Mode string must be ",
                                         "'MIN_COMBINED', is '", c.attr<std::string>("mode"), "'"));
    }
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor &in = ctx.input(0), &low = ctx.input(1), &high = ctx.input(2);
    if (axis_ < -1) return errors::InvalidArgument("axis should be at least -1, got ", axis_);
    if (axis_ >= in.rank()) {
      return errors::InvalidArgument("Axis must be less than input dimension(", in.rank(),
                                     "), got ", axis_);
    }
    const Slices slices = SlicesAlong(axis_, in.shape());
    MR_RETURN_IF_ERROR(CheckBound(low, "input_min_tensor", slices.count));
    MR_RETURN_IF_ERROR(CheckBound(high, "input_max_tensor", slices.count));
    if (slices.count != 1 && mode_ == Mode::kMinFirst) {
      return errors::Unimplemented(
          "MIN_FIRST mode is not implemented for Dequantize with axis != -1.");
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, in.shape()));
    const N* const x = static_cast<const N*>(in.raw_data());
    Out* const y = out->data<Out>();
    ForSlices(ctx, slices, in.num_elements(), [&](int64_t slice, int64_t begin, int64_t end) {
      const Dequantizer<N> dequantizer(mode_, narrow_, low.data<float>()[slice],
                                       high.data<float>()[slice]);
      for (int64_t i = begin; i < end; ++i) y[i] = Out(dequantizer(x[i]));
    });
    return OkStatus();
  }

 private:
  Status CheckBound(const Tensor& bound, std::string_view name, int64_t slices) const {
    if (bound.num_elements() == slices) return OkStatus();
    return errors::InvalidArgument(
        name, " must have as many elements as input on the dequantization axis (", axis_, "), got ",
        bound.num_elements(), ", expected ", slices);
  }

  const Mode mode_;
  const bool narrow_;
  const int64_t axis_;
};

template <typename N>
void RegisterNumbers(KernelRegistry& r, DataType type) {
  r.Register(KernelDef("QuantizeV2").Types("T", {type}), &MakeKernel<QuantizeKernel<N>>);
  r.Register(KernelDef("Dequantize").Types("T", {type}).Type<float>("dtype"),
             &MakeKernel<DequantizeKernel<N, float>>);
  r.Register(KernelDef("Dequantize").Types("T", {type}).Type<BFloat16>("dtype"),
             &MakeKernel<DequantizeKernel<N, BFloat16>>);
}

}  // namespace

void RegisterQuantizedNumberKernels(KernelRegistry& registry) {
  RegisterNumbers<int8_t>(registry, DataType::kQint8);
  RegisterNumbers<uint8_t>(registry, DataType::kQuint8);
  RegisterNumbers<int16_t>(registry, DataType::kQint16);
  RegisterNumbers<uint16_t>(registry, DataType::kQuint16);
  RegisterNumbers<int32_t>(registry, DataType::kQint32);
}

}  // namespace millrace
