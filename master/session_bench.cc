// SPDX-License-Identifier: Apache-2.0
// What a warm step of a local session costs besides its kernels.
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "benchmark/benchmark.h"
#include "master/session_test_util.h"

namespace millrace {
namespace {

TestGraph Chain(int length) {
  TestGraph graph;
  graph.Placeholder("n0");
  for (int i = 1; i <= length; ++i) {
    graph.Sum(StrCat("n", i), StrCat("n", i - 1), StrCat("n", i - 1));
  }
  return graph;
}

// Arguments: nodes, threads.
void BM_Run(benchmark::State& state) {
  const int length = static_cast<int>(state.range(0));
  TestCluster cluster({.num_threads = static_cast<int>(state.range(1))});
  auto session = cluster.NewSession(Chain(length).def());
  const Tensor one = Tensor::Scalar<float>(0);
  const std::string fetch = StrCat("n", length, ":0");
  for (auto _ : state) {
    auto result = session->Run({{"n0:0", one}}, {fetch});
    MR_CHECK(result.ok());
  }
}
BENCHMARK(BM_Run)->Args({1, 0})->Args({100, 0})->Args({1, 2})->Args({100, 2});

void BM_RunCallable(benchmark::State& state) {
  const int length = static_cast<int>(state.range(0));
  TestCluster cluster({.num_threads = static_cast<int>(state.range(1))});
  auto session = cluster.NewSession(Chain(length).def());
  pb::CallableOptions options;
  options.add_feed("n0:0");
  options.add_fetch(StrCat("n", length, ":0"));
  const auto callable = session->MakeCallable(options);
  MR_CHECK(callable.ok());
  const Tensor one = Tensor::Scalar<float>(0);
  for (auto _ : state) {
    auto result = session->RunCallable(*callable, {one});
    MR_CHECK(result.ok());
  }
}
BENCHMARK(BM_RunCallable)->Args({1, 0})->Args({100, 0})->Args({1, 2});

}  // namespace
}  // namespace millrace

BENCHMARK_MAIN();
