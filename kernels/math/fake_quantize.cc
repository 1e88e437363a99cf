// SPDX-License-Identifier: Apache-2.0
// Floats that are rounded as if they were quantized, for training (Jacob et al., "Quantization and
// Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference", 2018).
#include <cmath>
#include <string>
#include <string_view>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/kernel.h"
#include "kernels/kernel_context.h"
#include "kernels/math/quantize.h"

namespace millrace {
namespace {

// The whole numbers from `least` to `most` stand for a range.
struct Levels {
  explicit Levels(KernelConstruction& c) {
    const auto bits = c.attr<int64_t>("num_bits");
    if (bits < 2 || bits > 16) {
      c.SetError(errors::InvalidArgument("num_bits must be between 2 and 16, inclusive"));
      return;
    }
    least = c.attr<bool>("narrow_range") ? 1 : 0;
    most = static_cast<float>((1 << bits) - 1);
  }

  float least = 0, most = 1;
};

// A range moved so that zero is one of its levels.
struct Nudged {
  Nudged(float from, float to, const Levels& levels)
      : scale((to - from) / (levels.most - levels.least)) {
    const float exact = levels.least - from / scale;
    float zero = std::round(exact);
    if (exact < levels.least) zero = levels.least;
    if (exact > levels.most) zero = levels.most;
    low = (levels.least - zero) * scale;
    high = (levels.most - zero) * scale;
  }

  // NaN stays NaN.
  float Clamped(float x) const {
    const float below = high < x ? high : x;
    return below < low ? low : below;
  }
  float Rounded(float x) const {
    return std::floor((Clamped(x) - low) / scale + 0.5f) * scale + low;
  }

  float low, high, scale;
};

constexpr double kNanosPerElement = 2;

Status CheckSameSize(const Tensor& gradients, const Tensor& inputs) {
  if (gradients.shape() == inputs.shape()) return OkStatus();
  return errors::InvalidArgument("gradient and input must be the same size, got ",
                                 gradients.shape().DebugString(), " and ",
                                 inputs.shape().DebugString());
}

Status CheckRank(const Tensor& bound, std::string_view name, int rank) {
  if (bound.rank() == rank) return OkStatus();
  return errors::InvalidArgument("`", name, "` must be rank ", rank, " but is rank ", bound.rank());
}

// -- A range in attributes --

struct FixedRange {
  explicit FixedRange(KernelConstruction& c)
      : levels(c), from(c.attr<float>("min")), to(c.attr<float>("max")) {
    if (!(from < to)) {
      c.SetError(
          errors::InvalidArgument("min has to be smaller than max, was: ", from, " >= ", to));
    }
  }
  Nudged nudged() const { return {from, to, levels}; }

  const Levels levels;
  const float from, to;
};

class FakeQuantArgsKernel : public Kernel {
 public:
  explicit FakeQuantArgsKernel(KernelConstruction& c) : Kernel(c), range_(c) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    const float* const x = in.data<float>();
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.ForwardOrAllocateOutput({0}, 0, in.shape()));
    float* const y = out->data<float>();
    const Nudged range = range_.nudged();
    const float steps = 1 / range.scale;  // not a division by the scale: it rounds otherwise
    ctx.ParallelFor(in.num_elements(), kNanosPerElement, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        y[i] =
            std::floor((range.Clamped(x[i]) - range.low) * steps + 0.5f) * range.scale + range.low;
      }
    });
    return OkStatus();
  }

 private:
  const FixedRange range_;
};

class FakeQuantArgsGradKernel : public Kernel {
 public:
  explicit FakeQuantArgsGradKernel(KernelConstruction& c) : Kernel(c), range_(c) {}
  Status Compute(KernelContext& ctx) override {
    const Shape &gradients = ctx.input(0).shape(), &inputs = ctx.input(1).shape();
    if (gradients != inputs) {
      return errors::InvalidArgument(
          "Inputs to operation ", name(), " of type ", def().name(),
          " must have the same size and shape.  Input 0: ", gradients.DebugString(),
          " != input 1: ", inputs.DebugString());
    }
    const float *const g = ctx.input(0).data<float>(), *const x = ctx.input(1).data<float>();
    const int64_t n = ctx.input(0).num_elements();
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, ctx.input(0).shape()));
    float* const dx = out->data<float>();
    const Nudged range = range_.nudged();
    ctx.ParallelFor(n, kNanosPerElement, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        dx[i] = g[i] * (x[i] >= range.low && x[i] <= range.high ? 1.0f : 0.0f);
      }
    });
    return OkStatus();
  }

 private:
  const FixedRange range_;
};

// -- Ranges in inputs: one for all, or one for each position of the last axis --

