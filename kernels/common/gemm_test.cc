// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/random.h"
#include "base/thread_pool.h"

namespace millrace {
namespace {

std::vector<double> Uniform(int64_t n, uint64_t seed) {
  Philox random(seed, 0);
  std::vector<double> out(n);
  for (double& x : out) x = static_cast<double>(random()[0]) / 4294967296.0 - 0.5;
  return out;
}

template <typename T>
void CheckAgainstPlainLoops(int64_t m, int64_t n, int64_t k, bool ta, bool tb, bool accumulate) {
  const auto wide_a = Uniform(m * k, 1), wide_b = Uniform(k * n, 2);
  const std::vector<T> a(wide_a.begin(), wide_a.end()), b(wide_b.begin(), wide_b.end());
  const int64_t c_stride = n + 3;  // rows may lie apart
  std::vector<T> c(m * c_stride, T(7));
  const MatrixView<T> va = ta ? MatrixView<T>{a.data(), 1, m} : MatrixView<T>{a.data(), k, 1};
  const MatrixView<T> vb = tb ? MatrixView<T>{b.data(), 1, k} : MatrixView<T>{b.data(), n, 1};
  ThreadPool pool("gemm", 2);
  Gemm<T>(m, n, k, va, vb, c.data(), c_stride, accumulate,
          [&](int64_t count, double cost, absl::FunctionRef<void(int64_t, int64_t)> body) {
            pool.ParallelFor(count, cost * 1000, body);
          });
  const double tolerance = sizeof(T) == 4 ? 1e-5 : 1e-13;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double want = accumulate ? 7 : 0;
      for (int64_t p = 0; p < k; ++p) {
        want += double(va.data[i * va.row_stride + p * va.col_stride]) *
                double(vb.data[p * vb.row_stride + j * vb.col_stride]);
      }
      ASSERT_NEAR(c[i * c_stride + j], want, tolerance * std::sqrt(double(k) + 1))
          << m << "x" << n << "x" << k << " at " << i << "," << j;
    }
    for (int64_t j = n; j < c_stride; ++j) ASSERT_EQ(c[i * c_stride + j], T(7));
  }
}

TEST(Gemm, AgreesWithPlainLoopsForAllEdgesAndTranspositions) {
  // Around the tile sizes, and the shapes of a small network.
  const int64_t sizes[][3] = {{1, 1, 1},   {3, 5, 7},    {4, 8, 16},     {12, 32, 3},   {13, 33, 9},
                              {24, 16, 5}, {25, 17, 64}, {100, 10, 100}, {49, 100, 784}};
  for (const auto& [m, n, k] : sizes) {
    for (int bits = 0; bits < 8; ++bits) {
      CheckAgainstPlainLoops<float>(m, n, k, bits & 1, bits & 2, bits & 4);
      CheckAgainstPlainLoops<double>(m, n, k, bits & 1, bits & 2, bits & 4);
    }
  }
}

TEST(Gemm, SumsOverSeveralBlocks) {
  CheckAgainstPlainLoops<float>(5, 1030, 600, false, false, false);
  CheckAgainstPlainLoops<float>(5, 1030, 1100, true, true, true);
  for (int bits = 0; bits < 8; ++bits) {
    CheckAgainstPlainLoops<float>(403, 270, 263, bits & 1, bits & 2, bits & 4);
    CheckAgainstPlainLoops<double>(203, 270, 263, bits & 1, bits & 2, bits & 4);
  }
}

TEST(Gemm, GivesZerosForAnEmptySum) {
  std::vector<float> c(6, 1.0f);
  Gemm<float>(2, 3, 0, {nullptr, 0, 1}, {nullptr, 3, 1}, c.data(), 3, false,
              [](int64_t n, double, absl::FunctionRef<void(int64_t, int64_t)> f) { f(0, n); });
  EXPECT_EQ(c, std::vector<float>(6, 0.0f));
}

TEST(Gemm, DoesNotDependOnTheNumberOfThreads) {
  const auto wide_a = Uniform(97 * 301, 3), wide_b = Uniform(301 * 65, 4);
  const std::vector<float> a(wide_a.begin(), wide_a.end()), b(wide_b.begin(), wide_b.end());
  std::vector<std::vector<float>> results;
  for (const int threads : {0, 1, 3}) {
    ThreadPool pool("gemm", threads);
    std::vector<float> c(97 * 65);
    Gemm<float>(97, 65, 301, {a.data(), 301, 1}, {b.data(), 65, 1}, c.data(), 65, false,
                [&](int64_t n, double cost, absl::FunctionRef<void(int64_t, int64_t)> body) {
                  pool.ParallelFor(n, cost * 1000, body);
                });
    results.push_back(std::move(c));
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

}  // namespace
}  // namespace millrace
