// SPDX-License-Identifier: Apache-2.0
// The functions of doubles that grids have of their own, against the C library's of long double.
// GPUs give the same bits as the code that runs here: each of its operations is rounded as IEEE 754
// asks on both.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/strings.h"
#include "gtest/gtest.h"
#include "jit/host_grid.h"
#include "jit/ptx_test_util.h"

namespace millrace::jit {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kDenormal = std::numeric_limits<double>::denorm_min();
constexpr double kLargest = std::numeric_limits<double>::max();
constexpr double kSmallest = std::numeric_limits<double>::min();

static_assert(std::numeric_limits<long double>::digits >= 64,
              "errors are measured by numbers with more digits than double has");

std::vector<double> Apply(const std::string& op, const std::vector<double>& x) {
  const PtxCase c{op, StrCat(op, ":double i0 > t0"), {kDouble}, {kDouble}, {Spread::kEach}};
  const FusedProgram program = ParseCase(c);
  const std::vector<Tensor> inputs = {Tensor::FromValues<double>(
      std::span<const double>(x), Shape({static_cast<int64_t>(x.size())}))};
  const FusedLayout layout = MakeFusedLayout(program, std::vector<Shape>{inputs[0].shape()});
  HostGrid grid(program, c.inputs, layout);
  EXPECT_EQ(grid.error(), "");
  if (!grid.error().empty()) return std::vector<double>(x.size());
  const std::vector<Tensor> found = grid.Run(inputs, 3, 0, false);
  const std::span<const double> values = found[0].flat<double>();
  return {values.begin(), values.end()};
}

// In units in the last place of the double that the exact value has.
double UlpsFrom(double value, long double exact) {
  if (std::isnan(exact)) return std::isnan(value) ? 0 : kInfinity;
  if (value == static_cast<double>(exact)) {
    if (std::isinf(value)) return 0;
  } else if (std::isinf(value) || std::isinf(static_cast<double>(exact))) {
    return kInfinity;
  }
  int exponent = 0;
  std::frexp(exact, &exponent);
  const long double ulp = std::ldexp(1.0L, std::max(exponent - 53, -1074));
  return static_cast<double>(std::fabs(value - exact) / ulp);
}

using Exact = std::function<long double(long double)>;

// The largest error over numbers that are spread evenly over [low, high] in value, or, where that
// is wider than any of interest, in magnitude.
void ExpectWithin(const std::string& op, const Exact& exact, double low, double high,
                  double bound) {
  std::mt19937_64 random(static_cast<uint64_t>(bound * 1000));
  std::uniform_real_distribution<double> evenly(low, high), scale(-40, 0);
  std::vector<double> x = {low, high};
  for (int i = 0; i < 300000; ++i) {
    x.push_back(evenly(random));
    x.push_back(low + (high - low) * std::exp2(scale(random)));
  }
  const std::vector<double> y = Apply(op, x);
  double most = 0, at = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double ulps = UlpsFrom(y[i], exact(x[i]));
    if (ulps <= most) continue;
    most = ulps;
    at = x[i];
  }
  EXPECT_LE(most, bound) << op << "(" << at << ") within [" << low << ", " << high << "]";
  // A bound that is far off says nothing.
  EXPECT_GT(most, 0.4) << op;
}

void ExpectValues(const std::string& op, const std::vector<double>& x,
                  const std::vector<double>& expected) {
  const std::vector<double> y = Apply(op, x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(expected[i])) {
      EXPECT_TRUE(std::isnan(y[i])) << op << "(" << x[i] << ") is " << y[i];
    } else {
      EXPECT_EQ(y[i], expected[i]) << op << "(" << x[i] << ")";
      EXPECT_EQ(std::signbit(y[i]), std::signbit(expected[i])) << op << "(" << x[i] << ")";
    }
  }
}

TEST(GridMathTest, Exp) {
  const Exact exact = [](long double x) { return std::exp(x); };
  ExpectWithin("Exp", exact, -708, 709.7, 0.7);
  ExpectWithin("Exp", exact, -1, 1, 0.7);
  ExpectWithin("Exp", exact, -745.1, -708.4, 1);
  ExpectValues(
      "Exp",
      {0.0, -0.0, kDenormal, 710, kLargest, kInfinity, -746, -kLargest, -kInfinity, std::nan("")},
      {1, 1, 1, kInfinity, kInfinity, kInfinity, 0, 0, 0, std::nan("")});
}

TEST(GridMathTest, Log) {
  const Exact exact = [](long double x) { return std::log(x); };
  ExpectWithin("Log", exact, kSmallest, 2, 0.8);
  ExpectWithin("Log", exact, 0.7, 1.5, 0.8);
  ExpectWithin("Log", exact, 1, kLargest, 0.8);
  ExpectWithin("Log", exact, kDenormal, kSmallest, 0.8);
  ExpectValues("Log", {1, 0.0, -0.0, -1, -kDenormal, kInfinity, -kInfinity, std::nan("")},
               {0, -kInfinity, -kInfinity, std::nan(""), std::nan(""), kInfinity, std::nan(""),
                std::nan("")});
}

TEST(GridMathTest, Tanh) {
  const Exact exact = [](long double x) { return std::tanh(x); };
  ExpectWithin("Tanh", exact, -25, 25, 1.5);
  ExpectWithin("Tanh", exact, 0.5, 1, 1.5);
  ExpectWithin("Tanh", exact, -0.7, 0.7, 1.5);
  ExpectValues("Tanh",
               {0.0, -0.0, kDenormal, -kDenormal, 22, -22, kLargest, -kInfinity, std::nan("")},
               {0.0, -0.0, kDenormal, -kDenormal, 1, -1, 1, -1, std::nan("")});
}

TEST(GridMathTest, Sigmoid) {
  const Exact exact = [](long double x) { return 1 / (1 + std::exp(-x)); };
  ExpectWithin("Sigmoid", exact, -708, 40, 2.5);
  ExpectWithin("Sigmoid", exact, -5, 5, 2.5);
  ExpectWithin("Sigmoid", exact, -745.1, -708.4, 1);
  ExpectValues("Sigmoid", {0.0, -0.0, 40, kLargest, kInfinity, -746, -kInfinity, std::nan("")},
               {0.5, 0.5, 1, 1, 1, 0, 0, std::nan("")});
}

TEST(GridMathTest, ErrorsAreMeasuredInUnitsOfTheResult) {
  EXPECT_EQ(UlpsFrom(1 + std::numeric_limits<double>::epsilon(), 1.0L), 1);
  EXPECT_EQ(UlpsFrom(2 * kDenormal, static_cast<long double>(kDenormal)), 1);
  EXPECT_EQ(UlpsFrom(kInfinity, 1e300L), kInfinity);
  EXPECT_EQ(UlpsFrom(1, std::nanl("")), kInfinity);
}

}  // namespace
}  // namespace millrace::jit
