// SPDX-License-Identifier: Apache-2.0
// Pools beside a plain one: every layout, padding and group of channels, and which element of
// equal ones, and of NaNs, gets a gradient.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/gpu/loops/loops.h"

namespace millrace::gpu {
namespace {

struct Case {
  WindowParams rows, cols;
  int64_t channels;
};

WindowParams Axis(int64_t input, int64_t size, int64_t stride, int64_t pad, int64_t output) {
  return {.input = input, .output = output, .size = size, .stride = stride, .pad = pad};
}

const Case kCases[] = {
    {Axis(6, 2, 2, 0, 3), Axis(4, 2, 2, 0, 2), 8},      // groups of channels; nothing overlaps
    {Axis(7, 3, 2, 1, 4), Axis(6, 3, 2, 0, 3), 8},      // SAME, more padding after than before
    {Axis(7, 3, 2, 1, 4), Axis(6, 3, 2, 0, 3), 5},      // channels that make no groups
    {Axis(9, 2, 3, 0, 3), Axis(8, 3, 1, 0, 6), 4},      // rows that no window sees
    {Axis(1, 1, 1, 1, 3), Axis(1, 3, 1, 2, 2), 6},      // more windows than inputs
    {Axis(30, 17, 13, 2, 2), Axis(30, 17, 9, 2, 3), 4}  // more taps than a byte counts
};

constexpr int64_t kBatch = 2;

// Values of which many are equal, and a few NaNs.
std::vector<float> Values(int64_t n, uint32_t seed, bool nans) {
  std::mt19937 random(seed);
  std::vector<float> values(n);
  for (float& v : values) {
    v = static_cast<float>(random() % 5) - 2;
    if (nans && random() % 11 == 0) v = std::numeric_limits<float>::quiet_NaN();
  }
  return values;
}

// Where image element (batch, y, x, channel) lies in images of that size.
int64_t At(bool first, int64_t channels, int64_t height, int64_t width, int64_t n, int64_t y,
           int64_t x, int64_t c) {
  return first ? ((n * channels + c) * height + y) * width + x
               : ((n * height + y) * width + x) * channels + c;
}
ImageStrides Strides(bool first, int64_t channels, int64_t height, int64_t width) {
  if (first) return {channels * height * width, width, 1, height * width};
  return {channels * height * width, width * channels, channels, 1};
}

// One pool, written down plainly: calls f(image offsets of the window in their order, offset of
// the output).
template <typename F>
void ForEachWindow(const Case& g, bool first, F&& f) {
  for (int64_t n = 0; n < kBatch; ++n) {
    for (int64_t oy = 0; oy < g.rows.output; ++oy) {
      for (int64_t ox = 0; ox < g.cols.output; ++ox) {
        for (int64_t c = 0; c < g.channels; ++c) {
          std::vector<int64_t> seen;
          for (int64_t ky = 0; ky < g.rows.size; ++ky) {
            for (int64_t kx = 0; kx < g.cols.size; ++kx) {
              const int64_t y = oy * g.rows.stride - g.rows.pad + ky;
              const int64_t x = ox * g.cols.stride - g.cols.pad + kx;
              if (y < 0 || x < 0 || y >= g.rows.input || x >= g.cols.input) continue;
              seen.push_back(At(first, g.channels, g.rows.input, g.cols.input, n, y, x, c));
            }
          }
          f(seen, At(first, g.channels, g.rows.output, g.cols.output, n, oy, ox, c));
        }
      }
    }
  }
}

class PoolTest : public ::testing::TestWithParam<bool> {
 protected:
  PoolParams Params(const Case& g, PoolKind kind) const {
    PoolParams p;
    p.kind = kind;
    p.type = kFloat;
    p.batch = kBatch;
    p.channels = g.channels;
    p.rows = g.rows;
    p.cols = g.cols;
    p.image = Strides(GetParam(), g.channels, g.rows.input, g.cols.input);
    p.pooled = Strides(GetParam(), g.channels, g.rows.output, g.cols.output);
    return p;
  }
  static int64_t Images(const Case& g) { return kBatch * g.channels * g.rows.input * g.cols.input; }
  static int64_t Pooled(const Case& g) {
    return kBatch * g.channels * g.rows.output * g.cols.output;
  }
  void Run(PoolParams p) {
    // As a GPU's memory: full of something, and aligned.
    std::vector<char> scratch(p.scratch_bytes() + 32, '\x55');
    p.scratch =
        reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(scratch.data()) + 31) / 32 * 32);
    ASSERT_EQ(HostLoops().Pool({}, p), nullptr);
  }
};

