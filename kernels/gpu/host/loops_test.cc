// SPDX-License-Identifier: Apache-2.0
// What the goldens, which are small, do not reach: groups of elements and their rests, sums in
// chunks, teams of several threads, scatters of many updates.
#include "kernels/gpu/loops/loops.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/gpu/host/host_launcher.h"
#include "kernels/gpu/host/threads_launcher.h"
#include "kernels/gpu/loops/batch_norm_loops.h"
#include "kernels/gpu/loops/reduce_loops.h"
#include "kernels/gpu/loops/row_loops.h"
#include "kernels/gpu/loops/top_k_loops.h"
#include "kernels/gpu/reduce_plan.h"

namespace millrace::gpu {
namespace {

std::vector<float> Numbers(int64_t n, uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::vector<float> values(n);
  for (float& v : values) v = static_cast<float>(random() % 2001) / 1000.0f - 1.0f;
  return values;
}

TEST(Divider, DividesAsTheProcessorDoes) {
  std::mt19937 random(7);
  for (int i = 0; i < 200000; ++i) {
    const uint32_t d = std::max<uint32_t>(1, (random() >> 1) >> (random() % 31));
    const uint32_t n = (random() >> 1) >> (random() % 31);
    ASSERT_EQ(Divider(d).Quotient(n), n / d) << n << " / " << d;
  }
  for (const uint32_t d : {1u, 2u, 3u, 0x7ffffffeu, 0x7fffffffu}) {
    for (const uint32_t n : {0u, 1u, 0x7ffffffeu, 0x7fffffffu}) {
      EXPECT_EQ(Divider(d).Quotient(n), n / d) << n << " / " << d;
    }
  }
}

TEST(IndexMap, JoinsAxesAndFindsEveryPlace) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    const int rank = static_cast<int>(random() % 6);
    std::vector<int64_t> sizes(rank);
    for (int64_t& size : sizes) size = 1 + random() % 4;
    std::vector<int64_t> dense(rank), repeated(rank);
    int64_t step = 1;
    for (int k = rank - 1; k >= 0; --k) {
      dense[k] = step;
      repeated[k] = random() % 2 == 0 ? 0 : step;
      step *= sizes[k];
    }
    IndexMap<2> map;
    for (int k = 0; k < rank; ++k) ASSERT_TRUE(map.Add(sizes[k], {dense[k], repeated[k]}));
    map.Finish();
    ASSERT_EQ(map.count(), step);
    for (int64_t i = 0; i < step; ++i) {
      int64_t rest = i, want = 0;
      for (int k = rank - 1; k >= 0; --k) {
        want += rest % sizes[k] * repeated[k];
        rest /= sizes[k];
      }
      const auto at = map.At(i);
      ASSERT_EQ(at.offset[0], i);
      ASSERT_EQ(at.offset[1], want);
    }
  }
}

TEST(Elementwise, TakesGroupsAndRestsAtAnyAddress) {
  const std::vector<float> in = Numbers(64);
  for (int from = 0; from < 5; ++from) {
    for (int to = 0; to < 5; ++to) {
      for (int64_t n = 0; n < 40; ++n) {
        std::vector<float> out(64, 77.0f);
        ASSERT_EQ(
            HostLoops().Unary({}, {UnaryOp::kNeg, kFloat, in.data() + from, out.data() + to, n, 0}),
            nullptr);
        for (int64_t i = 0; i < 64; ++i) {
          const bool inside = i >= to && i < to + n;
          ASSERT_EQ(out[i], inside ? -in[i - to + from] : 77.0f) << from << " " << to << " " << n;
        }
      }
    }
  }
}

TEST(Elementwise, RepeatsOneOperandOrTheOther) {
  const std::vector<float> in = Numbers(64);
  for (int64_t n = 1; n < 40; ++n) {
    for (const bool left : {false, true}) {
      std::vector<float> out(n);
      BinaryParams p;
      p.op = BinaryOp::kSub;
      p.type = kFloat;
      p.a = p.b = in.data();
      p.out = out.data();
      p.n = n;
      p.a_step = left ? 0 : 1;
      p.b_step = left ? 1 : 0;
      ASSERT_EQ(HostLoops().Binary({}, p), nullptr);
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_EQ(out[i], left ? in[0] - in[i] : in[i] - in[0]);
      }
    }
  }
}

// --- Teams -----------------------------------------------------------------------------------

void ExpectNear(const std::vector<float>& a, const std::vector<float>& b, float tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance) << i;
}

