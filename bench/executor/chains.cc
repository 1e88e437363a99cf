// SPDX-License-Identifier: Apache-2.0
#include "bench/executor/chains.h"

#include <utility>

#include "base/log.h"
#include "base/thread_pool.h"
#include "executor/executor.h"
#include "executor/test_graph.h"

namespace millrace {

void Workload::Prepare(const SessionOptions& options, std::span<const Output> feeds_of,
                       std::span<const Output> fetches, std::span<const Operation> targets) {
  auto opened = Session::Create(graph, options);
  MR_CHECK(opened.ok());
  session = std::make_unique<Session>(*std::move(opened));
  auto made = session->MakeCallable(feeds_of, fetches, targets);
  MR_CHECK(made.ok());
  callable = std::make_unique<Callable>(*std::move(made));
  for (int i = 0; i < 20; ++i) Run();
}

void Workload::Run() { MR_CHECK(callable->Run(feeds).ok()); }

SessionOptions CallerAlone() { return {.inter_op_threads = -1, .intra_op_threads = -1}; }

namespace {

struct NullKernels {
  test::TestGraph t;
  ThreadPool pool;
  std::unique_ptr<CompiledGraph> compiled;

  explicit NullKernels(int more_threads) : pool("bench", more_threads) {}
};

std::function<void()> StepOf(std::shared_ptr<NullKernels> s) {
  s->compiled = *s->t.Compile();
  return [s] {
    StepEnv env;
    ExecutorArgs args;
    args.env = &env;
    if (s->pool.num_threads() > 0) args.pool = &s->pool;
    MR_CHECK(Executor(s->compiled.get()).Run(args).ok());
  };
}

}  // namespace

std::function<void()> NullKernelChain(int nodes) {
  auto s = std::make_shared<NullKernels>(0);
  Node* last = nullptr;
  for (int i = 0; i < nodes; ++i) {
    Node* node = s->t.Add("Null");
    if (last != nullptr) s->t.Control(last, node);
    last = node;
  }
  return StepOf(s);
}

std::function<void()> NullKernelLayers(int wide, int deep, int more_threads) {
  auto s = std::make_shared<NullKernels>(more_threads);
  std::vector<Node*> layer;
  for (int d = 0; d < deep; ++d) {
    std::vector<Node*> next;
    for (int i = 0; i < wide; ++i) {
      next.push_back(s->t.Add("Null"));
      for (const int from : {i, (i + 1) % wide}) {
        if (d > 0) s->t.Control(layer[from], next.back());
      }
    }
    layer = next;
  }
  const auto step = StepOf(s);
  for (int i = 0; i < 20; ++i) step();  // costs are learnt
  return step;
}

std::function<void()> AddChain(int nodes, int64_t elements, const SessionOptions& options) {
  auto w = std::make_shared<Workload>();
  const PartialShape shape = elements == 1 ? PartialShape({}) : PartialShape({elements});
  const Output x = Placeholder(w->graph.root(), kFloat, shape);
  const Output y = Placeholder(w->graph.root(), kFloat, shape);
  Output sum = x;
  for (int i = 0; i < nodes; ++i) sum = ops::Add(w->graph.root(), sum, y);
  const Tensor one =
      elements == 1 ? Tensor::Scalar<float>(1)
                    : Tensor::FromValues<float>(std::vector<float>(elements, 1), Shape({elements}));
  w->feeds = {one, one};
  const Output feeds[] = {x, y};
  w->Prepare(options, feeds, {&sum, 1}, {});
  return [w] { w->Run(); };
}

}  // namespace millrace
