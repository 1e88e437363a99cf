// SPDX-License-Identifier: Apache-2.0
// Samples of normal distributions between two bounds, by rejection (Robert, 1995): from a normal,
// a uniform or an exponential proposal, whichever the bounds favour. One stream for all samples in
// order: what TensorFlow gives where one thread draws them.
#include <array>
#include <cmath>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/broadcast.h"
#include "kernels/common/kernel_util.h"
#include "kernels/common/shared_philox.h"
#include "kernels/random/distributions.h"
#include "kernels/random/random_plan.h"
#include "kernels/random/sample_stream.h"

namespace millrace {
namespace {

constexpr int kMostIterations = 1000;

// Arithmetic of one type: a 16-bit number is rounded after each step.
template <typename T>
struct Rounded {
  using C = ComputeType<T>;
  C value;

  static C Round(C x) { return static_cast<C>(static_cast<T>(x)); }
  explicit Rounded(T x) : value(static_cast<C>(x)) {}
  static Rounded Of(double x) { return Rounded(static_cast<T>(static_cast<C>(x))); }
  friend Rounded operator+(Rounded a, Rounded b) { return Rounded(T(a.value + b.value)); }
  friend Rounded operator-(Rounded a, Rounded b) { return Rounded(T(a.value - b.value)); }
  friend Rounded operator*(Rounded a, Rounded b) { return Rounded(T(a.value * b.value)); }
  friend Rounded operator/(Rounded a, Rounded b) { return Rounded(T(a.value / b.value)); }
  friend Rounded operator-(Rounded a) { return Rounded(T(-a.value)); }
  friend bool operator<(Rounded a, Rounded b) { return a.value < b.value; }
  friend bool operator>(Rounded a, Rounded b) { return a.value > b.value; }
  friend bool operator<=(Rounded a, Rounded b) { return a.value <= b.value; }
  friend bool operator>=(Rounded a, Rounded b) { return a.value >= b.value; }
  friend Rounded Exp(Rounded a) { return Rounded(T(std::exp(a.value))); }
  friend Rounded Log(Rounded a) { return Rounded(T(std::log(a.value))); }
  friend Rounded Sqrt(Rounded a) { return Rounded(T(std::sqrt(a.value))); }
};

template <typename T>
struct Bounds {
  T mean, deviation, low, high;
};

Status NotAccepted(const char* sampler) {
  return errors::Internal("TruncatedNormal ", sampler,
                          " rejection sampler failed to accept a sample.");
}

template <typename T>
class TruncatedSampler {
 public:
  using R = Rounded<T>;
  static constexpr int kSize = kGroup<T>;

  // InvalidArgument if there is nothing between the bounds, or too much.
  static Status Check(const Bounds<T>& b) {
    using C = ComputeType<T>;
    const C low = static_cast<C>(b.low), high = static_cast<C>(b.high);
    if (static_cast<C>(b.deviation) > 0 && low < high &&
        (std::isfinite(low) || std::isfinite(high))) {
      return OkStatus();
    }
    return errors::InvalidArgument("Invalid parameters");
  }

  explicit TruncatedSampler(const Bounds<T>& b)
      : mean_(b.mean), deviation_(b.deviation), min_(b.low), max_(b.high) {
    R low(b.low), high(b.high);
    // One-sided bounds become lower ones, and bounds on one side of the mean positive.
    if ((std::isinf(low.value) && low.value < 0) || high < mean_) {
      std::swap(low, high);
      deviation_ = -deviation_;
    }
    min_ = (low - mean_) / deviation_;
    max_ = (high - mean_) / deviation_;
  }

  // f(sample) is called for each; it says whether there are to be more.
  template <typename F>
  Status Draw(Philox* generator, F&& f) const {
    const R inside = R::Of(1.3), zero = R::Of(0), two = R::Of(2), four = R::Of(4);
    if ((min_ < -inside && max_ >= zero) || (max_ > inside && min_ <= zero)) {
      return FromNormal(generator, f);
    }
    const R root = Sqrt(min_ * min_ + four);
    const R cutoff = two * Exp(R::Of(0.5) + min_ * (min_ - root) / four) / (min_ + root);
    return max_ - min_ < cutoff ? FromUniform(generator, f) : FromExponential(generator, f);
  }

