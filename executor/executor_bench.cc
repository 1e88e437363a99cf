// SPDX-License-Identifier: Apache-2.0
// Nanoseconds per node of chains, against a list of virtual calls in the same run.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "executor/executor.h"
#include "executor/test_graph.h"

namespace millrace {
namespace {

constexpr int kRounds = 15;

// The best of some rounds: what the machine can do when nobody disturbs.
double BestNanos(const std::function<void()>& body) {
  int64_t best = INT64_MAX;
  for (int i = 0; i < kRounds; ++i) {
    const int64_t start = SteadyNanos();
    body();
    best = std::min(best, SteadyNanos() - start);
  }
  return static_cast<double>(best);
}

struct Callee {
  virtual ~Callee() = default;
  virtual void Call() = 0;
};
struct Counter final : Callee {
  explicit Counter(int64_t* count) : count(count) {}
  void Call() override { ++*count; }
  int64_t* count;
};

double VirtualCalls(int n) {
  int64_t count = 0;
  std::vector<std::unique_ptr<Callee>> list;
  for (int i = 0; i < n; ++i) list.push_back(std::make_unique<Counter>(&count));
  const double nanos = BestNanos([&] {
    for (auto& callee : list) callee->Call();
  });
  MR_CHECK(count == int64_t{n} * kRounds);
  return nanos / n;
}

double Steps(test::TestGraph& t, int n, ThreadPool* pool) {
  auto compiled = t.Compile();
  MR_CHECK(compiled.ok());
  StepEnv env;
  ExecutorArgs args;
  args.env = &env;
  args.pool = pool;
  const Executor executor(compiled->get());
  return BestNanos([&] { MR_CHECK(executor.Run(args).ok()); }) / n;
}

double ControlChain(const char* op, int n) {
  test::TestGraph t;
  Node* last = nullptr;
  for (int i = 0; i < n; ++i) {
    Node* node = t.Add(op);
    if (last != nullptr) t.Control(last, node);
    last = node;
  }
  return Steps(t, n, nullptr);
}

double ScalarChain(int n) {
  test::TestGraph t;
  Node* one = t.Add("Value", {}, test::TestGraph::Attr("value", 1.0f));
  Node* last = one;
  for (int i = 0; i < n; ++i) last = t.Add("Sum", {last, one});
  return Steps(t, n, nullptr);
}

double WideGraph(int wide, int deep, ThreadPool* pool) {
  test::TestGraph t;
  std::vector<Node*> layer;
  for (int d = 0; d < deep; ++d) {
    std::vector<Node*> next;
    for (int w = 0; w < wide; ++w) {
      Node* node = t.Add("Null");
      if (d > 0) t.Control(layer[w], node);
      if (d > 0) t.Control(layer[(w + 1) % wide], node);
      next.push_back(node);
    }
    layer = next;
  }
  return Steps(t, wide * deep, pool);
}

int Main() {
  constexpr int kNodes = 100'000;
  const double base = VirtualCalls(kNodes);
  auto row = [base](const char* what, double nanos) {
    std::printf("%-44s %8.2f ns/node %8.1f x\n", what, nanos, nanos / base);
  };
  row("static list of virtual calls", base);
  row("100k NoOp, control edges, one thread", ControlChain("NoOp", kNodes));
  row("100k null kernels, control edges", ControlChain("Null", kNodes));
  row("1000 scalar additions", ScalarChain(1000));
  ThreadPool pool("bench", 2);
  row("100 wide x 100 deep null kernels", WideGraph(100, 100, nullptr));
  row("the same with a pool of 2 threads", WideGraph(100, 100, &pool));
  return 0;
}

}  // namespace
}  // namespace millrace

int main() { return millrace::Main(); }
