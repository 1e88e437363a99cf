// SPDX-License-Identifier: Apache-2.0
// Transforms of every kind of length against the sums that define them.
#include "kernels/signal/fourier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>
#include <vector>

namespace millrace {
namespace {

// Numbers that look random and are the same everywhere.
template <typename T>
std::vector<std::complex<T>> Signal(int64_t n) {
  std::vector<std::complex<T>> x;
  uint32_t state = 1;
  const auto next = [&] {
    state = state * 1664525u + 1013904223u;
    return static_cast<T>(state >> 8) / T(1 << 23) - T(1);
  };
  for (int64_t i = 0; i < n; ++i) {
    const T re = next(), im = next();
    x.emplace_back(re, im);
  }
  return x;
}

// The largest error, relative to the largest number of the result.
template <typename T>
double ErrorOf(int64_t n, bool inverse) {
  const std::vector<std::complex<T>> x = Signal<T>(n);
  const FourierPlan<T> plan(n);
  std::vector<std::complex<T>> y = x, work(static_cast<std::size_t>(plan.work_size()));
  plan.Transform(y.data(), work.data(), inverse);
  double error = 0, most = 0;
  for (int64_t k = 0; k < n; ++k) {
    std::complex<double> sum = 0;
    for (int64_t j = 0; j < n; ++j) {
      const double turn = static_cast<double>(j * k % n) / static_cast<double>(n);
      sum += std::complex<double>(x[j]) *
             std::polar(1.0, (inverse ? 2 : -2) * std::numbers::pi * turn);
    }
    error = std::max(error, std::abs(sum - std::complex<double>(y[k])));
    most = std::max(most, std::abs(sum));
  }
  return error / most;
}

// Powers of two, small and mixed factors, the largest radix, and primes beyond it.
constexpr int64_t kLengths[] = {1,  2,  3,  4,  5,  6,  7,   8,   11,  12,  13,  16,  30,
                                31, 32, 37, 60, 62, 64, 100, 127, 128, 211, 256, 961, 1009};

TEST(FourierTest, FloatsAreTransformedToTheirPrecision) {
  for (const int64_t n : kLengths) {
    for (const bool inverse : {false, true}) {
      EXPECT_LT(ErrorOf<float>(n, inverse), 2e-6) << n << (inverse ? " back" : "");
    }
  }
}

TEST(FourierTest, DoublesAreTransformedToTheirPrecision) {
  for (const int64_t n : kLengths) {
    for (const bool inverse : {false, true}) {
      EXPECT_LT(ErrorOf<double>(n, inverse), 1e-14) << n << (inverse ? " back" : "");
    }
  }
}

TEST(FourierTest, BackAndForthIsTheSignalTimesItsLength) {
  for (const int64_t n : {6, 64, 97}) {
    const std::vector<std::complex<double>> x = Signal<double>(n);
    const FourierPlan<double> plan(n);
    EXPECT_EQ(plan.size(), n);
    std::vector<std::complex<double>> y = x, work(static_cast<std::size_t>(plan.work_size()));
    plan.Transform(y.data(), work.data(), false);
    plan.Transform(y.data(), work.data(), true);
    for (int64_t i = 0; i < n; ++i) {
      EXPECT_LT(std::abs(y[i] / static_cast<double>(n) - x[i]), 1e-14) << n << " at " << i;
    }
  }
}

}  // namespace
}  // namespace millrace