 private:
  T Scale(R z) const {
    const R scaled = z * deviation_ + mean_;
    return static_cast<T>(scaled.value);
  }

  template <typename F>
  Status FromNormal(Philox* generator, F& f) const {
    for (int refused = 0;;) {
      T normal[4];
      NormalDistribution()((*generator)(), normal);
      for (int i = 0; i < kSize; ++i) {
        const R z(normal[i]);
        if (z >= min_ && z <= max_) {
          if (!f(Scale(z))) return OkStatus();
          refused = 0;
        } else if (++refused > kMostIterations) {
          return NotAccepted("randn");
        }
      }
    }
  }

  template <typename F>
  Status FromUniform(Philox* generator, F& f) const {
    const R plus = min_ < R::Of(0) ? R::Of(0) : min_ * min_, range = max_ - min_;
    for (int refused = 0;;) {
      T proposed[4], u[4];
      UniformDistribution()((*generator)(), proposed);
      UniformDistribution()((*generator)(), u);
      for (int i = 0; i < kSize; ++i) {
        const R z = R(proposed[i]) * range + min_;
        if (R(u[i]) <= Exp((plus - z * z) / R::Of(2))) {
          if (!f(Scale(z))) return OkStatus();
          refused = 0;
        } else if (++refused >= kMostIterations) {
          return NotAccepted("uniform");
        }
      }
    }
  }

  template <typename F>
  Status FromExponential(Philox* generator, F& f) const {
    const R two = R::Of(2), alpha = (min_ + Sqrt(min_ * min_ + R::Of(4))) / two;
    for (int refused = 0;;) {
      T u[4];
      UniformDistribution()((*generator)(), u);
      for (int i = 0; i < kSize; i += 2) {
        const R z = -Log(R(u[i])) / alpha + min_;
        const R x = min_ < alpha ? alpha - z : min_ - alpha;
        if (R(u[i + 1]) <= Exp(-x * x / two) && z < max_) {
          if (!f(Scale(z))) return OkStatus();
          refused = 0;
        } else if (++refused >= kMostIterations) {
          return NotAccepted("exponential distribution");
        }
      }
    }
  }

  const R mean_;
  R deviation_, min_, max_;
};

// Samples [begin, end) of `out` that are `stride` apart.
template <typename T>
Status DrawBetween(const Bounds<T>& bounds, Philox* generator, T* out, int64_t count,
                   int64_t stride) {
  if (count <= 0) return OkStatus();
  MR_RETURN_IF_ERROR(TruncatedSampler<T>::Check(bounds));
  int64_t done = 0;
  return TruncatedSampler<T>(bounds).Draw(generator, [&](T sample) {
    out[done * stride] = sample;
    return ++done < count;
  });
}

// Parameters are scalars, or one for each row of the output.
template <typename T>
class ParameterizedTruncatedNormalKernel : public Kernel {
 public:
  explicit ParameterizedTruncatedNormalKernel(KernelConstruction& c) : Kernel(c), generator_(c) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& sizes = ctx.input(0);
    if (sizes.rank() != 1) {
      return errors::InvalidArgument("Input shape should be a vector, got shape: ",
                                     sizes.shape().DebugString());
    }
    if (sizes.num_elements() == 0) {
      return errors::InvalidArgument("Shape tensor must not be empty, got ", sizes.DebugString());
    }
    MR_ASSIGN_OR_RETURN(const Shape shape, ShapeFromTensor(sizes, "shape"));
    static constexpr const char* kNames[] = {"means", "stddevs", "minvals", "maxvals"};
    for (int i = 0; i < 4; ++i) {
      if (ctx.input(i + 1).rank() <= 1) continue;
      return errors::InvalidArgument(
          "Input ", kNames[i],
          " should be a scalar or vector, got shape: ", ctx.input(i + 1).shape().DebugString());
    }
    const auto one = [&](int i) { return ctx.input(i).rank() == 0 || ctx.input(i).dim(0) == 1; };
    const bool alike = one(1) && one(2) && ctx.input(3).rank() == 0 && ctx.input(4).rank() == 0;
    int64_t batches = shape.dim(0);
    const int64_t total = shape.num_elements();
    int64_t each = batches == 0 ? 0 : total / batches;
    if (alike) {
      each = 100;  // of samples that TensorFlow draws at a time
      batches = total / each + (total % each != 0 ? 1 : 0);
    }
    for (int i = 0; i < 4 && !alike; ++i) {
      if (one(i + 1) || ctx.input(i + 1).dim(0) == batches) continue;
      return errors::InvalidArgument(
          "Input ", kNames[i],
          " should have length 1 or shape[0], got shape: ", ctx.input(i + 1).shape().DebugString());
    }
    MR_ASSIGN_OR_RETURN(Tensor* const out, ctx.AllocateOutput(0, shape));
    if (total == 0) return OkStatus();
    Philox philox = generator_.Reserve(static_cast<uint64_t>(batches) * 2 * kMostIterations *
                                       static_cast<uint64_t>(each + 3) / 4);
    for (int64_t b = 0; b < batches; ++b) {
      const auto value = [&](int i) { return ctx.input(i).data<T>()[one(i) ? 0 : b]; };
      MR_RETURN_IF_ERROR(DrawBetween<T>({value(1), value(2), value(3), value(4)}, &philox,
                                        out->data<T>() + b * each, std::min(each, total - b * each),
                                        /*stride=*/1));
    }
    return OkStatus();
  }

