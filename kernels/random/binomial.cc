// SPDX-License-Identifier: Apache-2.0
// Samples of binomial distributions: by inversion where few successes are expected, else by
// rejection from a transformed uniform number (Hörmann, 1993). TensorFlow's, bit by bit.
#include <cmath>
#include <limits>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/broadcast.h"
#include "kernels/common/kernel_util.h"
#include "kernels/random/distributions.h"
#include "kernels/random/random_plan.h"
#include "kernels/random/sample_stream.h"
#include "kernels/state/generator_variable.h"

namespace millrace {
namespace {

using Uniforms = SampleStream<UniformDistribution>;

// What Stirling's formula leaves of the logarithm of k!.
double StirlingTail(double k) {
  static constexpr double kFirst[] = {0.0810614667953272,  0.0413406959554092, 0.0276779256849983,
                                      0.02079067210376509, 0.0166446911898211, 0.0138761288230707,
                                      0.0118967099458917,  0.0104112652619720, 0.00925546218271273,
                                      0.00833056343336287};
  if (k <= 9) return kFirst[k > 0 ? static_cast<int>(k) : 0];
  const double square = (k + 1) * (k + 1);
  return (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1);
}

class BinomialSampler {
 public:
  // As TensorFlow computes: the products that choose a method are rounded to the type.
  template <typename T>
  BinomialSampler(T count, T probability) {
    using C = ComputeType<T>;
    const C n = static_cast<C>(count), p = static_cast<C>(probability);
    count_ = static_cast<double>(n);
    if (std::isnan(n) || std::isnan(p)) {
      // A count that is none: no sum would ever exceed it.
      constant_ = n <= 0 ? 0 : std::numeric_limits<double>::quiet_NaN();
    } else if (n <= 0 || p <= 0) {
      constant_ = 0;
    } else if (p >= 1) {
      constant_ = count_;
    } else {
      fixed_ = false;
      failures_ = p > C(0.5);
      const T rare = failures_ ? T(C(1) - p) : probability;
      p_ = static_cast<double>(static_cast<C>(rare));
      many_ = static_cast<C>(T(n * static_cast<C>(rare))) >= 10;
      if (many_) Prepare();
    }
  }

  double Sample(const Philox& base, int64_t output) const {
    if (fixed_) return constant_;
    // As many blocks as TensorFlow keeps for a sample of the one method or the other.
    Philox generator = GeneratorOfOutput(base, output, many_ ? 256 : 42);
    Uniforms uniform(&generator);
    const double k = many_ ? Reject(&uniform) : Invert(&uniform);
    return failures_ ? count_ - k : k;
  }

 private:
  void Prepare() {
    deviation_ = std::sqrt(count_ * p_ * (1 - p_));
    b_ = 1.15 + 2.53 * deviation_;
    a_ = -0.0873 + 0.0248 * b_ + 0.01 * p_;
    c_ = count_ * p_ + 0.5;
    v_r_ = 0.92 - 4.2 / b_;
    r_ = p_ / (1 - p_);
    alpha_ = (2.83 + 5.1 / b_) * deviation_;
    m_ = std::floor((count_ + 1) * p_);
  }

  // Waits between successes, until they exceed the count.
  double Invert(Uniforms* uniform) const {
    double waited = 0;
    for (int successes = 0;; ++successes) {
      waited += std::ceil(std::log((*uniform)()) / std::log1p(-p_));
      if (!(waited <= count_)) return successes;
    }
  }

  double Reject(Uniforms* uniform) const {
    while (true) {
      const double u = (*uniform)() - 0.5;
      double v = (*uniform)();
      const double us = 0.5 - std::abs(u);
      const double k = std::floor((2 * a_ / us + b_) * u + c_);
      if (us >= 0.07 && v <= v_r_) return k;
      if (k < 0 || k > count_) continue;
      v = std::log(v * alpha_ / (a_ / (us * us) + b_));
      const double bound = (m_ + 0.5) * std::log((m_ + 1) / (r_ * (count_ - m_ + 1))) +
                           (count_ + 1) * std::log((count_ - m_ + 1) / (count_ - k + 1)) +
                           (k + 0.5) * std::log(r_ * (count_ - k + 1) / (k + 1)) +
                           StirlingTail(m_) + StirlingTail(count_ - m_) - StirlingTail(k) -
                           StirlingTail(count_ - k);
      if (v <= bound) return k;
    }
  }

