// SPDX-License-Identifier: Apache-2.0
// Dense arithmetic against oneDNN called directly, in one thread, in the same run: matrix
// products (ours against dnnl_sgemm), and convolutions (a few images per call, as our kernels
// share them out, against one call for the whole batch). Prints medians of the ratios of
// alternating runs with the least and the largest; below 1 is faster than oneDNN.
#include <dnnl.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <functional>
#include <vector>

#include "kernels/common/gemm.h"
#include "kernels/nn/onednn_conv.h"

extern "C" void omp_set_num_threads(int);

namespace millrace {
namespace {

// Processor time of this thread: what other processes take does not count.
double Seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

std::vector<float> Uniform(int64_t n) {
  std::vector<float> out(static_cast<std::size_t>(n));
  uint32_t state = 1;
  for (float& x : out) {
    state = state * 1664525 + 1013904223;
    x = static_cast<float>(state >> 8) / 16777216.0f - 0.5f;
  }
  return out;
}

void RunHere(int64_t n, double, absl::FunctionRef<void(int64_t, int64_t)> body) { body(0, n); }

void Compare(const char* what, double operations, const std::function<void()>& ours,
             const std::function<void()>& theirs) {
  const int repeats = std::max(1, static_cast<int>(3e8 / operations));
  const auto time = [&](const std::function<void()>& f) {
    const double begin = Seconds();
    for (int i = 0; i < repeats; ++i) f();
    return (Seconds() - begin) / repeats;
  };
  ours();
  theirs();
  std::vector<double> ratios;
  double best = 1e9;
  for (int i = 0; i < 9; ++i) {
    const double a = time(ours), b = time(theirs);
    ratios.push_back(a / b);
    best = std::min(best, a);
  }
  std::sort(ratios.begin(), ratios.end());
  std::printf("%-34s %8.1f us %6.1f GF/s  ratio %.2f (%.2f-%.2f)\n", what, best * 1e6,
              operations / best * 1e-9, ratios[4], ratios.front(), ratios.back());
}

void CompareProducts(int64_t m, int64_t n, int64_t k, bool ta, bool tb) {
  const std::vector<float> a = Uniform(m * k), b = Uniform(k * n);
  std::vector<float> c(static_cast<std::size_t>(m * n));
  const MatrixView<float> va =
      ta ? MatrixView<float>{a.data(), 1, m} : MatrixView<float>{a.data(), k, 1};
  const MatrixView<float> vb =
      tb ? MatrixView<float>{b.data(), 1, k} : MatrixView<float>{b.data(), n, 1};
  char name[64];
  std::snprintf(name, sizeof(name), "product %ldx%ldx%ld %c%c", static_cast<long>(m),
                static_cast<long>(k), static_cast<long>(n), ta ? 'T' : 'N', tb ? 'T' : 'N');
  Compare(
      name, 2.0 * static_cast<double>(m * n * k),
      [&] { Gemm<float>(m, n, k, va, vb, c.data(), n, false, RunHere); },
      [&] {
        dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', m, n, k, 1.0f, a.data(), ta ? m : k, b.data(),
                   tb ? k : n, 0.0f, c.data(), n);
      });
}

void CompareConvolutions(const char* name, ConvPass pass, ConvGeometry g, int64_t part) {
  const auto whole = OneDnnConv::Create(pass, g);
  ConvGeometry small = g;
  small.batch = part;
  const auto each = OneDnnConv::Create(pass, small);
  if (!whole || !each) {
    std::printf("%s: oneDNN has no compiled code here\n", name);
    return;
  }
  std::vector<float> images = Uniform(g.batch * g.image());
  std::vector<float> outputs = Uniform(g.batch * g.out_image());
  std::vector<float> filter =
      Uniform(std::max(whole->packed_filter_size(), each->packed_filter_size()));
  std::vector<float> scratch = Uniform(1 + std::max(whole->scratch_size(), each->scratch_size()));
  Compare(
      name, 2.0 * static_cast<double>(g.batch * g.out_image() * g.taps()),
      [&] {
        for (int64_t n = 0; n < g.batch; n += part) {
          static_cast<void>(each->Execute(images.data() + n * g.image(), filter.data(),
                                          outputs.data() + n * g.out_image(), scratch.data()));
        }
      },
      [&] {
        static_cast<void>(
            whole->Execute(images.data(), filter.data(), outputs.data(), scratch.data()));
      });
}

ConvGeometry Conv(int64_t batch, int64_t side, int64_t channels, int64_t outputs) {
  const WindowAxis axis{side, 5, 1, 1, side, 2};
  return {batch, channels, outputs, 1, axis, axis};
}

int Main() {
  omp_set_num_threads(1);
  CompareProducts(100, 100, 784, false, false);
  CompareProducts(784, 100, 100, true, false);
  CompareProducts(100, 10, 100, false, false);
  CompareProducts(100, 100, 10, true, false);
  CompareProducts(100, 100, 10, false, true);
  CompareProducts(128, 512, 784, false, false);
  CompareProducts(784, 512, 128, true, false);
  CompareProducts(128, 512, 512, false, false);
  CompareProducts(128, 512, 512, false, true);
  CompareProducts(64, 1024, 3136, false, false);
  CompareProducts(3136, 1024, 64, true, false);
  CompareProducts(64, 3136, 1024, false, true);
  CompareProducts(1024, 1024, 1024, false, false);
  CompareConvolutions("conv 28x28x1x32 forward", ConvPass::kForward, Conv(64, 28, 1, 32), 4);
  CompareConvolutions("conv 28x28x1x32 filter", ConvPass::kFilter, Conv(64, 28, 1, 32), 8);
  CompareConvolutions("conv 14x14x32x64 forward", ConvPass::kForward, Conv(64, 14, 32, 64), 1);
  CompareConvolutions("conv 14x14x32x64 images", ConvPass::kInput, Conv(64, 14, 32, 64), 1);
  CompareConvolutions("conv 14x14x32x64 filter", ConvPass::kFilter, Conv(64, 14, 32, 64), 8);
  return 0;
}

}  // namespace
}  // namespace millrace

int main() { return millrace::Main(); }