 private:
  SharedPhilox generator_;
};

// Parameters are broadcast, and their shape ends that of the output.
template <typename T>
class StatelessTruncatedNormalKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const KeyCounter start, KeyFromSeed(ctx.input(1)));
    Shape batch = ctx.input(2).shape();
    for (const int i : {3, 4, 5}) {
      const StatusOr<Shape> both = BroadcastShapes(batch, ctx.input(i).shape());
      if (!both.ok()) {
        return errors::InvalidArgument(
            "means, stddevs, minvals, maxvals should have compatible shapes: ",
            Message(both.status()));
      }
      batch = *both;
    }
    const Tensor& sizes = ctx.input(0);
    if (sizes.rank() != 1) {
      return errors::InvalidArgument("Input shape should be a vector, got shape: ",
                                     sizes.shape().DebugString());
    }
    MR_ASSIGN_OR_RETURN(const Shape shape, ShapeFromTensor(sizes, "shape"));
    MR_RETURN_IF_ERROR(CheckEndsWith(shape, batch));
    MR_ASSIGN_OR_RETURN(Tensor* const out, ctx.AllocateOutput(0, shape));
    if (shape.num_elements() == 0) return OkStatus();
    const int64_t batches = batch.num_elements(), samples = shape.num_elements() / batches;
    std::array<const T*, 4> data;
    std::array<BroadcastPlan, 4> plans;
    for (int i = 0; i < 4; ++i) {
      data[i] = ctx.input(i + 2).data<T>();
      MR_ASSIGN_OR_RETURN(plans[i], MakeBroadcastPlan(ctx.input(i + 2).shape(), batch));
    }
    Philox philox = start.Generator();
    for (int64_t b = 0; b < batches; ++b) {
      T values[4];
      for (int i = 0; i < 4; ++i) {
        plans[i].ForEachRun(b, b + 1, [&](int64_t at, int64_t, int64_t, int64_t) {
          values[i] = data[i][at];
          return true;
        });
      }
      MR_RETURN_IF_ERROR(DrawBetween<T>({values[0], values[1], values[2], values[3]}, &philox,
                                        out->data<T>() + b, samples, /*stride=*/batches));
    }
    return OkStatus();
  }
};

template <typename... Ts>
void Register(KernelRegistry& r, TypeList<Ts...>) {
  (r.Register(KernelDef("ParameterizedTruncatedNormal").Type<Ts>("dtype"),
              &MakeKernel<ParameterizedTruncatedNormalKernel<Ts>>),
   ...);
  (r.Register(KernelDef("StatelessParameterizedTruncatedNormal").Type<Ts>("dtype"),
              &MakeKernel<StatelessTruncatedNormalKernel<Ts>>),
   ...);
}

}  // namespace

void RegisterTruncatedNormalKernels(KernelRegistry& r) {
  Register(r, TypeList<Half, float, double>());
}

}  // namespace millrace