// Inputs `low` and `low` + 1 are the bounds of numbers of shape `numbers`. How many ranges.
StatusOr<int64_t> CountRanges(KernelContext& ctx, int low, const Shape& numbers, bool channels) {
  const Tensor &min = ctx.input(low), &max = ctx.input(low + 1);
  MR_RETURN_IF_ERROR(CheckRank(min, "min", channels ? 1 : 0));
  MR_RETURN_IF_ERROR(CheckRank(max, "max", channels ? 1 : 0));
  if (!channels) return 1;
  if (numbers.rank() < 1) {
    return errors::InvalidArgument("`inputs` must be at least rank 1 but is rank 0");
  }
  const int64_t depth = numbers.dim(numbers.rank() - 1);
  if (min.dim(0) != depth) {
    return errors::InvalidArgument("min has incorrect size, expected ", depth, " was ", min.dim(0));
  }
  if (max.dim(0) != depth) {
    return errors::InvalidArgument("max has incorrect size, expected ", depth, " was ", max.dim(0));
  }
  return depth;
}

class FakeQuantVarsKernel : public Kernel {
 public:
  explicit FakeQuantVarsKernel(KernelConstruction& c)
      : Kernel(c), levels_(c), channels_(c.def().name() == "FakeQuantWithMinMaxVarsPerChannel") {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const int64_t ranges, CountRanges(ctx, 1, in.shape(), channels_));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, in.shape()));
    if (in.num_elements() == 0) return OkStatus();
    const float *const x = in.data<float>(), *const min = ctx.input(1).data<float>(),
                       *const max = ctx.input(2).data<float>();
    float* const y = out->data<float>();
    const auto compute = [&](int64_t begin, int64_t end, int64_t r) {
      const bool none = min[r] == 0 && max[r] == 0;
      const Nudged range(min[r], max[r], levels_);
      for (int64_t i = begin * ranges + r; i < end * ranges; i += ranges) {
        y[i] = none ? 0 : range.Rounded(x[i]);
      }
    };
    ctx.ParallelFor(in.num_elements() / ranges, kNanosPerElement * static_cast<double>(ranges),
                    [&](int64_t begin, int64_t end) {
                      for (int64_t r = 0; r < ranges; ++r) compute(begin, end, r);
                    });
    return OkStatus();
  }

 private:
  const Levels levels_;
  const bool channels_;
};

// Outside of the range the gradient is that of the bound.
class FakeQuantVarsGradKernel : public Kernel {
 public:
  explicit FakeQuantVarsGradKernel(KernelConstruction& c)
      : Kernel(c),
        levels_(c),
        channels_(c.def().name() == "FakeQuantWithMinMaxVarsPerChannelGradient") {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(1);
    MR_RETURN_IF_ERROR(CheckSameSize(ctx.input(0), in));
    MR_ASSIGN_OR_RETURN(const int64_t ranges, CountRanges(ctx, 2, in.shape(), channels_));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, in.shape()));
    const Shape bounds = ctx.input(2).shape();
    MR_ASSIGN_OR_RETURN(Tensor * below, ctx.AllocateOutput(1, bounds));
    MR_ASSIGN_OR_RETURN(Tensor * above, ctx.AllocateOutput(2, bounds));
    const int64_t rows = ranges == 0 ? 0 : in.num_elements() / ranges;
    const float *const g = ctx.input(0).data<float>(), *const x = in.data<float>(),
                       *const min = ctx.input(2).data<float>(),
                       *const max = ctx.input(3).data<float>();
    float* const dx = out->data<float>();
    // A range is summed by one thread, so that sums do not depend on their number.
    ctx.ParallelFor(ranges, kNanosPerElement * static_cast<double>(rows),
                    [&](int64_t begin, int64_t end) {
                      for (int64_t r = begin; r < end; ++r) {
                        const bool none = min[r] == 0 && max[r] == 0;
                        const Nudged range(min[r], max[r], levels_);
                        double low = 0, high = 0;
                        for (int64_t i = r; i < rows * ranges; i += ranges) {
                          const bool under = !none && x[i] < range.low;
                          const bool over = !none && x[i] > range.high;
                          const bool within = none || (x[i] >= range.low && x[i] <= range.high);
                          dx[i] = g[i] * (within ? 1.0f : 0.0f);
                          low += static_cast<double>(g[i] * (under ? 1.0f : 0.0f));
                          high += static_cast<double>(g[i] * (over ? 1.0f : 0.0f));
                        }
                        below->data<float>()[r] = static_cast<float>(low);
                        above->data<float>()[r] = static_cast<float>(high);
                      }
                    });
    return OkStatus();
  }

 private:
  const Levels levels_;
  const bool channels_;
};

}  // namespace

void RegisterFakeQuantizeKernels(KernelRegistry& r) {
  r.Register(KernelDef("FakeQuantWithMinMaxArgs"), &MakeKernel<FakeQuantArgsKernel>);
  r.Register(KernelDef("FakeQuantWithMinMaxArgsGradient"), &MakeKernel<FakeQuantArgsGradKernel>);
  for (const char* op : {"FakeQuantWithMinMaxVars", "FakeQuantWithMinMaxVarsPerChannel"}) {
    r.Register(KernelDef(op), &MakeKernel<FakeQuantVarsKernel>);
    r.Register(KernelDef(std::string(op) + "Gradient"), &MakeKernel<FakeQuantVarsGradKernel>);
  }
}

}  // namespace millrace