TEST(Teams, ShareRowsOfSoftmax) {
  constexpr int64_t kRows = 7, kN = 11;
  const std::vector<float> in = Numbers(kRows * kN);
  for (const bool log : {false, true}) {
    std::vector<float> one(in.size()), several(in.size());
    ASSERT_EQ(HostLoops().Softmax({}, {log, kFloat, in.data(), one.data(), kRows, kN}), nullptr);
    ASSERT_EQ(RunSoftmax<ThreadsLauncher>({}, {log, kFloat, in.data(), several.data(), kRows, kN}),
              nullptr);
    ExpectNear(one, several, 1e-6f);
  }
}

TEST(Teams, ShareRowsOfCrossEntropies) {
  constexpr int64_t kRows = 5, kN = 8;
  const std::vector<float> in = Numbers(kRows * kN), probabilities = Numbers(kRows * kN, 2);
  const std::vector<int32_t> classes = {0, 7, 3, 9, 4};  // the fourth is none
  for (const bool sparse : {false, true}) {
    std::vector<float> loss[2], backprop[2];
    for (int k = 0; k < 2; ++k) {
      loss[k].resize(kRows);
      backprop[k].resize(in.size());
      CrossEntropyParams p;
      p.type = kFloat;
      p.label_type = sparse ? kInt32 : DataType::kInvalid;
      p.logits = in.data();
      p.labels = sparse ? static_cast<const void*>(classes.data()) : probabilities.data();
      p.x_row = p.y_row = kN;
      p.loss = loss[k].data();
      p.backprop = backprop[k].data();
      p.rows = kRows;
      p.n = kN;
      ASSERT_EQ(k == 0 ? HostLoops().CrossEntropy({}, p) : RunCrossEntropy<ThreadsLauncher>({}, p),
                nullptr);
    }
    if (sparse) {
      EXPECT_TRUE(std::isnan(loss[0][3]) && std::isnan(loss[1][3]));
      for (int k = 0; k < 2; ++k) {
        loss[k][3] = 0;
        for (int64_t j = 0; j < kN; ++j) {
          EXPECT_TRUE(std::isnan(backprop[k][3 * kN + j]));
          backprop[k][3 * kN + j] = 0;
        }
      }
    }
    ExpectNear(loss[0], loss[1], 1e-5f);
    ExpectNear(backprop[0], backprop[1], 1e-6f);
  }
}

// --- Reductions ------------------------------------------------------------------------------

// Sums in double, one after the other.
std::vector<double> PlainSums(const std::vector<float>& in, const Shape& shape,
                              const std::vector<bool>& reduced, int64_t outputs) {
  std::vector<double> sums(outputs, 0);
  for (std::size_t i = 0; i < in.size(); ++i) {
    auto rest = static_cast<int64_t>(i);
    int64_t at = 0, step = 1;
    for (int k = shape.rank() - 1; k >= 0; --k) {
      if (!reduced[k]) {
        at += rest % shape.dim(k) * step;
        step *= shape.dim(k);
      }
      rest /= shape.dim(k);
    }
    sums[at] += static_cast<double>(in[i]);
  }
  return sums;
}

struct Case {
  Shape shape;
  std::vector<bool> reduced;
  bool chunked;
};

class ReductionTest : public ::testing::TestWithParam<int> {};

