// SPDX-License-Identifier: Apache-2.0
// Chains of elementwise ops over 16 Mi floats through a session: fused and compiled, interpreted,
// and node by node, beside a triad (a = b + s * c) with streaming stores in the same run. What
// counts is the traffic that cannot be avoided, each input and each output once, per second.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "jit/code_cache.h"
#include "millrace/core.h"
#include "millrace/ops.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace millrace {
namespace {

constexpr int64_t kCount = int64_t{16} << 20;
constexpr int kThreads = 2;
constexpr int kRuns = 15;

double Seconds(const std::function<void()>& f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

#if defined(__x86_64__)
__attribute__((target("avx"))) void TriadRange(const float* b, const float* c, float* a,
                                               int64_t begin, int64_t end) {
  const __m256 s = _mm256_set1_ps(3);
  for (int64_t i = begin; i < end; i += 8) {
    _mm256_stream_ps(
        a + i, _mm256_add_ps(_mm256_loadu_ps(b + i), _mm256_mul_ps(s, _mm256_loadu_ps(c + i))));
  }
  _mm_sfence();
}
#else
void TriadRange(const float* b, const float* c, float* a, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) a[i] = b[i] + 3 * c[i];
}
#endif

class Chain {
 public:
  // The graph of `build` over one input, in a session that fuses or not.
  Chain(const std::function<Output(const Scope&, Output)>& build, bool fuse) {
    setenv("MILLRACE_FUSION", fuse ? "on" : "off", 1);
    x_ = Placeholder(graph_.root(), kFloat, {kCount});
    const Output y = build(graph_.root(), x_);
    auto session =
        Session::Create(graph_, {.inter_op_threads = kThreads, .intra_op_threads = kThreads - 1});
    if (!session.ok()) Die(session.status());
    session_ = std::make_unique<Session>(*std::move(session));
    const std::vector<Output> feeds = {x_}, fetches = {y};
    auto run = session_->MakeCallable(feeds, fetches);
    if (!run.ok()) Die(run.status());
    run_ = std::make_unique<Callable>(*std::move(run));
  }
  void Run(const Tensor& x) {
    const Status status = run_->Run(std::vector<Tensor>{x}, &fetched_);
    if (!status.ok()) Die(status);
  }
  const Tensor& value() const { return fetched_[0]; }

 private:
  [[noreturn]] static void Die(const Status& status) {
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    std::exit(1);
  }
  Graph graph_;
  Output x_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<Callable> run_;
  std::vector<Tensor> fetched_;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void Measure(const char* name, const std::function<Output(const Scope&, Output)>& build,
             const Tensor& x, const std::function<void()>& triad) {
  Chain fused(build, true), unfused(build, false);
  const double first = Seconds([&] { fused.Run(x); });
  if (!jit::CodeCache::Global()->WaitUntilIdle()) std::printf("the compiler is still at it\n");
  unfused.Run(x);
  fused.Run(x);
  const bool same = std::memcmp(fused.value().raw_data(), unfused.value().raw_data(),
                                fused.value().num_bytes()) == 0;
  std::vector<double> of_fused, of_unfused, of_triad, ratios;
  for (int i = 0; i < kRuns; ++i) {
    of_triad.push_back(Seconds(triad));
    of_fused.push_back(Seconds([&] { fused.Run(x); }));
    of_unfused.push_back(Seconds([&] { unfused.Run(x); }));
    ratios.push_back(of_triad.back() / 3 / (of_fused.back() / 2));
  }
  constexpr double kGigabytes = 4e-9 * static_cast<double>(kCount);
  std::printf(
      "%-28s triad %5.1f GB/s  fused %5.1f GB/s  ratio %.2f (%.2f-%.2f)  fused %6.1f ms  unfused "
      "%6.1f ms (x%.2f)  first step %6.1f ms  %s\n",
      name, 3 * kGigabytes / Median(of_triad), 2 * kGigabytes / Median(of_fused), Median(ratios),
      *std::min_element(ratios.begin(), ratios.end()),
      *std::max_element(ratios.begin(), ratios.end()), 1e3 * Median(of_fused),
      1e3 * Median(of_unfused), Median(of_unfused) / Median(of_fused), 1e3 * first,
      same ? "same bits" : "OTHER BITS");
}

int Main() {
  std::vector<float> values(kCount);
  for (int64_t i = 0; i < kCount; ++i) values[i] = static_cast<float>(i % 4001 - 2000) / 500;
  const Tensor x = Tensor::FromValues<float>(values, Shape({kCount}));
  Tensor a(kFloat, Shape({kCount})), b = x, c(kFloat, Shape({kCount}));
  std::fill_n(a.data<float>(), kCount, 1.0f);
  std::fill_n(c.data<float>(), kCount, 1.0f);
  ThreadPool pool("triad", kThreads - 1);
  const auto triad = [&] {
    pool.ParallelFor(kCount / 4096, 4096, [&](int64_t begin, int64_t end) {
      TriadRange(b.data<float>(), c.data<float>(), a.data<float>(), begin * 4096, end * 4096);
    });
  };
  triad();
  const auto constant = [](const Scope& s, float value) {
    return ops::Const(s, Tensor::Scalar<float>(value), kFloat);
  };
  Measure(
      "5 arithmetic ops",
      [&](const Scope& s, Output in) {
        const Output scaled = ops::Add(s, ops::Mul(s, in, constant(s, 1.5f)), constant(s, 0.25f));
        return ops::Relu(s, ops::Sub(s, ops::Mul(s, scaled, in), constant(s, 0.125f)));
      },
      x, triad);
  Measure(
      "10 arithmetic ops",
      [&](const Scope& s, Output in) {
        Output y = in;
        for (int i = 0; i < 5; ++i) {
          y = ops::Add(s, ops::Mul(s, y, constant(s, 0.9f)), constant(s, 0.1f * i));
        }
        return y;
      },
      x, triad);
  Measure(
      "tanh, sigmoid and 3 more",
      [&](const Scope& s, Output in) {
        const Output t = ops::Tanh(s, ops::Mul(s, in, constant(s, 0.5f)));
        return ops::Mul(s, ops::Sigmoid(s, ops::Add(s, t, in)), t);
      },
      x, triad);
  return 0;
}

}  // namespace
}  // namespace millrace

int main() { return millrace::Main(); }