  double count_ = 0, constant_ = 0, p_ = 0;
  bool fixed_ = true, failures_ = false, many_ = false;
  double deviation_ = 0, a_ = 0, b_ = 0, c_ = 0, v_r_ = 0, r_ = 0, alpha_ = 0, m_ = 0;
};

template <typename U>
U ToOutput(double value) {
  if constexpr (std::is_integral_v<U>) {
    if (std::isnan(value)) return 0;
    // Counts are not negative; one that does not fit is as many as there can be.
    if (value >= static_cast<double>(std::numeric_limits<U>::max())) {
      return std::numeric_limits<U>::max();
    }
    return static_cast<U>(value);
  } else {
    return static_cast<U>(static_cast<ComputeType<U>>(value));
  }
}

template <typename T, typename U, bool kStateful>
class BinomialKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor &counts = ctx.input(kStateful ? 3 : 2), &probs = ctx.input(kStateful ? 4 : 3);
    KeyCounter start;
    if constexpr (!kStateful) {
      MR_ASSIGN_OR_RETURN(start, KeyFromSeed(ctx.input(1)));
    }
    const StatusOr<BroadcastPlan> plan = MakeBroadcastPlan(counts.shape(), probs.shape());
    if (!plan.ok()) {
      return errors::InvalidArgument(
          "counts and probs must have compatible batch dimensions: ", counts.shape().DebugString(),
          " vs. ", probs.shape().DebugString());
    }
    const Tensor& sizes = ctx.input(kStateful ? 2 : 0);
    if (sizes.rank() != 1) {
      return errors::InvalidArgument("Input shape should be a vector, got shape: ",
                                     sizes.shape().DebugString());
    }
    MR_ASSIGN_OR_RETURN(const Shape shape, ShapeFromTensor(sizes, "shape"));
    MR_RETURN_IF_ERROR(CheckEndsWith(shape, plan->out));
    Philox base;
    if constexpr (kStateful) {
      MR_ASSIGN_OR_RETURN(base, Take(ctx, shape.num_elements(), plan->out.num_elements()));
    } else {
      base = start.Generator();
    }
    MR_ASSIGN_OR_RETURN(Tensor* const out, ctx.AllocateOutput(0, shape));
    if (shape.num_elements() > 0) Draw(ctx, base, *plan, counts.data<T>(), probs.data<T>(), out);
    return OkStatus();
  }

 private:
  static StatusOr<Philox> Take(KernelContext& ctx, int64_t total, int64_t batches) {
    const Tensor& algorithm = ctx.input(1);
    if (algorithm.rank() != 0) {
      return errors::InvalidArgument("algorithm must be of shape [], not ",
                                     algorithm.shape().DebugString());
    }
    MR_ASSIGN_OR_RETURN(const int64_t id, IntScalar(algorithm, "algorithm"));
    if (id != kPhiloxAlgorithm) {
      return errors::InvalidArgument("Unsupported algorithm id: ", id);
    }
    const uint64_t each =
        batches == 0 ? 0 : static_cast<uint64_t>(total) / static_cast<uint64_t>(batches);
    // What TensorFlow moves the state by.
    return TakeFromGenerator(ctx, &id, static_cast<uint64_t>(batches) * 2 * 100 * (each + 3) / 4);
  }

  static void Draw(const KernelContext& ctx, const Philox& base, const BroadcastPlan& plan,
                   const T* counts, const T* probs, Tensor* out) {
    const int64_t batches = plan.out.num_elements();
    const int64_t samples = out->num_elements() / batches;
    U* const to = out->data<U>();
    ctx.ParallelFor(batches, 300.0 * static_cast<double>(samples), [&](int64_t begin, int64_t end) {
      plan.ForEachRun(begin, end, [&](int64_t a, int64_t b, int64_t batch, int64_t n) {
        const auto& inner = plan.dims.back();
        for (int64_t i = 0; i < n; ++i) {
          const BinomialSampler sampler(counts[a + i * inner.a_stride],
                                        probs[b + i * inner.b_stride]);
          for (int64_t s = 0; s < samples; ++s) {
            to[s * batches + batch + i] =
                ToOutput<U>(sampler.Sample(base, (batch + i) * samples + s));
          }
        }
        return true;
      });
    });
  }
};

template <typename T, typename... Us>
void RegisterOf(KernelRegistry& r, TypeList<Us...>) {
  (r.Register(KernelDef("StatefulRandomBinomial").Type<T>("T").template Type<Us>("dtype"),
              &MakeKernel<BinomialKernel<T, Us, true>>),
   ...);
  (r.Register(KernelDef("StatelessRandomBinomial").Type<T>("T").template Type<Us>("dtype"),
              &MakeKernel<BinomialKernel<T, Us, false>>),
   ...);
}

}  // namespace

void RegisterBinomialKernels(KernelRegistry& r) {
  using Outputs = TypeList<Half, float, double, int32_t, int64_t>;
  RegisterOf<Half>(r, Outputs());
  RegisterOf<float>(r, Outputs());
  RegisterOf<double>(r, Outputs());
}

}  // namespace millrace