TEST_P(ReductionTest, SumsInChunksAndTeamsWhatOneLoopSums) {
  const Case cases[] = {
      {{100000}, {true}, true},
      {{3, 70000}, {false, true}, true},
      {{70000, 5}, {true, false}, true},
      {{40, 30, 20}, {false, true, false}, false},
      {{50, 4, 300}, {true, false, true}, true},
      {{6, 5, 4, 3}, {false, true, false, true}, false},
      {{7, 9}, {false, false}, false},
  };
  const Case& c = cases[GetParam()];
  const std::vector<float> in = Numbers(c.shape.num_elements());
  ReduceParams p;
  ASSERT_TRUE(PlanReduction(c.shape, c.reduced, &p));
  const int64_t outputs = p.kept.count();
  p.chunks = PlanChunks(p.by_column, outputs, p.reduced.count());
  EXPECT_EQ(p.chunks > 1, c.chunked);
  std::vector<float> scratch(p.chunks * outputs), out(outputs), by_threads(outputs);
  p.type = kFloat;
  p.in = in.data();
  p.out = out.data();
  p.scratch = scratch.data();
  ASSERT_EQ(HostLoops().Reduce({}, p), nullptr);
  p.out = by_threads.data();
  ASSERT_EQ(RunReduce<ThreadsLauncher>({}, p), nullptr);
  const std::vector<double> want = PlainSums(in, c.shape, c.reduced, outputs);
  for (int64_t i = 0; i < outputs; ++i) {
    ASSERT_NEAR(out[i], want[i], 2e-2) << i;
    ASSERT_NEAR(by_threads[i], want[i], 2e-2) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, ReductionTest, ::testing::Range(0, 7));

// --- Batch normalization ---------------------------------------------------------------------

// The same images with channels last and first give the same, in chunks or by teams, for groups
// of channels that fill 16 bytes and for others.
TEST(BatchNorm, GivesTheSameInBothLayouts) {
  constexpr int64_t kImages = 3, kPixels = 700;
  for (const int64_t channels : {5, 8}) {
    const int64_t n = kImages * kPixels * channels;
    const std::vector<float> last = Numbers(n), gradient_last = Numbers(n, 2);
    std::vector<float> first(n), gradient_first(n);
    const auto at_first = [&](int64_t i) {
      const int64_t c = i % channels, pixel = i / channels % kPixels,
                    image = i / channels / kPixels;
      return (image * channels + c) * kPixels + pixel;
    };
    for (int64_t i = 0; i < n; ++i) {
      first[at_first(i)] = last[i];
      gradient_first[at_first(i)] = gradient_last[i];
    }
    const std::vector<float> scale = Numbers(channels, 3), offset = Numbers(channels, 4);
    const std::vector<float> old_mean = Numbers(channels, 5);
    const std::vector<float> old_variance(channels, 0.7f);
    for (const bool training : {true, false}) {
      SCOPED_TRACE(std::to_string(channels) + (training ? " training" : ""));
      std::vector<float> y[2], dx[2], stats[2], slopes[2];
      for (int k = 0; k < 2; ++k) {
        y[k].resize(n);
        dx[k].resize(n);
        stats[k].resize(4 * channels);
        slopes[k].resize(2 * channels);
        BatchNormParams p;
        p.type = kFloat;
        p.outer = k == 0 ? kImages * kPixels : kImages;
        p.channels = channels;
        p.inner = k == 0 ? 1 : kPixels;
        p.training = training;
        p.epsilon = 0.001f;
        p.factor = 0.25f;
        p.x = k == 0 ? last.data() : first.data();
        p.scale = scale.data();
        p.offset = offset.data();
        p.old_mean = old_mean.data();
        p.old_variance = old_variance.data();
        p.y = y[k].data();
        p.mean = stats[k].data();
        p.variance = p.mean + channels;
        p.batch_mean = p.variance + channels;
        p.batch_variance = p.batch_mean + channels;
        p.chunks = PlanChunks(true, channels, p.outer);
        std::vector<float> scratch((2 * p.chunks + 3) * channels);
        p.scratch = scratch.data();
        if (k == 0) {
          EXPECT_GT(p.chunks, 1);
        }
        ASSERT_EQ(k == 0 ? HostLoops().BatchNorm({}, p) : RunBatchNorm<ThreadsLauncher>({}, p),
                  nullptr);
        p.dy = k == 0 ? gradient_last.data() : gradient_first.data();
        p.dx = dx[k].data();
        p.d_scale = slopes[k].data();
        p.d_offset = p.d_scale + channels;
        p.old_mean = p.batch_mean;
        p.old_variance = p.batch_variance;
        ASSERT_EQ(
            k == 0 ? HostLoops().BatchNormGrad({}, p) : RunBatchNormGrad<ThreadsLauncher>({}, p),
            nullptr);
      }
      ExpectNear(stats[0], stats[1], 1e-5f);
      ExpectNear(slopes[0], slopes[1], 1e-2f);
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_NEAR(y[0][i], y[1][at_first(i)], 1e-4f) << i;
        ASSERT_NEAR(dx[0][i], dx[1][at_first(i)], 1e-4f) << i;
      }
    }
  }
}

// --- Scatter ---------------------------------------------------------------------------------

