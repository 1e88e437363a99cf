// SPDX-License-Identifier: Apache-2.0
#include "bench/executor/arithmetic_peak.h"

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "kernels/common/isa.h"

namespace millrace {
namespace {

// As many sums as hide the latency of a product.
constexpr int kSums = 14;
constexpr int64_t kRounds = 100000;

// What it computes is of no interest, but must be computed.
template <int kBytes>
MR_ALWAYS_INLINE float MultiplyAndAdd(float a, float b) {
  typedef float V __attribute__((vector_size(kBytes)));
  V sums[kSums];
#pragma GCC unroll 14
  for (int i = 0; i < kSums; ++i) sums[i] = V{} + static_cast<float>(i);
  const V factor = V{} + a, term = V{} + b;
  for (int64_t round = 0; round < kRounds; ++round) {
#pragma GCC unroll 14
    for (int i = 0; i < kSums; ++i) sums[i] = sums[i] * factor + term;
  }
  float total = 0;
  for (int i = 0; i < kSums; ++i) {
    float lanes[kBytes / sizeof(float)];
    __builtin_memcpy(lanes, &sums[i], sizeof(lanes));
    for (const float lane : lanes) total += lane;
  }
  return total;
}

MR_TARGET_AVX512 float Avx512(float a, float b) { return MultiplyAndAdd<64>(a, b); }
MR_TARGET_AVX2 float Avx2(float a, float b) { return MultiplyAndAdd<32>(a, b); }
float Base(float a, float b) { return MultiplyAndAdd<16>(a, b); }

}  // namespace

double MeasureArithmeticPeak(int threads, double seconds) {
  const Isa isa = BestIsa();
  const auto run = isa == Isa::kAvx512 ? &Avx512 : isa == Isa::kAvx2 ? &Avx2 : &Base;
  const int lanes = isa == Isa::kAvx512 ? 16 : isa == Isa::kAvx2 ? 8 : 4;
  std::atomic<int64_t> calls{0};
  std::atomic<float> sink{0};
  const int64_t start = SteadyNanos();
  std::vector<std::thread> workers;
  for (int i = 0; i < threads; ++i) {
    workers.emplace_back([&] {
      while (static_cast<double>(SteadyNanos() - start) * 1e-9 < seconds) {
        sink = run(0.999f, 1e-3f);
        ++calls;
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  const double spent = static_cast<double>(SteadyNanos() - start) * 1e-9;
  return 2.0 * kSums * lanes * kRounds * static_cast<double>(calls) / spent;
}

}  // namespace millrace
