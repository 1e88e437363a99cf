// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/float_math.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"

namespace millrace {
namespace {

// The loop of a function that is inlined into it, as in kernels.
#define MR_LOOP(Name)                                                          \
  struct Name##Loop {                                                          \
    static MR_ALWAYS_INLINE void Run(const float* in, float* out, int64_t n) { \
      for (int64_t i = 0; i < n; ++i) out[i] = float_math::Name(in[i]);        \
    }                                                                          \
  }
MR_LOOP(Exp);
MR_LOOP(Expm1);
MR_LOOP(Log);
MR_LOOP(Log1p);
MR_LOOP(Tanh);
MR_LOOP(Sigmoid);
MR_LOOP(Softplus);
MR_LOOP(Erf);
#undef MR_LOOP

// Every 1,021st bit pattern: all exponents, both signs, NaNs, infinities and denormals.
std::vector<float> Samples() {
  std::vector<float> samples;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 1021) {
    samples.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  for (const float x : {0.0f, -0.0f, 1.0f, -1.0f, INFINITY, -INFINITY, 88.72283f, 88.72284f,
                        -103.97208f, -103.97209f, 0.625f, 0.9375f, -17.33f, 1e-8f, -1e-8f,
                        0.41421356f, -0.29289323f, 1.0000001f, std::nextafter(1.0f, 0.0f)}) {
    samples.push_back(x);
  }
  return samples;
}

// In units of the last place of the exact result's neighbourhood.
double Error(float got, double want) {
  if (std::isnan(want)) return std::isnan(got) ? 0 : 1e9;
  const float rounded = static_cast<float>(want);
  if (std::isinf(rounded)) return got == rounded ? 0 : 1e9;
  if (rounded == 0 && got == 0) return 0;
  const float size = std::max(std::abs(rounded), std::numeric_limits<float>::min());
  const double ulp = static_cast<double>(std::nextafter(size, INFINITY)) - size;
  return std::abs(got - want) / ulp;
}

template <typename Versions>
void Check(const char* name, double (*exact)(double)) {
  const std::vector<float> in = Samples();
  const auto n = static_cast<int64_t>(in.size());
  std::vector<float> base(in.size()), best(in.size());
  Versions::Base(in.data(), base.data(), n);
  Versions::For(BestIsa())(in.data(), best.data(), n);
  double worst = 0;
  float at = 0;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const double error = Error(best[i], exact(in[i]));
    if (error > worst) worst = error, at = in[i];
    if (std::bit_cast<uint32_t>(base[i]) != std::bit_cast<uint32_t>(best[i]) &&
        !(std::isnan(base[i]) && std::isnan(best[i]))) {
      ADD_FAILURE() << name << "(" << in[i] << ") depends on the processor: " << base[i] << ", "
                    << best[i];
      return;
    }
  }
  EXPECT_LE(worst, 2.0) << name << "(" << at << ")";
  std::printf("%s: at most %.2f ulp, at %g\n", name, worst, static_cast<double>(at));
}

TEST(FloatMath, IsWithinTwoUnitsOfTheLastPlaceForAllFloats) {
  Check<IsaVersions<ExpLoop>>("exp", [](double x) { return std::exp(x); });
  Check<IsaVersions<Expm1Loop>>("expm1", [](double x) { return std::expm1(x); });
  Check<IsaVersions<LogLoop>>("log", [](double x) { return std::log(x); });
  Check<IsaVersions<Log1pLoop>>("log1p", [](double x) { return std::log1p(x); });
  Check<IsaVersions<ErfLoop>>("erf", [](double x) { return std::erf(x); });
  Check<IsaVersions<TanhLoop>>("tanh", [](double x) { return std::tanh(x); });
  Check<IsaVersions<SigmoidLoop>>("sigmoid", [](double x) {
    return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x));
  });
  Check<IsaVersions<SoftplusLoop>>(
      "softplus", [](double x) { return (x > 0 ? x : 0) + std::log1p(std::exp(-std::abs(x))); });
}

TEST(FloatMath, KeepsTheSignOfZero) {
  for (float (*function)(float) :
       {&float_math::Tanh, &float_math::Erf, &float_math::Expm1, &float_math::Log1p}) {
    EXPECT_TRUE(std::signbit(function(-0.0f)));
    EXPECT_FALSE(std::signbit(function(0.0f)));
    EXPECT_EQ(function(0.0f), 0.0f);
  }
}

}  // namespace
}  // namespace millrace