TEST(Scatter, AddsUpdatesOfARowInTheirOrder) {
  constexpr int64_t kRows = 13, kInner = 3, kCount = 5000;
  std::mt19937 random(5);
  std::vector<int32_t> indices(kCount);
  for (int32_t& i : indices) i = static_cast<int32_t>(random() % (kRows + 2)) - 1;  // two are none
  const std::vector<float> updates = Numbers(kCount * kInner);
  std::vector<float> out(kRows * kInner, 0.5f), want = out;
  for (int64_t i = 0; i < kCount; ++i) {
    if (indices[i] < 0 || indices[i] >= kRows) continue;
    for (int64_t k = 0; k < kInner; ++k) {
      want[indices[i] * kInner + k] += updates[i * kInner + k];
    }
  }
  ScatterParams p;
  p.op = ScatterOp::kAdd;
  p.type = kFloat;
  p.index_type = kInt32;
  p.indices = indices.data();
  p.updates = updates.data();
  p.out = out.data();
  p.count = kCount;
  p.inner = kInner;
  p.dims[0] = kRows;
  p.scratch_bytes = HostLoops().scatter_scratch_bytes(kCount);
  std::vector<char> scratch(p.scratch_bytes);
  p.scratch = scratch.data();
  ASSERT_EQ(HostLoops().Scatter({}, p), nullptr);
  EXPECT_EQ(out, want);  // bit for bit
}

// Rows that are updated several times, in the order of the gradients, bit for bit.
TEST(SparseUpdate, TakesTheStepsOfARowInTheirOrder) {
  constexpr int64_t kRows = 7, kInner = 5, kCount = 300;
  std::mt19937 random(6);
  std::vector<int64_t> indices(kCount);
  for (int64_t& i : indices) i = static_cast<int64_t>(random() % (kRows + 2)) - 1;  // two are none
  const std::vector<float> gradient = Numbers(kCount * kInner);
  std::vector<float> var = Numbers(kRows * kInner, 2), want = var;
  std::vector<float> accum(kRows * kInner, 0.1f), want_accum = accum;
  const float lr = 0.1f;
  for (int64_t i = 0; i < kCount; ++i) {
    if (indices[i] < 0 || indices[i] >= kRows) continue;
    for (int64_t k = 0; k < kInner; ++k) {
      const float g = gradient[i * kInner + k];
      float& sum = want_accum[indices[i] * kInner + k];
      sum += g * g;
      want[indices[i] * kInner + k] -= lr * g / std::sqrt(sum);
    }
  }
  UpdateParams p;
  p.rule = UpdateRule::kAdagrad;
  p.type = kFloat;
  p.var = var.data();
  p.slots[0] = accum.data();
  p.scalars[0] = &lr;
  p.gradient = gradient.data();
  p.index_type = kInt64;
  p.indices = indices.data();
  p.count = kCount;
  p.inner = kInner;
  p.rows = kRows;
  p.n = kCount * kInner;
  p.scratch_bytes = HostLoops().scatter_scratch_bytes(kCount);
  std::vector<char> scratch(p.scratch_bytes);
  p.scratch = scratch.data();
  ASSERT_EQ(HostLoops().SparseUpdate({}, p), nullptr);
  EXPECT_EQ(accum, want_accum);
  for (std::size_t i = 0; i < var.size(); ++i) ASSERT_NEAR(var[i], want[i], 1e-5f);
  p.rule = UpdateRule::kAdam;
  EXPECT_NE(HostLoops().SparseUpdate({}, p), nullptr);
}

// Whole variables and rows: five steps along the sums of gradients, of which l1 keeps some at 0.
TEST(AdagradDA, StepsAlongTheSumOfAllGradients) {
  constexpr int64_t kN = 12;
  const float lr = 0.5f, l1 = 0.2f, l2 = 0.1f;
  for (const bool sparse : {false, true}) {
    std::vector<float> var(kN, 7), sums(kN, 0), squares(kN, 0.1f), want(kN, 0);
    const std::vector<int32_t> rows = {2, 0, 1};  // of four elements
    for (int64_t step = 1; step <= 5; ++step) {
      const std::vector<float> gradient = Numbers(kN, static_cast<uint32_t>(step));
      UpdateParams p;
      p.rule = UpdateRule::kAdagradDA;
      p.type = kFloat;
      p.var = var.data();
      p.slots[0] = sums.data();
      p.slots[1] = squares.data();
      p.scalars[0] = &lr;
      p.scalars[1] = &l1;
      p.scalars[2] = &l2;
      p.step = &step;
      p.gradient = gradient.data();
      p.n = kN;
      p.index_type = kInt32;
      p.indices = rows.data();
      p.count = p.rows = 3;
      p.inner = 4;
      p.scratch_bytes = HostLoops().scatter_scratch_bytes(p.count);
      std::vector<char> scratch(p.scratch_bytes);
      p.scratch = scratch.data();
      ASSERT_EQ(sparse ? HostLoops().SparseUpdate({}, p) : HostLoops().Update({}, p), nullptr);
    }
    int zeros = 0;
    for (int64_t i = 0; i < kN; ++i) {
      double sum = 0, square = 0.1;
      const int64_t at = sparse ? rows[i / 4] * 4 + i % 4 : i;
      for (uint32_t step = 1; step <= 5; ++step) {
        const double g = Numbers(kN, step)[i];
        sum += g;
        square += g * g;
      }
      const double pull = std::max(std::fabs(sum) - 5 * 0.2, 0.0);
      want[at] =
          static_cast<float>((sum > 0 ? -1 : 1) * 0.5 * pull / (0.1 * 5 * 0.5 + std::sqrt(square)));
      zeros += pull == 0;
    }
    EXPECT_TRUE(zeros > 0 && zeros < kN) << zeros;
    ExpectNear(var, want, 1e-5f);
  }
}

