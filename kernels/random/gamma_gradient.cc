// SPDX-License-Identifier: Apache-2.0
// How a sample of a gamma distribution moves with its parameter: minus the derivative of the
// distribution function by the parameter, over its derivative by the sample (Figurnov, Mohamed and
// Mnih, 2018). The derivatives are those of the usual expansions, term by term.
#include <cmath>
#include <limits>
#include <numbers>

#include "base/status_macros.h"
#include "kernels/common/broadcast.h"
#include "kernels/kernel_context.h"
#include "kernels/random/distributions.h"

namespace millrace {
namespace {

constexpr int kMostTerms = 2000;
constexpr double kEpsilon = 1.1102230246251565e-16;

double Digamma(double x) {
  double result = 0;
  for (; x < 10; ++x) result -= 1 / x;
  const double z = 1 / (x * x);
  const double series =
      z * (1.0 / 12 - z * (1.0 / 120 - z * (1.0 / 252 - z * (1.0 / 240 - z * (1.0 / 132)))));
  return result + std::log(x) - 0.5 / x - series;
}

// Of the power series; for samples below the parameter.
double BySeries(double a, double x) {
  double r = a, term = 1, sum = 1, term_da = 0, sum_da = 0;
  for (int i = 0; i < kMostTerms; ++i) {
    r += 1;
    const double factor = x / r, factor_da = -x / (r * r);
    term_da = factor * term_da + factor_da * term;
    sum_da += term_da;
    term *= factor;
    sum += term;
    if (std::abs(term_da) <= kEpsilon * std::abs(sum_da)) break;
  }
  const double log_da = std::log(x) - Digamma(a + 1);
  return -(sum_da + sum * log_da) * x / a;
}

// Of the continued fraction; for samples above the parameter.
double ByFraction(double a, double x) {
  constexpr double kBig = 4503599627370496.0;
  double y = 1 - a, z = x + y + 1, c = 0;
  double pkm2 = 1, qkm2 = x, pkm1 = x + 1, qkm1 = z * x;
  double pkm2_da = 0, qkm2_da = 0, pkm1_da = 0, qkm1_da = -x;
  double value = pkm1 / qkm1, value_da = (pkm1_da - value * qkm1_da) / qkm1;
  for (int i = 0; i < kMostTerms; ++i) {
    c += 1;
    y += 1;
    z += 2;
    const double yc = y * c;
    const double pk = pkm1 * z - pkm2 * yc, qk = qkm1 * z - qkm2 * yc;
    const double pk_da = pkm1_da * z - pkm1 - pkm2_da * yc + pkm2 * c;
    const double qk_da = qkm1_da * z - qkm1 - qkm2_da * yc + qkm2 * c;
    if (qk != 0) {
      const double before = value_da;
      value = pk / qk;
      value_da = (pk_da - value * qk_da) / qk;
      if (std::abs(value_da - before) <= kEpsilon) break;
    }
    pkm2 = pkm1, pkm1 = pk, qkm2 = qkm1, qkm1 = qk;
    pkm2_da = pkm1_da, pkm1_da = pk_da, qkm2_da = qkm1_da, qkm1_da = qk_da;
    if (std::abs(pk) > kBig) {
      for (double* part : {&pkm2, &pkm1, &qkm2, &qkm1, &pkm2_da, &pkm1_da, &qkm2_da, &qkm1_da}) {
        *part /= kBig;
      }
    }
  }
  const double log_da = std::log(x) - Digamma(a);
  return (value_da + value * log_da) * x;
}

double SampleByParameter(double a, double x) {
  if (x == 0) return 0;
  if (!(x > 0) || !(a > 0)) return std::numeric_limits<double>::quiet_NaN();
  return x > 1 && x > a ? ByFraction(a, x) : BySeries(a, x);
}

template <typename T>
class GammaGradientKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor &alpha = ctx.input(0), &sample = ctx.input(1);
    MR_ASSIGN_OR_RETURN(const BroadcastPlan plan, MakeBroadcastPlan(alpha.shape(), sample.shape()));
    MR_ASSIGN_OR_RETURN(Tensor* const out, ctx.AllocateOutput(0, plan.out));
    if (out->num_elements() == 0) return OkStatus();
    const T *const alphas = alpha.data<T>(), *const samples = sample.data<T>();
    T* const to = out->data<T>();
    ctx.ParallelFor(out->num_elements(), 500, [&](int64_t begin, int64_t end) {
      plan.ForEachRun(begin, end, [&](int64_t a, int64_t b, int64_t at, int64_t n) {
        const auto& inner = plan.dims.back();
        for (int64_t i = 0; i < n; ++i) {
          to[at + i] = static_cast<T>(
              SampleByParameter(static_cast<double>(alphas[a + i * inner.a_stride]),
                                static_cast<double>(samples[b + i * inner.b_stride])));
        }
        return true;
      });
    });
    return OkStatus();
  }
};

}  // namespace

void RegisterGammaGradientKernels(KernelRegistry& r) {
  r.Register(KernelDef("RandomGammaGrad").Type<float>("T"),
             &MakeKernel<GammaGradientKernel<float>>);
  r.Register(KernelDef("RandomGammaGrad").Type<double>("T"),
             &MakeKernel<GammaGradientKernel<double>>);
}

}  // namespace millrace
