// SPDX-License-Identifier: Apache-2.0
// Scans and positions of extremes in chunks, by teams of one member and of several, compared with
// plain loops.
#include "kernels/gpu/loops/scan_loops.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/gpu/host/host_launcher.h"
#include "kernels/gpu/host/threads_launcher.h"
#include "kernels/gpu/loops/arg_loops.h"
#include "kernels/gpu/reduce_plan.h"

namespace millrace::gpu {
namespace {

template <typename T>
std::vector<T> Numbers(int64_t n, int largest) {
  std::mt19937 random(5);
  std::vector<T> values(n);
  for (T& v : values) v = T(static_cast<int>(random() % (2 * largest + 1)) - largest);
  return values;
}

template <typename T>
std::vector<T> PlainScan(const std::vector<T>& in, const ScanParams& p) {
  std::vector<T> out(in.size());
  for (int64_t line = 0; line < p.outer * p.inner; ++line) {
    const int64_t base = line / p.inner * p.size * p.inner + line % p.inner;
    T total = T(p.product ? 1 : 0);
    for (int64_t k = 0; k < p.size; ++k) {
      const int64_t at = base + (p.reverse ? p.size - 1 - k : k) * p.inner;
      const T before = total;
      // As unsigned numbers: products leave the range.
      total = p.product ? T(uint64_t(total) * uint64_t(in[at])) : T(total + in[at]);
      out[at] = p.exclusive ? before : total;
    }
  }
  return out;
}

// Integers, so that every order gives the same.
template <typename T>
void CheckScan(ScanParams p, DataType type, int largest) {
  const std::vector<T> in = Numbers<T>(p.outer * p.size * p.inner, largest);
  for (int bits = 0; bits < 4; ++bits) {
    p.exclusive = bits & 1;
    p.reverse = bits & 2;
    const std::vector<T> want = PlainScan(in, p);
    std::vector<T> totals(p.outer * p.inner * p.chunks), one(in.size()), several(in.size());
    p.type = type;
    p.in = in.data();
    p.scratch = totals.data();
    p.out = one.data();
    ASSERT_EQ(HostLoops().Scan({}, p), nullptr);
    EXPECT_EQ(one, want) << bits;
    p.out = several.data();
    ASSERT_EQ(RunScan<ThreadsLauncher>({}, p), nullptr);
    EXPECT_EQ(several, want) << bits;
  }
}

TEST(Scan, GivesInChunksAndTeamsWhatOneLoopGives) {
  for (const auto& [outer, size, inner] :
       {std::array<int64_t, 3>{1, 1, 1}, {1, 257, 1}, {3, 100, 1}, {1, 90, 4}, {2, 37, 5}}) {
    for (const int64_t chunks : {1, 2, 7, 10}) {
      if (chunks > size) continue;
      SCOPED_TRACE(::testing::Message() << outer << "x" << size << "x" << inner << "/" << chunks);
      ScanParams p;
      p.outer = outer;
      p.size = size;
      p.inner = inner;
      p.chunks = chunks;
      CheckScan<double>(p, kDouble, 9);
      CheckScan<int64_t>(p, kInt64, 9);
      p.product = true;
      CheckScan<int64_t>(p, kInt64, 9);
    }
  }
}

TEST(Scan, AddsHalvesAsFloats) {
  constexpr int64_t kSize = 3000;  // halves would stop at 2048
  const std::vector<Half> in(kSize, Half(1.0f));
  for (const int64_t chunks : {1, 4}) {
    std::vector<float> totals(chunks);
    std::vector<Half> out(kSize);
    ASSERT_EQ(RunScan<ThreadsLauncher>({}, {false, false, false, kHalf, in.data(), out.data(), 1,
                                            kSize, 1, chunks, totals.data()}),
              nullptr);
    EXPECT_EQ(static_cast<float>(out[kSize - 1]), 3000.0f);
  }
}

TEST(Scan, IsCutWhereLinesAreFewAndLong) {
  EXPECT_EQ(PlanScanChunks(1, 100, 1), 1);
  EXPECT_EQ(PlanScanChunks(100000, 100, 1), 1);
  EXPECT_EQ(PlanScanChunks(1, 1 << 20, 1), 256);
  EXPECT_EQ(PlanScanChunks(64, 1 << 20, 64), 1024);
  EXPECT_EQ(PlanScanChunks(1 << 15, 1 << 10, 1 << 15), 1);
  EXPECT_EQ(PlanScanChunks(0, 100, 1), 1);
  EXPECT_EQ(PlanScanChunks(1, 0, 1), 1);
}

template <typename T>
void CheckArg(const std::vector<T>& in, DataType type, int64_t outer, int64_t size, int64_t inner) {
  for (const bool largest : {true, false}) {
    std::vector<int64_t> want(outer * inner), one(want.size());
    std::vector<int32_t> several(want.size());
    for (int64_t i = 0; i < outer * inner; ++i) {
      const auto at = [&](int64_t k) { return in[(i / inner * size + k) * inner + i % inner]; };
      double best = largest ? -INFINITY : INFINITY;
      for (int64_t k = 0; k < size; ++k) {
        const auto x = static_cast<double>(at(k));
        if (largest ? x > best : x < best) {
          want[i] = k;
          best = x;
        }
      }
    }
    ASSERT_EQ(
        HostLoops().Arg({}, {largest, type, kInt64, in.data(), one.data(), outer, size, inner}),
        nullptr);
    EXPECT_EQ(one, want);
    ASSERT_EQ(RunArg<ThreadsLauncher>(
                  {}, {largest, type, kInt32, in.data(), several.data(), outer, size, inner}),
              nullptr);
    EXPECT_TRUE(std::equal(want.begin(), want.end(), several.begin()));
  }
}

TEST(Arg, FindsTheFirstOfEqualsByTeamsAndThreads) {
  for (const int64_t inner : {1, 4}) {
    for (const int64_t size : {1, 2, 5, 64}) {
      CheckArg(Numbers<float>(6 * size * inner, 3), kFloat, 6, size, inner);
      CheckArg(Numbers<int64_t>(6 * size * inner, 3), kInt64, 6, size, inner);
      CheckArg(Numbers<uint8_t>(6 * size * inner, 3), kUint8, 6, size, inner);
    }
  }
}

TEST(Arg, PassesOverNaNsWhereverTheyAre) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CheckArg<float>({1, nan, 3, nan, 2}, kFloat, 1, 5, 1);
  CheckArg<float>({nan, 5, 3, 9, 2}, kFloat, 1, 5, 1);
  CheckArg<float>({nan, nan, nan}, kFloat, 1, 3, 1);
  const float infinity = std::numeric_limits<float>::infinity();
  CheckArg<float>({-infinity, nan, -infinity}, kFloat, 1, 3, 1);
  CheckArg<float>({nan, -infinity, infinity, nan, nan, 1}, kFloat, 2, 3, 1);
  CheckArg<float>({nan, -infinity, infinity, nan, nan, 1}, kFloat, 1, 3, 2);
}

}  // namespace
}  // namespace millrace::gpu
