// SPDX-License-Identifier: Apache-2.0
// Samples of gamma and Poisson distributions, each from a stretch of the generator of its own, so
// that they are the same however many threads draw them. TensorFlow's, bit by bit.
#include "kernels/random/distributions.h"

#include <cmath>
#include <limits>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/kernel_util.h"
#include "kernels/common/shared_philox.h"
#include "kernels/random/random_distributions.h"
#include "kernels/random/random_plan.h"
#include "kernels/random/sample_stream.h"

namespace millrace {
namespace {

using Uniforms = SampleStream<UniformDistribution>;
using Normals = SampleStream<NormalDistribution>;

// --- Gamma (Marsaglia and Tsang, 2000) --------------------------------------------------------

class GammaSampler {
 public:
  static constexpr double kCost = 200;
  explicit GammaSampler(double alpha)
      : alpha_(alpha), d_(alpha + (alpha < 1 ? 2.0 / 3 : -1.0 / 3)), c_(1.0 / 3 / std::sqrt(d_)) {}

  template <typename T>
  T Sample(Philox generator) const {
    return static_cast<T>(static_cast<ComputeType<T>>(Draw(&generator)));
  }

 private:
  double Draw(Philox* generator) const {
    Normals normal(generator);
    Uniforms uniform(generator);
    if (alpha_ == 1.0) return -std::log1p(-uniform());  // exponential
    while (true) {
      const double x = normal();
      double v = 1 + c_ * x;
      if (v <= 0) continue;
      v = v * v * v;
      const double u = uniform();
      // A bound that is cheap to compute takes most of them.
      const bool taken = u < 1 - 0.0331 * (x * x) * (x * x) ||
                         std::log(u) < 0.5 * x * x + d_ * (1 - v + std::log(v));
      if (!taken) continue;
      double result = d_ * v;
      // Below 1 it is drawn for alpha + 1 and corrected.
      if (alpha_ < 1) result *= std::pow(uniform(), 1 / alpha_);
      return result;
    }
  }

  const double alpha_, d_, c_;
};

// --- Poisson (Knuth below a rate of 10; Hörmann, 1993, from there) ----------------------------

class PoissonSampler {
 public:
  static constexpr double kCost = 250;
  explicit PoissonSampler(double rate) : rate_(rate) {
    if (rate < 10) {
      exp_negative_ = std::exp(-rate);
      return;
    }
    log_rate_ = std::log(rate);
    b_ = 0.931 + 2.53 * std::sqrt(rate);
    a_ = -0.059 + 0.02483 * b_;
    inverse_alpha_ = 1.1239 + 1.1328 / (b_ - 3.4);
  }

  template <typename U>
  U Sample(Philox generator) const {
    const double highest = Highest<U>();
    if (rate_ < 10) return Number<U>(Count(&generator));
    if (std::isnan(rate_)) return NoNumber<U>();
    if (std::isinf(rate_)) return Infinite<U>();
    // Every draw of a rate far beyond the type overflows.
    for (int tries = 0; tries < kMostTries; ++tries) {
      const double k = Reject(&generator, highest);
      if (k <= highest) return Number<U>(k);
    }
    return Number<U>(highest);
  }

 private:
  static constexpr int kMostTries = 1000;

  template <typename U>
  static double Highest() {
    if constexpr (std::is_same_v<U, Half>) return 65504;
    if constexpr (!std::is_same_v<U, Half>) {
      return static_cast<double>(std::numeric_limits<U>::max());
    }
  }
  template <typename U>
  static U Number(double k) {
    if constexpr (std::is_integral_v<U>) {
      // What rounds to 2^63 is not among the numbers.
      if (k >= Highest<U>()) return std::numeric_limits<U>::max();
    }
    return static_cast<U>(static_cast<ComputeType<U>>(k));
  }
  template <typename U>
  static U NoNumber() {
    if constexpr (std::is_integral_v<U>) return 0;
    return static_cast<U>(std::numeric_limits<ComputeType<U>>::quiet_NaN());
  }
  template <typename U>
  static U Infinite() {
    if constexpr (std::is_integral_v<U>) return 0;
    return static_cast<U>(std::numeric_limits<ComputeType<U>>::infinity());
  }

  double Count(Philox* generator) const {
    Uniforms uniform(generator);
    double product = 1, x = 0;
    while (true) {
      product *= uniform();
      if (product <= exp_negative_) return x;
      x += 1;
    }
  }

  // A draw that is taken, or one beyond `highest`. A number of its own for each try would change
  // which uniform numbers meet; so the stream goes on.
  double Reject(Philox* generator, double highest) const {
    Uniforms uniform(generator);
    while (true) {
      const double u = uniform() - 0.5, v = uniform();
      const double shifted = 0.5 - std::abs(u);
      const double k = std::floor((2 * a_ / shifted + b_) * u + rate_ + 0.43);
      if (k > highest) return k;
      if (shifted >= 0.07 && v <= 0.9277 - 3.6224 / (b_ - 2)) return k;
      if (k < 0 || (shifted < 0.013 && v > shifted)) continue;
      const double s = std::log(v * inverse_alpha_ / (a_ / (shifted * shifted) + b_));
      int sign;
      if (s <= -rate_ + k * log_rate_ - lgamma_r(k + 1, &sign)) return k;
    }
  }