// --- Neighbours --------------------------------------------------------------------------------

// Small whole numbers, so that both products are exact.
TEST(MirrorPad, HasTheGradientThatIsItsTranspose) {
  std::mt19937 random(8);
  for (int round = 0; round < 100; ++round) {
    MirrorParams p;
    p.type = kFloat;
    p.size = 4;
    p.skip = static_cast<int>(random() % 2);
    p.rank = 1 + static_cast<int>(random() % 3);
    int64_t inner = 1, outer = 1;
    for (int i = 0; i < p.rank; ++i) {
      p.dims[i] = 1 + random() % 4;
      const auto most = static_cast<uint32_t>(p.dims[i] - p.skip + 1);
      p.before[i] = random() % most;
      p.padded[i] = p.before[i] + p.dims[i] + random() % most;
      inner *= p.dims[i];
      outer *= p.padded[i];
    }
    std::vector<float> x(inner), padded(outer, 77), gradient(outer), dx(inner, 77);
    for (float& v : x) v = static_cast<float>(random() % 9);
    for (float& v : gradient) v = static_cast<float>(random() % 9);
    p.in = x.data();
    p.out = padded.data();
    p.n = outer;
    ASSERT_EQ(HostLoops().MirrorPad({}, p), nullptr);
    p.in = gradient.data();
    p.out = dx.data();
    p.n = inner;
    ASSERT_EQ(HostLoops().MirrorPadGrad({}, p), nullptr);
    float forward = 0, backward = 0;
    for (int64_t i = 0; i < outer; ++i) forward += padded[i] * gradient[i];
    for (int64_t i = 0; i < inner; ++i) backward += x[i] * dx[i];
    ASSERT_EQ(forward, backward) << "round " << round;
  }
}

// --- The largest ---------------------------------------------------------------------------------

TEST(TopK, FindsTheSameInRoundsAndByPlaces) {
  constexpr int64_t kRows = 3, kColumns = 200;
  std::vector<float> in = Numbers(kRows * kColumns);
  for (int64_t i = 0; i < kRows * kColumns; i += 3) in[i] = in[0];  // equal ones
  in[7] = in[205] = in[230] = std::numeric_limits<float>::quiet_NaN();
  for (const int64_t k : {1, 5, 64, 65, 200}) {
    std::vector<float> values[2];
    std::vector<int32_t> indices[2];
    for (int way = 0; way < 2; ++way) {
      values[way].resize(kRows * k);
      indices[way].resize(kRows * k);
      const TopKParams p{kFloat, kInt32,   in.data(), values[way].data(), indices[way].data(),
                         kRows,  kColumns, k};
      ASSERT_EQ(way == 0 ? HostLoops().TopK({}, p) : RunTopK<ThreadsLauncher>({}, p), nullptr);
    }
    ASSERT_EQ(indices[0], indices[1]) << k;
    for (int64_t row = 0; row < kRows; ++row) {
      std::vector<int32_t> order(kColumns);
      std::iota(order.begin(), order.end(), 0);
      const float* x = in.data() + row * kColumns;
      std::stable_sort(order.begin(), order.end(), [x](int32_t a, int32_t b) {
        if (std::isnan(x[a]) != std::isnan(x[b])) return std::isnan(x[a]);
        return x[a] > x[b];
      });
      for (int64_t i = 0; i < k; ++i) ASSERT_EQ(indices[0][row * k + i], order[i]) << k << " " << i;
    }
  }
}

}  // namespace
}  // namespace millrace::gpu