bool Same(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }

TEST_P(PoolTest, TakesTheLargestAndTheAverageOfWhatThereIs) {
  for (const Case& g : kCases) {
    const std::vector<float> in = Values(Images(g), 1, true);
    std::vector<float> largest(Pooled(g)), average(Pooled(g));
    PoolParams p = Params(g, PoolKind::kMax);
    p.in = in.data();
    p.out = largest.data();
    Run(p);
    p.kind = PoolKind::kAverage;
    p.out = average.data();
    Run(p);
    ForEachWindow(g, GetParam(), [&](const std::vector<int64_t>& seen, int64_t out) {
      float most = std::numeric_limits<float>::lowest(), sum = 0;
      for (const int64_t i : seen) {
        if (most < in[i]) most = in[i];
        sum += in[i];
      }
      ASSERT_EQ(largest[out], most);
      ASSERT_TRUE(Same(average[out], sum / static_cast<float>(seen.size())));
    });
  }
}

TEST_P(PoolTest, GivesTheGradientToTheFirstOfTheLargest) {
  for (const Case& g : kCases) {
    const std::vector<float> in = Values(Images(g), 2, true);
    const std::vector<float> gradient = Values(Pooled(g), 3, false);
    std::vector<float> got(Images(g), 77), want(Images(g), 0);
    PoolParams p = Params(g, PoolKind::kMaxGrad);
    p.in = in.data();
    p.gradient = gradient.data();
    p.out = got.data();
    EXPECT_EQ(p.scratch_bytes(), Pooled(g) * (g.rows.size == 17 ? 4 : 1));
    Run(p);
    ForEachWindow(g, GetParam(), [&](const std::vector<int64_t>& seen, int64_t out) {
      int64_t winner = -1;
      for (const int64_t i : seen) {
        if (winner < 0 || in[winner] < in[i]) winner = i;
      }
      if (winner >= 0) want[winner] += gradient[out];
    });
    EXPECT_EQ(got, want);  // small whole numbers: exact
  }
}

TEST_P(PoolTest, SharesTheGradientOfAnAverage) {
  for (const Case& g : kCases) {
    const std::vector<float> gradient = Values(Pooled(g), 4, false);
    std::vector<float> got(Images(g), 77);
    std::vector<double> want(Images(g), 0);
    PoolParams p = Params(g, PoolKind::kAverageGrad);
    p.gradient = gradient.data();
    p.out = got.data();
    Run(p);
    ForEachWindow(g, GetParam(), [&](const std::vector<int64_t>& seen, int64_t out) {
      for (const int64_t i : seen) want[i] += gradient[out] / static_cast<double>(seen.size());
    });
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-5) << i;
  }
}

// Groups of eight, in half and bfloat16.
TEST_P(PoolTest, TakesHalvesInGroups) {
  const Case& g = kCases[1];
  const std::vector<float> numbers = Values(Images(g), 5, false);
  for (const DataType type : {kHalf, kBfloat16}) {
    std::vector<uint16_t> in(numbers.size()), out(Pooled(g)), dx(numbers.size());
    const auto bits = [type](float v) { return type == kHalf ? Half(v).bits : BFloat16(v).bits; };
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = bits(numbers[i]);
    PoolParams p = Params(g, PoolKind::kMax);
    p.type = type;
    p.in = in.data();
    p.out = out.data();
    Run(p);
    p.kind = PoolKind::kMaxGrad;
    p.gradient = out.data();
    p.out = dx.data();
    Run(p);
    std::vector<float> want(numbers.size(), 0);
    ForEachWindow(g, GetParam(), [&](const std::vector<int64_t>& seen, int64_t o) {
      int64_t winner = seen[0];
      for (const int64_t i : seen) {
        if (numbers[winner] < numbers[i]) winner = i;
      }
      ASSERT_EQ(out[o], bits(numbers[winner]));
      want[winner] += numbers[winner];
    });
    for (std::size_t i = 0; i < dx.size(); ++i) ASSERT_EQ(dx[i], bits(want[i])) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, PoolTest, ::testing::Bool(), [](const auto& layout) {
  return layout.param ? "ChannelsFirst" : "ChannelsLast";
});

}  // namespace
}  // namespace millrace::gpu