  const double rate_;
  double exp_negative_ = 0;
  double log_rate_ = 0, a_ = 0, b_ = 0, inverse_alpha_ = 0;
};

// --- Kernels ----------------------------------------------------------------------------------

// out[sample, parameter], parameter after parameter.
template <typename Sampler, typename P, typename T>
void Draw(const KernelContext& ctx, const Philox& base, const Tensor& parameters, Tensor* out) {
  const int64_t total = out->num_elements(), count = parameters.num_elements();
  if (total == 0) return;
  const int64_t samples = total / count;
  const P* const in = parameters.data<P>();
  T* const to = out->data<T>();
  ctx.ParallelFor(total, Sampler::kCost, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end;) {
      const int64_t parameter = at / samples;
      const Sampler sampler(static_cast<double>(static_cast<ComputeType<P>>(in[parameter])));
      const int64_t last = std::min(end, (parameter + 1) * samples);
      for (; at < last; ++at) {
        to[(at - parameter * samples) * count + parameter] =
            sampler.template Sample<T>(GeneratorOfOutput(base, at));
      }
    }
  });
}

// RandomGamma, RandomPoisson and RandomPoissonV2: each parameter's samples come first in the shape.
template <typename Sampler, typename P, typename T>
class DistributionKernel : public Kernel {
 public:
  explicit DistributionKernel(KernelConstruction& c) : Kernel(c), generator_(c) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& parameters = ctx.input(1);
    MR_ASSIGN_OR_RETURN(const Shape samples, ShapeFromTensor(ctx.input(0), "shape"));
    Dims dims(samples.dims().begin(), samples.dims().end());
    for (const int64_t dim : parameters.shape().dims()) dims.push_back(dim);
    MR_ASSIGN_OR_RETURN(const Shape shape, MakeShape(dims));
    MR_ASSIGN_OR_RETURN(Tensor* const out, ctx.AllocateOutput(0, shape));
    if (shape.num_elements() == 0) return OkStatus();
    const Philox base =
        generator_.Reserve(static_cast<uint64_t>(shape.num_elements()) * kReservedPerOutput);
    Draw<Sampler, P, T>(ctx, base, parameters, out);
    return OkStatus();
  }

 private:
  SharedPhilox generator_;
};

// Of a seed, or of a key and a counter: the shape is that of all samples.
template <typename Sampler, typename P, typename T, bool kHasKey>
class StatelessDistributionKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& parameters = ctx.input(kHasKey ? 4 : 2);
    KeyCounter start;
    if constexpr (kHasKey) {
      MR_ASSIGN_OR_RETURN(start, ReadKeyCounter(ctx.input(1), ctx.input(2), ctx.input(3)));
    } else {
      MR_ASSIGN_OR_RETURN(start, KeyFromSeed(ctx.input(1)));
    }
    MR_ASSIGN_OR_RETURN(const Shape shape, ShapeFromTensor(ctx.input(0), "shape"));
    MR_ASSIGN_OR_RETURN(Tensor* const out, ctx.AllocateOutput(0, shape));
    if (shape.num_elements() == 0) return OkStatus();
    MR_RETURN_IF_ERROR(CheckEndsWith(shape, parameters.shape()));
    Draw<Sampler, P, T>(ctx, start.Generator(), parameters, out);
    return OkStatus();
  }
};

template <typename... Ts>
void RegisterGamma(KernelRegistry& r, TypeList<Ts...>) {
  (r.Register(KernelDef("RandomGamma").Type<Ts>("T"),
              &MakeKernel<DistributionKernel<GammaSampler, Ts, Ts>>),
   ...);
  (r.Register(KernelDef("StatelessRandomGammaV2").Type<Ts>("dtype"),
              &MakeKernel<StatelessDistributionKernel<GammaSampler, Ts, Ts, false>>),
   ...);
  (r.Register(KernelDef("StatelessRandomGammaV3").Type<Ts>("dtype"),
              &MakeKernel<StatelessDistributionKernel<GammaSampler, Ts, Ts, true>>),
   ...);
}

template <typename P, typename... Ts>
void RegisterPoisson(KernelRegistry& r, TypeList<Ts...>) {
  (r.Register(KernelDef("RandomPoissonV2").Type<P>("R").template Type<Ts>("dtype"),
              &MakeKernel<DistributionKernel<PoissonSampler, P, Ts>>),
   ...);
  (r.Register(KernelDef("StatelessRandomPoisson").Type<P>("Rtype").template Type<Ts>("dtype"),
              &MakeKernel<StatelessDistributionKernel<PoissonSampler, P, Ts, false>>),
   ...);
}

using PoissonTypes = TypeList<Half, float, double, int32_t, int64_t>;

template <typename... Ps>
void RegisterPoissons(KernelRegistry& r, TypeList<Ps...>) {
  (RegisterPoisson<Ps>(r, PoissonTypes()), ...);
}

template <typename... Ts>
void RegisterOldPoisson(KernelRegistry& r, TypeList<Ts...>) {
  (r.Register(KernelDef("RandomPoisson").Type<Ts>("dtype"),
              &MakeKernel<DistributionKernel<PoissonSampler, Ts, Ts>>),
   ...);
}

}  // namespace

void RegisterDistributionKernels(KernelRegistry& r) {
  RegisterGamma(r, TypeList<Half, float, double>());
  RegisterOldPoisson(r, TypeList<Half, float, double>());
  RegisterPoissons(r, PoissonTypes());
}

}  // namespace millrace
